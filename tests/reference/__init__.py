"""Brute-force oracle: explicit matrices and inverses, NumPy and SciPy only; neither cavity nor torch."""
