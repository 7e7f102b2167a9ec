"""Power EP on probit factors Φ(d/√R)^p, one factor after the other, explicit M×M cavities.   [METHOD 4, 5]

Pairs: d = t_y − t_k, R = r_y + r_k. Binary: d = y t, R = r. t = υ·u, u-space as in sparse.py.

    cavity Λ\\ = Λ − pτυυᵀ, h\\ = h − pνυ       Z_p = ∫ Φ(d/√R)^p N(d; Σ ± m\\, Σ v\\) dd
    τ = −d₂/(p(1+v\\d₂)),  ν = (d₁ − m\\d₂)/(p(1+v\\d₂))
    log s̃ = (1/p)[log Z_p + Σ_sites (½ log(v\\/v) + ½ m\\²/v\\ − ½ m²/v)]

Independent of sparse_ep(power=p): the integral by mode, ends and panels (tilted.py), log s̃ as scalars.
"""

from typing import NamedTuple

import numpy as np

from .fixed_point import solve
from .gaussian import log_normaliser, moments, outer, symmetric_inverse
from .sparse import Factors, SparseModel, binary_factors, build_model, pair_factors
from .tilted import log_integral, mean_derivatives, tilt


class PowerMoments(NamedTuple):
    """log Z_p and its derivatives in the mean of d."""

    log_z: float
    d1: float
    d2: float


class PowerResult(NamedTuple):
    """q(u_c) = N(mean, cov); sites tau, nu at full (not p-th) power."""

    log_z: float
    mean: np.ndarray  # (C, M)
    cov: np.ndarray  # (C, M, M)
    tau: np.ndarray  # (N, C−1, 2): rivals ascending, last axis (own class, rival); (N,) when binary
    nu: np.ndarray  # as tau
    power: float
    model: SparseModel
    factors: Factors
    sweeps: int
    residual: float


def power_moments(mean, var, r, power, adaptive=True) -> PowerMoments:
    """Z_p = ∫ Φ(d/√r)^p N(d; mean, var) dd for one factor; adaptive: scipy's quad, else fixed panels."""
    if not (np.isfinite(mean) and var > 0):
        return PowerMoments(np.nan, np.nan, np.nan)
    t = tilt(mean, var, [0.0], [r], power)
    return PowerMoments(log_integral(t, adaptive), *mean_derivatives(t, adaptive))


def posterior_naturals(model, factors, tau, nu):
    """Λ_c = K_c⁻¹ + Σ τυυᵀ (C, M, M), h_c = Σ νυ (C, M)."""
    precision = symmetric_inverse(model.K)
    h = np.zeros(precision.shape[:2])
    for i, classes in enumerate(factors.classes):
        for s, c in enumerate(classes):
            precision[c] += tau[i, s] * outer(factors.upsilon[i, s])
            h[c] += nu[i, s] * factors.upsilon[i, s]
    return precision, h


def scalar_moments(upsilon, precision, h):
    """Mean and variance of υ·u."""
    mean, cov = moments(precision, h)
    return upsilon @ mean, upsilon @ cov @ upsilon


def cavity_of(factors, i, s, precision, h, tau, nu, power):
    """m\\, v\\ of side s of factor i."""
    c, upsilon = factors.classes[i, s], factors.upsilon[i, s]
    left = precision[c] - power * tau[i, s] * outer(upsilon), h[c] - power * nu[i, s] * upsilon
    return scalar_moments(upsilon, *left)


def tilt_factor(factors, i, precision, h, tau, nu, power, adaptive):
    """PowerMoments of factor i, and the cavities m\\, v\\ (S,) of its sides."""
    sides = range(factors.classes.shape[1])
    m, v = np.array([cavity_of(factors, i, s, precision, h, tau, nu, power) for s in sides]).T
    return power_moments(factors.signs[i] @ m, v.sum(), factors.r[i].sum(), power, adaptive), m, v


def power_log_evidence(model, factors, tau, nu, power, adaptive=False) -> float:
    """Σ_c [G(q_c) − G(prior_c)] + Σ log s̃."""
    precision, h = posterior_naturals(model, factors, tau, nu)
    total = np.sum(
        log_normaliser(precision, h) - log_normaliser(symmetric_inverse(model.K), np.zeros_like(h))
    )
    for i, classes in enumerate(factors.classes):
        z, m_cav, v_cav = tilt_factor(factors, i, precision, h, tau, nu, power, adaptive)
        total += z.log_z / power
        for s, c in enumerate(classes):
            m, v = scalar_moments(factors.upsilon[i, s], precision[c], h[c])
            change = np.log(v_cav[s] / v) + m_cav[s] ** 2 / v_cav[s] - m**2 / v
            total += 0.5 * change / power
    return float(total)


def run_power_ep(
    model, factors, site_shape, power, damping, max_sweeps, tol, accelerate, adaptive
) -> PowerResult:
    """Damped parallel sweeps from empty sites to convergence."""

    def sweep(tau, nu):
        new_tau, new_nu = np.zeros(tau.shape), np.zeros(nu.shape)
        precision, h = posterior_naturals(model, factors, tau, nu)
        for i in range(len(tau)):
            z, m, v = tilt_factor(factors, i, precision, h, tau, nu, power, adaptive)
            new_tau[i] = -z.d2 / (power * (1 + v * z.d2))
            new_nu[i] = (factors.signs[i] * z.d1 - m * z.d2) / (power * (1 + v * z.d2))
        return new_tau, new_nu

    empty = np.zeros(factors.r.shape)
    (tau, nu), sweeps, residual = solve(sweep, (empty, empty), damping, max_sweeps, tol, accelerate)
    mean, cov = moments(*posterior_naturals(model, factors, tau, nu))
    log_z = power_log_evidence(model, factors, tau, nu, power, adaptive)
    tau, nu = tau.reshape(site_shape), nu.reshape(site_shape)
    return PowerResult(log_z, mean, cov, tau, nu, power, model, factors, sweeps, residual)


def power_ep(
    X,
    y,
    Z,
    kernel_per_class,
    noise,
    power,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=1000,
    tol=1e-11,
    accelerate=True,
    adaptive=False,
) -> PowerResult:
    """Multi-class power EP, 0 < power ≤ 1; arguments as sparse_ep. Then sparse.predict_proba(result, X)."""
    model = build_model(Z, kernel_per_class, noise, jitter)
    factors, shape = pair_factors(model, X, y), (len(y), len(model.Z) - 1, 2)
    return run_power_ep(model, factors, shape, power, damping, max_sweeps, tol, accelerate, adaptive)


def binary_power_ep(
    X,
    y,
    Z,
    kernel,
    noise=1.0,
    power=1.0,
    jitter=1e-6,
    damping=0.5,
    max_sweeps=1000,
    tol=1e-11,
    accelerate=True,
    adaptive=False,
) -> PowerResult:
    """One latent, y = ±1 (N,), Z (M, D); then sparse.binary_predict_proba(result, X)."""
    model = build_model(np.asarray(Z)[None], [kernel], noise, jitter)
    factors = binary_factors(model, X, y)
    return run_power_ep(model, factors, (len(y),), power, damping, max_sweeps, tol, accelerate, adaptive)
