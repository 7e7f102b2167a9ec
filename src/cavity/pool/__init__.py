"""The other classifiers that predict together with the Gaussian process: how they are
fitted, kept as arrays and weighed.
"""
