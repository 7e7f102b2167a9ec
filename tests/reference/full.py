"""Gaussian processes without sparsity: textbook binary EP, sequential multi-class EP, exact regression."""

from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from .probit import class_probabilities


class FullBinaryResult(NamedTuple):
    """q(f) = N(mean, cov) over the N training values; likelihood Φ(y f)."""

    log_z: float
    mean: np.ndarray  # (N,)
    cov: np.ndarray  # (N, N)
    tau: np.ndarray  # (N,)
    nu: np.ndarray  # (N,)
    sweeps: int


def binary_posterior(K, tau, nu):
    """B = I + S^½ K S^½,  Σ = K − K S^½ B⁻¹ S^½ K,  μ = Σν̃.   [R&W Alg 3.5, lines 13–16]"""
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
    return float(first_and_fourth + second_and_fifth + np.sum(log_ndtr(y * m / np.sqrt(1 + 1 / t))))


def full_binary_ep(K, y, max_sweeps=1000, tol=1e-13) -> FullBinaryResult:
    """Sequential EP, K (N, N), y = ±1, likelihood Φ(y f).   [R&W Algorithm 3.5]"""
    K, y = np.asarray(K, dtype=float), np.asarray(y, dtype=float)
    tau, nu, sweeps, change = np.zeros(len(y)), np.zeros(len(y)), 0, np.inf
    while sweeps < max_sweeps and change > tol:
        old = tau.copy(), nu.copy()
        for i in range(len(y)):
            mean, cov, _ = binary_posterior(K, tau, nu)
            tau[i], nu[i] = binary_site(y[i], 1 / cov[i, i] - tau[i], mean[i] / cov[i, i] - nu[i])
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


class FullMulticlassResult(NamedTuple):
    """q(f_c) = N(mean, cov) at the training points, noise excluded."""

    log_z: float
    mean: np.ndarray  # (C, N)
    cov: np.ndarray  # (C, N, N)
    tau: np.ndarray  # (N, C−1, 2): rivals ascending, last axis (own class, rival)
    nu: np.ndarray  # as tau
    K: np.ndarray  # (C, N, N)
    T: np.ndarray  # (C, N) totals of tau
    U: np.ndarray  # (C, N) totals of nu
    noise: np.ndarray  # (C,)
    sweeps: int


def conditioned(K, T, U):
    """Σ = (K⁻¹ + diag T)⁻¹ = K(I + TK)⁻¹: mean ΣU (N,), Σ (N, N), G = −½ log|I + TK| + ½ UᵀΣU."""
    A = np.eye(len(K)) + T[:, None] * K
    cov = K @ np.linalg.inv(A)
    return cov @ U, cov, -0.5 * np.linalg.slogdet(A)[1] + 0.5 * U @ cov @ U


def without(totals, n, site):
    """Totals (N,) with one site at point n taken out."""
    left = totals.copy()
    left[n] -= site
    return left


def pair_match(cavities, n, s):
    """Match Φ((f_y − f_k)/√s) at point n by tilted moments: log Z, new τ (2,), new ν (2,)."""
    mean = np.array([m[n] for m, _, _ in cavities])
    var = np.array([V[n, n] for _, V, _ in cavities])
    b = s + var.sum()
    z = (mean[0] - mean[1]) / np.sqrt(b)
    ratio = np.exp(norm.logpdf(z) - log_ndtr(z))
    tilted_mean = mean + np.array([1.0, -1.0]) * var * ratio / np.sqrt(b)
    tilted_var = var - var**2 * ratio * (ratio + z) / b
    return log_ndtr(z), 1 / tilted_var - 1 / var, tilted_mean / tilted_var - mean / var


def pair_cavities(K, T, U, n, sides, tau, nu):
    """The N×N cavities of the two sides (y, k), each conditioned on every other site."""
    return [conditioned(K[c], without(T[c], n, tau[i]), without(U[c], n, nu[i])) for i, c in enumerate(sides)]


def full_multiclass_ep(K_list, y, noise, max_sweeps=500, tol=1e-11) -> FullMulticlassResult:
    """Sequential EP on f_c ~ N(0, K_c), factors Φ((f_y − f_k)/√(s_y + s_k)).

    K_list (C, N, N), y (N,) in 0..C−1, noise (C,) or scalar.
    """
    K, C, N = np.array(K_list, dtype=float), len(K_list), len(y)
    noise = np.broadcast_to(np.asarray(noise, dtype=float), (C,))
    tau, nu, T, U = np.zeros((N, C - 1, 2)), np.zeros((N, C - 1, 2)), np.zeros((C, N)), np.zeros((C, N))
    factors = [(n, j, (y[n], k)) for n in range(N) for j, k in enumerate(c for c in range(C) if c != y[n])]
    sweeps, change = 0, np.inf
    while sweeps < max_sweeps and change > tol:
        old = tau.copy(), nu.copy()
        for n, j, sides in factors:
            cavities = pair_cavities(K, T, U, n, sides, tau[n, j], nu[n, j])
            _, new_tau, new_nu = pair_match(cavities, n, noise[list(sides)].sum())
            T[list(sides), n] += new_tau - tau[n, j]
            U[list(sides), n] += new_nu - nu[n, j]
            tau[n, j], nu[n, j] = new_tau, new_nu
        change = max(np.max(np.abs(tau - old[0])), np.max(np.abs(nu - old[1])))
        sweeps += 1
    return full_multiclass_result(K, noise, factors, tau, nu, T, U, sweeps)


def full_multiclass_result(K, noise, factors, tau, nu, T, U, sweeps) -> FullMulticlassResult:
    """log Z_q = Σ_c G_c + Σ_factors [log Z + Σ_sides (G\\ − G)]."""
    q = [conditioned(K[c], T[c], U[c]) for c in range(len(K))]
    log_z = sum(g for _, _, g in q)
    for n, j, sides in factors:
        cavities = pair_cavities(K, T, U, n, sides, tau[n, j], nu[n, j])
        log_z += pair_match(cavities, n, noise[list(sides)].sum())[0]
        log_z += sum(cavity[2] - q[c][2] for cavity, c in zip(cavities, sides, strict=True))
    mean, cov = np.array([m for m, _, _ in q]), np.array([V for _, V, _ in q])
    return FullMulticlassResult(float(log_z), mean, cov, tau, nu, K, T, U, noise, sweeps)


def full_multiclass_latent(result: FullMulticlassResult, Kstar_list, kss_list):
    """f_c* with noise: mean, variance (n, C); Kstar_list (C, n, N), kss_list (C, n)."""
    mean, var = [], []
    for c, (Kstar, kss) in enumerate(zip(Kstar_list, kss_list, strict=True)):
        A_inv = np.linalg.inv(np.eye(Kstar.shape[1]) + result.T[c][:, None] * result.K[c])
        mean.append(Kstar @ A_inv @ result.U[c])
        var.append(kss + result.noise[c] - np.diag(Kstar @ (A_inv * result.T[c]) @ Kstar.T))
    return np.array(mean).T, np.array(var).T


def full_multiclass_predict(result: FullMulticlassResult, Kstar_list, kss_list):
    """p(y* = k), (n, C), by adaptive quadrature."""
    return class_probabilities(*full_multiclass_latent(result, Kstar_list, kss_list))


class RegressionResult(NamedTuple):
    """Exact posterior of f* (noise excluded) and log p(y)."""

    mean: np.ndarray  # (n,)
    var: np.ndarray  # (n,)
    log_evidence: float


def gp_regression(K, y, noise, Kstar, kss) -> RegressionResult:
    """y = f + N(0, noise): K (N, N), Kstar (n, N), kss (n,), noise a variance.   [R&W 2.25, 2.26, 2.30]"""
    A = K + noise * np.eye(len(K))
    A_inv = np.linalg.inv(A)
    log_evidence = -0.5 * y @ A_inv @ y - 0.5 * np.linalg.slogdet(A)[1] - 0.5 * len(y) * np.log(2 * np.pi)
    return RegressionResult(Kstar @ A_inv @ y, kss - np.diag(Kstar @ A_inv @ Kstar.T), float(log_evidence))
