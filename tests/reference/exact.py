"""The true log evidence of tiny problems, which every approximation should be near, and
exact regression.
"""

from typing import NamedTuple

import numpy as np
from scipy.integrate import dblquad
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import multivariate_normal


def binary_log_evidence_dblquad(K, y) -> float:
    """log ∫∫ N(f; 0, K) Φ(y₁f₁) Φ(y₂f₂) df, K (2, 2), y = ±1."""
    inverse, scale = np.linalg.inv(K), 1 / (2 * np.pi * np.sqrt(np.linalg.det(K)))
    a, b = 9 * np.sqrt(np.diag(K))

    def integrand(f2, f1):
        f = np.array([f1, f2])
        return scale * np.exp(-0.5 * f @ inverse @ f) * np.prod(ndtr(y * f))

    return float(
        np.log(dblquad(integrand, -a, a, -b, b, epsabs=1e-10, epsrel=1e-10)[0])
    )


def binary_log_evidence_orthant(K, y) -> float:
    """The same for any small N: the probability that y·(f + ε) > 0, ε ~ N(0, I)."""
    y = np.asarray(y, dtype=float)
    cov = y[:, None] * (K + np.eye(len(K))) * y
    return float(
        multivariate_normal(cov=cov, abseps=1e-8, releps=1e-8, maxpts=10**6).logcdf(
            np.zeros(len(y))
        )
    )


def exact_log_evidence_mc(K_list, y, noise, samples=200_000, seed=0):
    """log E Π_n Π_{k≠y} Φ((f_y − f_k)/√(s_y + s_k)) over f_c ~ N(0, K_c), and its
    standard error.
    """
    rng, C, N = np.random.default_rng(seed), len(K_list), len(y)
    noise = np.broadcast_to(np.asarray(noise, dtype=float), (C,))
    f = [
        rng.multivariate_normal(np.zeros(N), K, size=samples, method="eigh")
        for K in K_list
    ]
    log_likelihood = np.zeros(samples)
    for n in range(N):
        for k in set(range(C)) - {int(y[n])}:
            log_likelihood += log_ndtr(
                (f[y[n]][:, n] - f[k][:, n]) / np.sqrt(noise[y[n]] + noise[k])
            )
    log_z = logsumexp(log_likelihood) - np.log(samples)
    relative = np.exp(log_likelihood - log_z)
    return float(log_z), float(relative.std() / np.sqrt(samples))


class RegressionResult(NamedTuple):
    """Exact posterior of f* (noise excluded) and log p(y)."""

    mean: np.ndarray  # (n,)
    var: np.ndarray  # (n,)
    log_evidence: float


def gp_regression(K, y, noise, Kstar, kss) -> RegressionResult:
    """y = f + N(0, noise): K (N, N), Kstar (n, N), kss (n,), noise a variance.   [R&W
    2.25, 2.26, 2.30]
    """
    A = K + noise * np.eye(len(K))
    A_inv = np.linalg.inv(A)
    log_evidence = (
        -0.5 * y @ A_inv @ y
        - 0.5 * np.linalg.slogdet(A)[1]
        - 0.5 * len(y) * np.log(2 * np.pi)
    )
    return RegressionResult(
        Kstar @ A_inv @ y, kss - np.diag(Kstar @ A_inv @ Kstar.T), float(log_evidence)
    )
