"""Small problems on which the references are tested, and what several of those tests
need.
"""

from functools import partial

import numpy as np
import pytest

from . import kernels

KERNELS = [
    partial(kernels.rbf, lengthscale=np.array([0.9, 1.3]), variance=1.5),
    partial(kernels.matern32, lengthscale=1.1, variance=0.8),
    partial(kernels.matern52, lengthscale=0.8, variance=2.0),
    partial(kernels.rational_quadratic, lengthscale=1.0, variance=1.2, alpha=0.7),
]
NEW = np.random.default_rng(5).normal(size=(3, 2))


def problem(N=10, M=4, C=3, seed=0):
    """X (N, 2), y (N,) with overlapping classes, Z (C, M, 2), kernels, noise (C,)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    score = X @ rng.normal(size=(2, C)) + 0.3 * rng.normal(size=(N, C))
    noise = np.array([0.1, 0.3, 0.2, 0.15])[:C]
    return X, score.argmax(axis=1), rng.normal(size=(C, M, 2)), KERNELS[:C], noise


def hyper_parameters(C, M):
    """Z (L, M, 2), lengthscale (L, 2), variance (L,), noise (L,) that differ from class
    to class; L = 1 for C = 2.
    """
    L, rng = 1 if C == 2 else C, np.random.default_rng(C)
    Z, lengthscale = rng.normal(size=(L, M, 2)), rng.uniform(0.6, 1.8, (L, 2))
    return Z, lengthscale, rng.uniform(0.5, 2, L), rng.uniform(0.2, 0.6, L)


def binary_problem(N=10, M=4, seed=0):
    """X (N, 2), y = ±1, Z (1, M, 2), one kernel, noise 1."""
    X, y, Z, ks, _ = problem(N, M, 2, seed)
    return X, 2 * y - 1, Z[:1], ks[:1], 1.0


def outliers():
    """Two far labels in each other's territory and strong kernels: sites with τ < 0."""
    X, y, Z, _, _ = problem(N=8, seed=3)
    ks = [partial(kernels.rbf, lengthscale=1.5, variance=9.0 + c) for c in range(3)]
    return (
        X,
        np.where(np.arange(8) % 5 == 1, (y + 1) % 3, y),
        Z,
        ks,
        np.array([0.1, 0.2, 0.1]),
    )


def smooth_kernels(C=3):
    """Kernels whose matrices at the data are well conditioned without jitter."""
    return [
        partial(kernels.matern32, lengthscale=1 + 0.2 * c, variance=1 + c)
        for c in range(C)
    ]


def kernel_matrices(ks, X):
    """k(X, X) of every class, then what predictions at NEW need: k(NEW, X) and diag
    k(NEW, NEW).
    """
    return (
        [k(X, X) for k in ks],
        [k(NEW, X) for k in ks],
        [np.diag(k(NEW, NEW)) for k in ks],
    )


def assert_all_close(got, expected, atol):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


def assert_same_posterior(a, b, atol=1e-9):
    assert a.log_z == pytest.approx(b.log_z, abs=atol)
    assert_all_close((a.mean, a.cov), (b.mean, b.cov), atol)
