"""One latent, y = ±1: E_q log p(y|f) with derivatives for `bound` and `maximise` of variational.py.

Data: Whitened(a (N, 1, M), r (N, 1), y (N,) in ±1); t ~ N(m, v), f ~ N(m, v + r).

    robust-max  log(1−ε/2)·S + log(ε/2)·(1−S),  S = Φ(y m/√(v+r))
    probit      E log Φ(y t/√r)
    logistic    E log σ(y f)
"""

import math

import numpy as np
from scipy.special import expit, log_expit, log_ndtr, ndtr

from .probit import hazard
from .tilted import bend
from .variational import Expected, Whitened, gaussian_panels


def binary_expected_robust_max(data: Whitened, m, v, epsilon) -> Expected:
    """∂S/∂m = y φ(α)/√V,  ∂S/∂V = −½ α φ(α)/V,  V = v + r."""
    miss, gain = math.log(epsilon / 2), math.log(1 - epsilon / 2) - math.log(epsilon / 2)
    V, y = v + data.r, data.y[:, None]
    alpha = y * m / np.sqrt(V)
    density = np.exp(-0.5 * alpha**2) / math.sqrt(2 * math.pi)
    value = float(np.sum(miss + gain * ndtr(alpha)))
    return Expected(value, gain * y * density / np.sqrt(V), -0.5 * gain * alpha * density / V)


def averaged(data: Whitened, m, var, width, log_p, slope, curvature) -> Expected:
    """Σ_n E log p(y g), g ~ N(m, var), with E slope and ½E curvature; width (N, 1) of the kink at 0."""
    value, dm, dv = 0.0, np.zeros(m.shape), np.zeros(m.shape)
    for n, y in enumerate(data.y):
        sd = math.sqrt(var[n, 0])
        x, weight = gaussian_panels(-m[n, 0] / sd, width[n, 0] / sd)
        g = y * (m[n, 0] + sd * x)
        value += weight @ log_p(g, n)
        dm[n], dv[n] = y * (weight @ slope(g, n)), 0.5 * (weight @ curvature(g, n))
    return Expected(float(value), dm, dv)


def binary_expected_probit(data: Whitened, m, v) -> Expected:
    """E log Φ(y t/√r)."""
    root = np.sqrt(data.r[:, 0])
    return averaged(
        data,
        m,
        v,
        np.sqrt(data.r),
        lambda g, n: log_ndtr(g / root[n]),
        lambda g, n: hazard(g / root[n]) / root[n],
        lambda g, n: -bend(g / root[n]) / root[n] ** 2,
    )


def binary_expected_logistic(data: Whitened, m, v) -> Expected:
    """E log σ(y f)."""
    return averaged(
        data,
        m,
        v + data.r,
        np.ones(m.shape),
        lambda g, n: log_expit(g),
        lambda g, n: expit(-g),
        lambda g, n: -expit(g) * expit(-g),
    )
