"""How far to trust a fit and what it found: importance, contributions, partial
dependence, sampling.
"""
