"""Sparse EP in u-space: u_c ~ N(0, K_c), M×M natural parameters, every cavity by an explicit inverse."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from .fixed_point import solve
from .gaussian import log_normaliser, moments, outer, symmetric_inverse
from .probit import class_probabilities, factor_derivatives


class SparseModel(NamedTuple):
    """Inducing inputs, kernels and noises; K = k(Z, Z) + jitter·mean(diag k(Z, Z))·I."""

    Z: np.ndarray  # (C, M, D)
    kernels: list[Callable]  # C of them
    noise: np.ndarray  # (C,)
    K: np.ndarray  # (C, M, M)


class Factors(NamedTuple):
    """Factor i is Φ(Σ_s sign_s t_s / √Σ_s r_s)^ω, t_s = υ_s·u_s: one latent per side, two sides in a pair."""

    rows: np.ndarray  # (F,)     which point
    classes: np.ndarray  # (F, S)   which latent
    signs: np.ndarray  # (F, S)
    removed: np.ndarray  # (F,)     share of the site taken out for the cavity
    exponent: np.ndarray  # (F,)     power of Φ that is matched
    upsilon: np.ndarray  # (F, S, M)
    r: np.ndarray  # (F, S)


class State(NamedTuple):
    """Natural parameters of q and of every cavity."""

    precision: np.ndarray  # (C, M, M)
    h: np.ndarray  # (C, M)
    cavity_precision: np.ndarray  # (F, S, M, M)
    cavity_h: np.ndarray  # (F, S, M)


class EPResult(NamedTuple):
    """q(u_c) = N(mean, cov); tau, nu are totals per row (all its copies when a row has a weight)."""

    log_z: float
    mean: np.ndarray  # (C, M)
    cov: np.ndarray  # (C, M, M)
    tau: np.ndarray  # (N, C−1, 2): rivals ascending, last axis (own class, rival); (N,) when binary
    nu: np.ndarray  # as tau
    model: SparseModel
    factors: Factors
    sweeps: int
    residual: float  # how far one undamped sweep would still move the sites, relative to their size


def build_model(Z, kernels, noise, jitter) -> SparseModel:
    """K_c = k_c(Z_c, Z_c) + jitter · mean(diag) · I."""
    Z = np.asarray(Z, dtype=float)
    bare = [np.asarray(k(z, z), dtype=float) for k, z in zip(kernels, Z, strict=True)]
    K = np.stack([B + jitter * np.mean(np.diag(B)) * np.eye(len(B)) for B in bare])
    return SparseModel(Z, list(kernels), np.broadcast_to(np.asarray(noise, dtype=float), (len(Z),)), K)


def project(model: SparseModel, X):
    """f_c(x) | u_c ~ N(υ·u_c, r): υ = K⁻¹k(Z, x) (C, n, M), r = k(x,x) + s − kᵀK⁻¹k (C, n)."""
    upsilon, r = [], []
    for c, kernel in enumerate(model.kernels):
        k_zx = kernel(model.Z[c], X)
        upsilon.append(np.linalg.solve(model.K[c], k_zx).T)  # ten times closer than K⁻¹ @ k
        r.append(np.diag(kernel(X, X)) + model.noise[c] - np.sum(k_zx.T * upsilon[c], axis=1))
    return np.array(upsilon), np.array(r)


def weighted_powers(weights, power):
    """ω copies of a row at power p: remove p·min(1, 1/ω) of their joint site, match Φ^(p·min(1, ω))."""
    removed = power * np.minimum(1, 1 / np.maximum(weights, 1))
    return removed, power * np.minimum(1, weights)


def build_factors(model, X, rows, classes, signs, weights, power) -> Factors:
    """Gather υ and r of each side of each factor."""
    upsilon, r = project(model, X)
    omega = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    removed, exponent = weighted_powers(omega[rows], power)
    at = rows[:, None]
    return Factors(rows, classes, signs, removed, exponent, upsilon[classes, at], r[classes, at])


def pair_factors(model, X, y, weights=None, power=1.0) -> Factors:
    """Every (n, k), k ≠ y_n: n slowest, k ascending; sides (y_n, k) with signs (+1, −1)."""
    C = len(model.Z)
    pairs = np.array([(n, y[n], k) for n in range(len(y)) for k in range(C) if k != y[n]], dtype=int).reshape(
        -1, 3
    )
    signs = np.tile([1.0, -1.0], (len(pairs), 1))
    return build_factors(model, X, pairs[:, 0], pairs[:, 1:], signs, weights, power)


def binary_factors(model, X, y, weights=None, power=1.0) -> Factors:
    """One factor Φ(y t/√r) per point on the only latent; y = ±1."""
    y = np.asarray(y, dtype=float)
    if not np.all(np.abs(y) == 1):
        raise ValueError(f"binary labels are -1 and +1, got {np.unique(y)}")
    return build_factors(
        model, X, np.arange(len(y)), np.zeros((len(y), 1), dtype=int), y[:, None], weights, power
    )


def site_sums(factors: Factors, tau, nu, C):
    """P_c = Σ τ υυᵀ (C, M, M) and h_c = Σ ν υ (C, M) over the sites (F, S) of class c."""
    M = factors.upsilon.shape[-1]
    P, h = np.zeros((C, M, M)), np.zeros((C, M))
    np.add.at(P, factors.classes, tau[..., None, None] * outer(factors.upsilon))
    np.add.at(h, factors.classes, nu[..., None] * factors.upsilon)
    return P, h


def build_state(model, factors, tau, nu) -> State:
    """Λ_c = K_c⁻¹ + Σ τ υυᵀ; cavity Λ\\ = Λ_c − pτ υυᵀ, h\\ = h_c − pν υ, M×M for every site."""
    P, h = site_sums(factors, tau, nu, len(model.Z))
    precision = symmetric_inverse(model.K) + P
    p = factors.removed[:, None]
    cavity_precision = precision[factors.classes] - (p * tau)[..., None, None] * outer(factors.upsilon)
    cavity_h = h[factors.classes] - (p * nu)[..., None] * factors.upsilon
    return State(precision, h, cavity_precision, cavity_h)


def tilt(factors: Factors, cavity):
    """Cavities (mean (F, S, M), cov (F, S, M, M)) of u meet the factors.

    Returns log Z (F,), then d₁, d₂, m\\, v\\ of t = υ·u, each (F, S).
    """
    mean = np.einsum("fsm,fsm->fs", factors.upsilon, cavity[0])
    var = np.einsum("fsm,fsmk,fsk->fs", factors.upsilon, cavity[1], factors.upsilon)
    total = np.sum(factors.signs * mean, axis=1), var.sum(axis=1), factors.r.sum(axis=1)
    log_z, d1, d2 = factor_derivatives(*total, factors.exponent)
    return log_z, factors.signs * d1[:, None], d2[:, None] + 0 * var, mean, var


def new_sites(factors: Factors, cavity):
    """τ = −d₂/(1 + v\\d₂)/p,  ν = (d₁ − m\\d₂)/(1 + v\\d₂)/p, each (F, S)."""
    _, d1, d2, mean, var = tilt(factors, cavity)
    scale = factors.removed[:, None] * (1 + var * d2)
    return -d2 / scale, (d1 - mean * d2) / scale


def log_evidence(model, factors, tau, nu) -> float:
    """Σ_c [G(q_c) − G(prior_c)] + Σ (1/p) [log Z + Σ_sides G(cavity) − G(q)], G the log-normaliser in R^M."""
    state = build_state(model, factors, tau, nu)
    g = log_normaliser(state.precision, state.h)
    g_prior = log_normaliser(symmetric_inverse(model.K), 0 * state.h)
    g_cavity = log_normaliser(state.cavity_precision, state.cavity_h)
    log_z = tilt(factors, moments(state.cavity_precision, state.cavity_h))[0]
    log_s = (log_z + np.sum(g_cavity - g[factors.classes], axis=1)) / factors.removed
    return float(np.sum(g - g_prior) + np.sum(log_s))


def run_ep(model, factors, site_shape, damping, max_sweeps, tol, accelerate) -> EPResult:
    """Parallel sweeps from empty sites to convergence, then q and its evidence."""

    def sweep(tau, nu):
        state = build_state(model, factors, tau, nu)
        return new_sites(factors, moments(state.cavity_precision, state.cavity_h))

    empty = np.zeros(factors.r.shape)
    (tau, nu), sweeps, residual = solve(sweep, (empty, empty), damping, max_sweeps, tol, accelerate)
    state = build_state(model, factors, tau, nu)
    mean, cov = moments(state.precision, state.h)
    log_z = log_evidence(model, factors, tau, nu)
    tau, nu = tau.reshape(site_shape), nu.reshape(site_shape)
    return EPResult(log_z, mean, cov, tau, nu, model, factors, sweeps, residual)


def sparse_ep(
    X,
    y,
    Z,
    kernel_per_class,
    noise,
    jitter=1e-6,
    weights=None,
    damping=0.5,
    max_sweeps=2000,
    tol=1e-12,
    power=1.0,
    accelerate=True,
) -> EPResult:
    """Multi-class sparse EP, pairwise probit factors.   [METHOD 4, 5]

    X (N, D), y (N,) in 0..C−1, Z (C, M, D), kernel_per_class C callables k(A, B), noise (C,) or scalar,
    weights (N,), power of power EP. damping is ρ in (1−ρ)·old + ρ·new.
    accelerate extrapolates towards the same fixed point; accelerate=False, tol=0, max_sweeps=k makes
    exactly k plain sweeps from empty sites.
    """
    model = build_model(Z, kernel_per_class, noise, jitter)
    factors = pair_factors(model, X, y, weights, power)
    return run_ep(model, factors, (len(y), len(model.Z) - 1, 2), damping, max_sweeps, tol, accelerate)


def binary_sparse_ep(
    X,
    y,
    Z,
    kernel,
    noise=1.0,
    jitter=1e-6,
    weights=None,
    damping=0.5,
    max_sweeps=2000,
    tol=1e-12,
    power=1.0,
    accelerate=True,
) -> EPResult:
    """One latent, y = ±1 (N,), Z (M, D), one kernel, scalar noise; the rest as sparse_ep.   [METHOD 4]

    Result: mean (1, M), cov (1, M, M), tau and nu (N,).
    """
    model = build_model(np.asarray(Z)[None], [kernel], noise, jitter)
    factors = binary_factors(model, X, y, weights, power)
    return run_ep(model, factors, (len(y),), damping, max_sweeps, tol, accelerate)


def site_totals(result: EPResult):
    """T_nc, U_nc: the sites of point n on class c added up, each (N, C)."""
    f, N, C = result.factors, len(result.tau), len(result.model.Z)
    T, U = np.zeros((N, C)), np.zeros((N, C))
    np.add.at(T, (f.rows[:, None], f.classes), result.tau.reshape(f.r.shape))
    np.add.at(U, (f.rows[:, None], f.classes), result.nu.reshape(f.r.shape))
    return T, U


def latent(result, Xstar):
    """f_c* ~ N(υ*·mean_c, r* + υ*ᵀ cov_c υ*), noise included: mean, variance (n, C)."""
    upsilon, r = project(result.model, Xstar)
    mean = np.einsum("cnm,cm->nc", upsilon, result.mean)
    return mean, r.T + np.einsum("cnm,cmk,cnk->nc", upsilon, result.cov, upsilon)


def predict_proba(result, Xstar):
    """p(y* = k), (n, C): adaptive quadrature, each class on its own, not normalised."""
    return class_probabilities(*latent(result, Xstar))


def binary_predict_proba(result, Xstar):
    """p(y* = +1) = Φ(m*/√v*), (n,)."""
    mean, var = latent(result, Xstar)
    return ndtr(mean[:, 0] / np.sqrt(var[:, 0]))
