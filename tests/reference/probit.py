"""One probit factor under a Gaussian: its integral and the derivatives."""

import math

import numpy as np
from scipy.special import erfcx, log_ndtr, roots_legendre

NODES, WEIGHTS = roots_legendre(24)
NEAR = np.array([0.01, 0.03, 0.1, 0.3, 1, 2, 4, 8, 16, 32])
SPREAD = np.concatenate([-NEAR[::-1], [0.0], NEAR])


def hazard(x):
    """φ(x)/Φ(x) = √(2/π) / erfcx(−x/√2)."""
    return math.sqrt(2 / math.pi) / erfcx(-np.asarray(x) / math.sqrt(2))


def probit_derivatives(mean, var, r):
    """Z = ∫ Φ(d/√r) N(d; m, v) dd: log Z, ∂/∂m, ∂²/∂m², each (F,).

    b = r + v,  α = m/√b,  log Z = log Φ(α),  d₁ = β/√b,  d₂ = −β(β+α)/b
    """
    b = r + var
    alpha = mean / np.sqrt(b)
    beta = hazard(alpha)
    return log_ndtr(alpha), beta / np.sqrt(b), -beta * (beta + alpha) / b


def power_derivatives(mean, var, r, power):
    """Z = ∫ Φ(d/√r)^p N(d; m, v) dd by composite Gauss–Legendre: log Z, ∂/∂m, ∂²/∂m²,
    each (F,).

    With ψ = log Φ(d/√r)^p and ⟨·⟩ the tilted average: d₁ = ⟨ψ'⟩, d₂ = ⟨ψ'² + ψ''⟩ −
    d₁². Panels in x = (d − m)/√v, broken at the scales of both the Gaussian and the
    step.
    """
    sd, step, width = (
        np.sqrt(var)[:, None],
        -(mean / np.sqrt(var))[:, None],
        np.sqrt(r / var)[:, None],
    )
    breaks = np.concatenate(
        [SPREAD + 0 * step, step + width * SPREAD, step + SPREAD], axis=1
    )
    breaks = np.sort(np.clip(breaks, -12, np.maximum(step, 0) + 12), axis=1)
    half = 0.5 * np.diff(breaks, axis=1)[:, :, None]
    x = (breaks[:, :-1, None] + half * (1 + NODES)).reshape(len(mean), -1)
    measure = (half * WEIGHTS).reshape(len(mean), -1)

    z = (mean[:, None] + sd * x) / np.sqrt(r)[:, None]
    p = np.asarray(power)[:, None]
    log_integrand = p * log_ndtr(z) - 0.5 * x**2 - 0.5 * math.log(2 * math.pi)
    top = log_integrand.max(axis=1, keepdims=True)
    tilted = measure * np.exp(log_integrand - top)
    total = tilted.sum(axis=1)
    beta = hazard(z)
    slope, bend = p * beta / np.sqrt(r)[:, None], -p * beta * (beta + z) / r[:, None]
    d1 = (tilted * slope).sum(axis=1) / total
    d2 = (tilted * (slope**2 + bend)).sum(axis=1) / total - d1**2
    return top[:, 0] + np.log(total), d1, d2


def factor_derivatives(mean, var, r, exponent):
    """Φ^exponent for every factor: the closed form at 1, quadrature elsewhere.

    Inputs and outputs (F,).
    """
    log_z, d1, d2 = probit_derivatives(mean, var, r)
    i = np.flatnonzero(exponent != 1)
    if len(i):
        log_z[i], d1[i], d2[i] = power_derivatives(mean[i], var[i], r[i], exponent[i])
    return log_z, d1, d2
