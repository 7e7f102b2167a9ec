"""EP and SEP with the robust likelihood Z_n = (1−ε) P(f_y largest) + ε/C: one site per (point, latent).

u-space as in sparse.py: f_c(x) | u_c ~ N(υ·u_c, r), M×M natural parameters, cavities by explicit inverses.
Cavity m\\ = υ·μ\\, V = υᵀΣ\\υ + r; derivatives from robust.py; τ = −d₂/(1+v\\d₂), ν = (d₁−m\\d₂)/(1+v\\d₂).
τ < 0 is genuine for ε > 0. Binary: one latent, y = ±1, Z = (1−ε)Φ(y m\\/√(r+v\\)) + ε/2.   [METHOD 4, 5]
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from .fixed_point import solve
from .gaussian import log_normaliser, moments, outer, symmetric_inverse
from .probit import hazard
from .robust import largest_probabilities, mix, robust_moments
from .sparse import SparseModel, build_model, latent, project
from .tilted import bend


class Points(NamedTuple):
    """What the sites see: point n, latent c."""

    y: np.ndarray  # (N,) class, or ±1 when there is one latent
    upsilon: np.ndarray  # (N, C, M)
    r: np.ndarray  # (N, C)
    epsilon: float
    adaptive: bool  # scipy's quad instead of fixed panels


class RobustResult(NamedTuple):
    """q(u_c) = N(mean, cov) with precision K⁻¹ + P and natural mean h; u-space (whitened: LᵀPL, Lᵀh)."""

    log_z: float
    mean: np.ndarray  # (C, M)
    cov: np.ndarray  # (C, M, M)
    P: np.ndarray  # (C, M, M)
    h: np.ndarray  # (C, M)
    tau: np.ndarray  # (N, C) sites of EP; of SEP: what a sweep would add
    nu: np.ndarray  # (N, C)
    epsilon: float
    model: SparseModel
    sweeps: int
    residual: float


def gather_points(model, X, y, epsilon, adaptive) -> Points:
    """υ and r of every (n, c)."""
    upsilon, r = project(model, np.asarray(X, dtype=float))
    return Points(np.asarray(y), np.swapaxes(upsilon, 0, 1), r.T, float(epsilon), adaptive)


def binary_moments(y, mean, var, epsilon):
    """log Z, d₁, d₂ of Z = (1−ε)Φ(y m/√V) + ε/2; d₁, d₂ (1,)."""
    alpha = y * mean / np.sqrt(var)
    first, second = y * hazard(alpha) / np.sqrt(var), -bend(alpha) / var
    log_z, kappa, _ = mix(float(log_ndtr(alpha[0])), epsilon, 2)
    return log_z, kappa * first, kappa * second + kappa * (1 - kappa) * first**2


def tilt_point(points: Points, n, mean, var):
    """log Z_n, d₁ (C,), d₂ (C,) from the cavity marginals of f_n, r included; NaN off the domain."""
    if not (np.all(np.isfinite(mean)) and np.all(var > 0)):
        return math.nan, np.full(len(mean), math.nan), np.full(len(mean), math.nan)
    if len(mean) == 1:
        return binary_moments(points.y[n], mean, var, points.epsilon)
    z = robust_moments(points.y[n], mean, var, points.epsilon, points.adaptive)
    return z.log_z, z.d1, z.d2


def tilt(points: Points, cavity):
    """Cavities (mean (N, C, M), cov (N, C, M, M)) of u: log Z (N,), then new τ, ν (N, C)."""
    mean = np.einsum("ncm,ncm->nc", points.upsilon, cavity[0])
    var = np.einsum("ncm,ncmk,nck->nc", points.upsilon, cavity[1], points.upsilon)
    log_z, tau, nu = np.zeros(len(mean)), np.zeros(mean.shape), np.zeros(mean.shape)
    for n in range(len(mean)):
        log_z[n], d1, d2 = tilt_point(points, n, mean[n], var[n] + points.r[n])
        tau[n] = -d2 / (1 + var[n] * d2)
        nu[n] = (d1 - mean[n] * d2) / (1 + var[n] * d2)
    return log_z, tau, nu


def site_sums(points: Points, tau, nu):
    """P_c = Σ_n τ υυᵀ (C, M, M), h_c = Σ_n ν υ (C, M)."""
    return np.einsum("nc,ncmk->cmk", tau, outer(points.upsilon)), np.einsum("nc,ncm->cm", nu, points.upsilon)


def own_cavities(model, points, tau, nu):
    """Natural parameters Λ_c − τ υυᵀ (N, C, M, M) and h_c − ν υ (N, C, M)."""
    P, h = site_sums(points, tau, nu)
    precision = symmetric_inverse(model.K) + P
    return precision - tau[..., None, None] * outer(points.upsilon), h - nu[..., None] * points.upsilon


def robust_log_evidence(model, points, tau, nu) -> float:
    """Σ_c [G(q_c) − G(prior_c)] + Σ_n [log Z_n + Σ_c G(cavity_nc) − G(q_c)], G the log-normaliser in R^M."""
    P, h = site_sums(points, tau, nu)
    prior = symmetric_inverse(model.K)
    g, g_prior = log_normaliser(prior + P, h), log_normaliser(prior, 0 * h)
    cavity = own_cavities(model, points, tau, nu)
    log_z = tilt(points, moments(*cavity))[0]
    return float(np.sum(g - g_prior) + np.sum(log_z) + np.sum(log_normaliser(*cavity) - g))


def run_robust_ep(model, points, damping, max_sweeps, tol, accelerate) -> RobustResult:
    """Parallel sweeps from empty sites to convergence, then q and its evidence."""

    def sweep(tau, nu):
        return tilt(points, moments(*own_cavities(model, points, tau, nu)))[1:]

    empty = np.zeros(points.r.shape)
    (tau, nu), sweeps, residual = solve(sweep, (empty, empty), damping, max_sweeps, tol, accelerate)
    P, h = site_sums(points, tau, nu)
    mean, cov = moments(symmetric_inverse(model.K) + P, h)
    log_z = robust_log_evidence(model, points, tau, nu)
    return RobustResult(log_z, mean, cov, P, h, tau, nu, points.epsilon, model, sweeps, residual)


def shared_cavity(model, points, P, h):
    """K⁻¹ + (1 − 1/N) P_c, (1 − 1/N) h_c, as n_c = N factors touch a class: (mean, cov) of every (n, c)."""
    N = len(points.r)
    mean, cov = moments(symmetric_inverse(model.K) + (1 - 1 / N) * P, (1 - 1 / N) * h)
    return np.broadcast_to(mean, (N, *mean.shape)), np.broadcast_to(cov, (N, *cov.shape))


def tied_log_evidence(model, points, P, h) -> float:
    """Σ_c [g_c + N (g\\_c − g_c)] + Σ_n log Z_n, g the log-normaliser less the prior's.   [METHOD 5]"""
    N, prior = len(points.r), symmetric_inverse(model.K)
    g_prior = log_normaliser(prior, 0 * h)
    g = log_normaliser(prior + P, h) - g_prior
    g_cavity = log_normaliser(prior + (1 - 1 / N) * P, (1 - 1 / N) * h) - g_prior
    log_z = tilt(points, shared_cavity(model, points, P, h))[0]
    return float(np.sum(g + N * (g_cavity - g)) + np.sum(log_z))


def select(points: Points, rows) -> Points:
    """Some of the points."""
    return points._replace(y=points.y[rows], upsilon=points.upsilon[rows], r=points.r[rows])


def run_robust_sep(model, points, damping, max_sweeps, tol, batches, accelerate) -> RobustResult:
    """P_c ← (1 − ρ|B|/N) P_c + ρ Σ_B τ_new υυᵀ, same for h, batch after batch, from P = 0, h = 0."""
    N, C, M = points.upsilon.shape
    parts = [np.arange(N)] if batches is None else [np.asarray(rows) for rows in batches]

    def sweep(P, h):
        for rows in parts:
            batch, cavity = select(points, rows), shared_cavity(model, points, P, h)
            P_new, h_new = site_sums(batch, *tilt(batch, (cavity[0][rows], cavity[1][rows]))[1:])
            keep = 1 - damping * len(rows) / N
            P, h = keep * P + damping * P_new, keep * h + damping * h_new
        return P, h

    start = np.zeros((C, M, M)), np.zeros((C, M))
    (P, h), sweeps, residual = solve(sweep, start, 1.0, max_sweeps, damping * tol, accelerate)
    mean, cov = moments(symmetric_inverse(model.K) + P, h)
    _, tau, nu = tilt(points, shared_cavity(model, points, P, h))
    log_z = tied_log_evidence(model, points, P, h)
    return RobustResult(log_z, mean, cov, P, h, tau, nu, points.epsilon, model, sweeps, residual / damping)


def robust_ep(
    X,
    y,
    Z,
    kernel_per_class,
    noise,
    epsilon=0.0,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=1000,
    tol=1e-11,
    accelerate=True,
    adaptive=False,
) -> RobustResult:
    """Multi-class EP with the robust likelihood; arguments as sparse_ep, epsilon in [0, 1)."""
    model = build_model(Z, kernel_per_class, noise, jitter)
    points = gather_points(model, X, y, epsilon, adaptive)
    return run_robust_ep(model, points, damping, max_sweeps, tol, accelerate)


def binary_robust_ep(
    X,
    y,
    Z,
    kernel,
    noise=1.0,
    epsilon=0.0,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=1000,
    tol=1e-11,
    accelerate=True,
) -> RobustResult:
    """One latent, y = ±1 (N,), Z (M, D): result with C = 1."""
    model = build_model(np.asarray(Z)[None], [kernel], noise, jitter)
    points = gather_points(model, X, y, epsilon, False)
    return run_robust_ep(model, points, damping, max_sweeps, tol, accelerate)


def robust_sep(
    X,
    y,
    Z,
    kernel_per_class,
    noise,
    epsilon=0.0,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=1000,
    tol=1e-11,
    batches=None,
    accelerate=True,
    adaptive=False,
) -> RobustResult:
    """Multi-class SEP with the robust likelihood; batches: lists of rows, None for one batch of all."""
    model = build_model(Z, kernel_per_class, noise, jitter)
    points = gather_points(model, X, y, epsilon, adaptive)
    return run_robust_sep(model, points, damping, max_sweeps, tol, batches, accelerate)


def binary_robust_sep(
    X,
    y,
    Z,
    kernel,
    noise=1.0,
    epsilon=0.0,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=1000,
    tol=1e-11,
    batches=None,
    accelerate=True,
) -> RobustResult:
    """SEP with one latent, y = ±1."""
    model = build_model(np.asarray(Z)[None], [kernel], noise, jitter)
    points = gather_points(model, X, y, epsilon, False)
    return run_robust_sep(model, points, damping, max_sweeps, tol, batches, accelerate)


def robust_predict_proba(result: RobustResult, Xstar, adaptive=True):
    """(1−ε) p(y* = k) + ε/C, (n, C), by quadrature, not normalised."""
    return largest_probabilities(*latent(result, Xstar), result.epsilon, adaptive)


def binary_robust_predict_proba(result: RobustResult, Xstar):
    """(1−ε) Φ(m*/√v*) + ε/2 = p(y* = +1), (n,)."""
    mean, var = latent(result, Xstar)
    return (1 - result.epsilon) * np.exp(log_ndtr(mean[:, 0] / np.sqrt(var[:, 0]))) + result.epsilon / 2
