"""The classifiers that are pooled with the Gaussian process: how they are fitted, stored
as arrays and weighted.
"""
