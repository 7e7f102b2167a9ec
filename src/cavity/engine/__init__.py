"""The engine: arrays in, posterior out.

It imports torch, NumPy, SciPy, `common` and `errors`, and nothing else of the package.
"""
