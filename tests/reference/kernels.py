"""Covariance functions written out: k(X1 (n, D), X2 (m, D)) -> (n, m)."""

from functools import partial

import numpy as np


def one_per_class(kernel, lengthscale, variance):
    """The kernel with each class's own ℓ and σ²."""
    pairs = zip(lengthscale, variance, strict=True)
    return [partial(kernel, lengthscale=ell, variance=var) for ell, var in pairs]


def scaled_distance(X1, X2, lengthscale):
    """|(x − x')/ℓ|, ℓ a scalar or one per column. Returns (n, m)."""
    difference = (X1[:, None, :] - X2[None, :, :]) / np.asarray(
        lengthscale, dtype=float
    )
    return np.sqrt(np.sum(difference**2, axis=-1))


def rbf(X1, X2, lengthscale=1.0, variance=1.0):
    """σ² exp(−d²/2)."""
    return variance * np.exp(-0.5 * scaled_distance(X1, X2, lengthscale) ** 2)


def matern12(X1, X2, lengthscale=1.0, variance=1.0):
    """σ² exp(−d)."""
    return variance * np.exp(-scaled_distance(X1, X2, lengthscale))


def matern32(X1, X2, lengthscale=1.0, variance=1.0):
    """σ² (1 + √3 d) exp(−√3 d)."""
    d = np.sqrt(3.0) * scaled_distance(X1, X2, lengthscale)
    return variance * (1 + d) * np.exp(-d)


def matern52(X1, X2, lengthscale=1.0, variance=1.0):
    """σ² (1 + √5 d + 5 d²/3) exp(−√5 d)."""
    d = np.sqrt(5.0) * scaled_distance(X1, X2, lengthscale)
    return variance * (1 + d + d**2 / 3) * np.exp(-d)


def rational_quadratic(X1, X2, lengthscale=1.0, variance=1.0, alpha=1.0):
    """σ² (1 + d²/(2α))^(−α)."""
    return variance * (1 + scaled_distance(X1, X2, lengthscale) ** 2 / (2 * alpha)) ** (
        -alpha
    )


def linear(X1, X2, variance=1.0, bias=0.0):
    """bias + Σ_d σ²_d x_d x'_d, σ² a scalar or one per column."""
    return np.array([[bias + np.sum(variance * a * b) for b in X2] for a in X1])
