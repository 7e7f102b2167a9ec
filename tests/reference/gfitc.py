"""GFITC: EP on the N training values under the FITC prior, with explicit N×N Gaussians.   [METHOD 4, GFITC]

    f_c ~ N(0, Q_c + diag(K_c − Q_c + s_c)),   Q = K_nm K_mm⁻¹ K_mn,   K_mm = k(Z, Z) + jitter·mean(diag)·I

(f with its noise), exact factors Θ(f_y − f_k): two sites each, on coordinate n of f_y and of f_k, so the
C−1 sites of a point on its own class share one residual. Binary: one latent, Θ(y f_n).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from .fixed_point import solve
from .gaussian import log_normaliser, moments, symmetric_inverse
from .probit import probit_derivatives
from .robust import largest_probabilities
from .sparse import SparseModel, build_model


class Steps(NamedTuple):
    """Factor i is Θ(Σ_s sign_s f_{class_s}(x_row))."""

    rows: np.ndarray  # (F,)
    classes: np.ndarray  # (F, S)
    signs: np.ndarray  # (F, S)


class GFITCResult(NamedTuple):
    """q(f_c) = N(mean, cov) at the training points, noise included."""

    log_z: float
    mean: np.ndarray  # (C, N)
    cov: np.ndarray  # (C, N, N)
    marginal_mean: np.ndarray  # (N, C)
    marginal_var: np.ndarray  # (N, C)
    tau: np.ndarray  # (N, C−1, 2): rivals ascending, last axis (own class, rival); (N, 1, 1) when binary
    nu: np.ndarray  # as tau
    prior: np.ndarray  # (C, N, N)
    X: np.ndarray
    model: SparseModel
    sweeps: int
    residual: float


def nystrom(model, c, A, B):
    """Q(A, B) = k(A, Z) K_mm⁻¹ k(Z, B)."""
    k = model.kernels[c]
    return k(A, model.Z[c]) @ np.linalg.solve(model.K[c], k(model.Z[c], B))


def fitc_prior(model, X):
    """Q + diag(K − Q + s), (C, N, N)."""
    prior = []
    for c, k in enumerate(model.kernels):
        Q = nystrom(model, c, X, X)
        prior.append(Q + np.diag(np.diag(k(X, X)) - np.diag(Q) + model.noise[c]))
    return np.array(prior)


def totals(steps: Steps, sites, C, N):
    """Sites (F, S) added up per class and point, (C, N)."""
    T = np.zeros((C, N))
    for i, n in enumerate(steps.rows):
        for s, c in enumerate(steps.classes[i]):
            T[c, n] += sites[i, s]
    return T


def natural(prior, steps, tau, nu):
    """q: prior⁻¹ + diag T (C, N, N), U (C, N); cavities: the same less one site, (F, S, N, N), (F, S, N)."""
    C, N = prior.shape[:2]
    T, U = totals(steps, tau, C, N), totals(steps, nu, C, N)
    precision = np.array([symmetric_inverse(prior[c]) + np.diag(T[c]) for c in range(C)])
    unit = np.eye(N)[steps.rows][:, None, :]
    cavity_precision = (
        precision[steps.classes] - tau[..., None, None] * unit[..., :, None] * unit[..., None, :]
    )
    return (precision, U), (cavity_precision, U[steps.classes] - nu[..., None] * unit)


def match(steps: Steps, cavity):
    """log Z (F,) and new sites τ, ν (F, S): b = Σ v\\, α = Σ ± m\\/√b, log Z = log Φ(α)."""
    at = np.arange(len(steps.rows))
    mean, cov = moments(*cavity)
    m, v = mean[at, :, steps.rows], cov[at, :, steps.rows, steps.rows]
    b = v.sum(axis=1)
    log_z, d1, d2 = probit_derivatives(np.sum(steps.signs * m, axis=1), b, 0 * b)
    d1, d2 = steps.signs * d1[:, None], d2[:, None]
    return log_z, -d2 / (1 + v * d2), (d1 - m * d2) / (1 + v * d2)


def gfitc_log_evidence(prior, steps, tau, nu) -> float:
    """Σ_c [G(q_c) − G(prior_c)] + Σ [log Z + Σ_sides G(cavity) − G(q)], G the log-normaliser in R^N."""
    q, cavity = natural(prior, steps, tau, nu)
    g = log_normaliser(*q)
    g_prior = log_normaliser(symmetric_inverse(prior), 0 * q[1])
    change = np.sum(log_normaliser(*cavity) - g[steps.classes])
    return float(np.sum(g - g_prior) + np.sum(match(steps, cavity)[0]) + change)


def run_gfitc(model, X, steps, site_shape, damping, max_sweeps, tol, accelerate) -> GFITCResult:
    """Damped parallel sweeps from empty sites to convergence."""
    X = np.asarray(X, dtype=float)
    prior = fitc_prior(model, X)

    def sweep(tau, nu):
        return match(steps, natural(prior, steps, tau, nu)[1])[1:]

    empty = np.zeros(steps.classes.shape)
    (tau, nu), sweeps, residual = solve(sweep, (empty, empty), damping, max_sweeps, tol, accelerate)
    mean, cov = moments(*natural(prior, steps, tau, nu)[0])
    log_z = gfitc_log_evidence(prior, steps, tau, nu)
    var = np.diagonal(cov, axis1=1, axis2=2).T
    tau, nu = tau.reshape(site_shape), nu.reshape(site_shape)
    return GFITCResult(log_z, mean, cov, mean.T, var, tau, nu, prior, X, model, sweeps, residual)


def gfitc(
    X,
    y,
    Z,
    kernel_per_class,
    noise,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=2000,
    tol=1e-12,
    accelerate=True,
) -> GFITCResult:
    """Multi-class GFITC; arguments as sparse_ep."""
    model = build_model(Z, kernel_per_class, noise, jitter)
    C, N = len(model.Z), len(y)
    pairs = np.array([(n, y[n], k) for n in range(N) for k in range(C) if k != y[n]], dtype=int)
    steps = Steps(pairs[:, 0], pairs[:, 1:], np.tile([1.0, -1.0], (len(pairs), 1)))
    return run_gfitc(model, X, steps, (N, C - 1, 2), damping, max_sweeps, tol, accelerate)


def binary_gfitc(
    X,
    y,
    Z,
    kernel,
    noise=1.0,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=2000,
    tol=1e-12,
    accelerate=True,
) -> GFITCResult:
    """One latent, y = ±1 (N,), Z (M, D): result with C = 1."""
    model = build_model(np.asarray(Z)[None], [kernel], noise, jitter)
    y = np.asarray(y, dtype=float)
    steps = Steps(np.arange(len(y)), np.zeros((len(y), 1), dtype=int), y[:, None])
    return run_gfitc(model, X, steps, (len(y), 1, 1), damping, max_sweeps, tol, accelerate)


def conditioned_on(result: GFITCResult, c, cross, prior_cov):
    """A Gaussian with covariance `cross` (n, N) to f_c and `prior_cov` (n, n) of its own, given q(f_c).

    A = cross·prior⁻¹:  mean A m,  covariance prior_cov − A crossᵀ + A Σ Aᵀ.
    """
    A = np.linalg.solve(result.prior[c], cross.T).T
    return A @ result.mean[c], prior_cov - A @ cross.T + A @ result.cov[c] @ A.T


def gfitc_inducing(result: GFITCResult):
    """q(u_c): mean (C, M), cov (C, M, M), to compare with sparse_ep."""
    model = result.model
    crosses = [k(model.Z[c], result.X) for c, k in enumerate(model.kernels)]
    q = [conditioned_on(result, c, cross, model.K[c]) for c, cross in enumerate(crosses)]
    return np.array([m for m, _ in q]), np.array([V for _, V in q])


def gfitc_latent(result: GFITCResult, Xstar):
    """f_c* with noise at new points: mean, variance (n, C); cov(f*, f_n) = Q(x*, x_n), var k(x*,x*) + s."""
    mean, var = [], []
    for c, k in enumerate(result.model.kernels):
        cross = nystrom(result.model, c, Xstar, result.X)
        m, V = conditioned_on(result, c, cross, k(Xstar, Xstar) + result.model.noise[c] * np.eye(len(Xstar)))
        mean.append(m)
        var.append(np.diag(V))
    return np.array(mean).T, np.array(var).T


def gfitc_predict_proba(result: GFITCResult, Xstar, adaptive=True):
    """p(y* = k), (n, C), by quadrature, not normalised."""
    return largest_probabilities(*gfitc_latent(result, Xstar), 0.0, adaptive)


def binary_gfitc_predict_proba(result: GFITCResult, Xstar):
    """p(y* = +1) = Φ(m*/√v*), (n,)."""
    mean, var = gfitc_latent(result, Xstar)
    return ndtr(mean[:, 0] / np.sqrt(var[:, 0]))
