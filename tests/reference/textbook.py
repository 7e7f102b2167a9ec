"""Binary EP as the textbook prints it, an independent check of the one solver.
[Rasmussen & Williams 3.6]
"""

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm


class FullBinaryResult(NamedTuple):
    """q(f) = N(mean, cov) over the N training values; likelihood Φ(y f)."""

    log_z: float
    mean: np.ndarray  # (N,)
    cov: np.ndarray  # (N, N)
    tau: np.ndarray  # (N,)
    nu: np.ndarray  # (N,)
    sweeps: int


def binary_posterior(K, tau, nu):
    """B = I + S^½ K S^½,  Σ = K − K S^½ B⁻¹ S^½ K,  μ = Σν̃.   [R&W Alg 3.5, lines
    13–16]
    """
    root = np.sqrt(tau)
    B = np.eye(len(K)) + root[:, None] * K * root
    cov = K - (K * root) @ np.linalg.inv(B) @ (root[:, None] * K)
    return cov @ nu, cov, B


def binary_site(y, tau_cavity, nu_cavity):
    """New (τ̃, ν̃) of one site from its cavity.   [R&W 3.58, 3.59; Alg 3.5, lines 7–9]"""
    var, mean = 1 / tau_cavity, nu_cavity / tau_cavity
    z = y * mean / np.sqrt(1 + var)
    ratio = np.exp(norm.logpdf(z) - log_ndtr(z))
    mean_hat = mean + y * var * ratio / np.sqrt(1 + var)
    var_hat = var - var**2 * ratio / (1 + var) * (z + ratio)
    return 1 / var_hat - tau_cavity, mean_hat / var_hat - nu_cavity


def binary_log_z(K, y, tau, nu) -> float:
    """log Z_EP, the stable arrangement of R&W (3.65): (3.73) and (3.74)."""
    mean, cov, B = binary_posterior(K, tau, nu)
    t = 1 / np.diag(cov) - tau
    m = (mean / np.diag(cov) - nu) / t
    first_and_fourth = 0.5 * np.sum(np.log1p(tau / t)) - 0.5 * np.linalg.slogdet(B)[1]
    second_and_fifth = (
        0.5 * nu @ cov @ nu
        - 0.5 * np.sum(nu**2 / (t + tau))
        + 0.5 * np.sum(m * t / (tau + t) * (tau * m - 2 * nu))
    )
    return float(
        first_and_fourth
        + second_and_fifth
        + np.sum(log_ndtr(y * m / np.sqrt(1 + 1 / t)))
    )


def full_binary_ep(K, y, max_sweeps=1000, tol=1e-13) -> FullBinaryResult:
    """Sequential EP, K (N, N), y = ±1, likelihood Φ(y f).   [R&W Algorithm 3.5]"""
    K, y = np.asarray(K, dtype=float), np.asarray(y, dtype=float)
    tau, nu, sweeps, change = np.zeros(len(y)), np.zeros(len(y)), 0, np.inf
    while sweeps < max_sweeps and change > tol:
        old = tau.copy(), nu.copy()
        for i in range(len(y)):
            mean, cov, _ = binary_posterior(K, tau, nu)
            tau[i], nu[i] = binary_site(
                y[i], 1 / cov[i, i] - tau[i], mean[i] / cov[i, i] - nu[i]
            )
            tau[i] = max(tau[i], 0.0)
        change = max(np.max(np.abs(tau - old[0])), np.max(np.abs(nu - old[1])))
        sweeps += 1
    mean, cov, _ = binary_posterior(K, tau, nu)
    return FullBinaryResult(binary_log_z(K, y, tau, nu), mean, cov, tau, nu, sweeps)


def full_binary_predict(result: FullBinaryResult, K, Kstar, kss):
    """p(y* = +1) = Φ(m*/√(1 + v*)), (n,); Kstar (n, N), kss (n,).   [R&W Alg 3.6]"""
    root = np.sqrt(result.tau)
    B_inv = np.linalg.inv(np.eye(len(K)) + root[:, None] * K * root)
    mean = Kstar @ (result.nu - root * (B_inv @ (root * (K @ result.nu))))
    half = Kstar * root
    return ndtr(mean / np.sqrt(1 + kss - np.sum(half @ B_inv * half, axis=1)))
