"""Brute-force references: explicit matrices and inverses, NumPy and SciPy only,
independent of cavity and torch.

brute_ep.py lists the EP methods: each is a factor (factors.py), a place for its sites
and options of solver.py.
"""
