"""The likelihood "y is the largest" under independent Gaussians, and its robust form.
[METHOD 4, REP]

    S = P(f_y largest) = ∫ N(f; m_y, V_y) Π_{c≠y} Φ(z_c) df,   z_c = (f − m_c)/√V_c,   Z = (1−ε) S + ε/C

With ⟨·⟩ the average under the normalised integrand, s' = S'/S and κ = (1−ε)S/Z:

    class y:  s'_y = ⟨f−m_y⟩/V_y             S''_y/S = ⟨(f−m_y)²⟩/V_y² − 1/V_y
    rival c:  s'_c = −⟨φ(z_c)/Φ(z_c)⟩/√V_c   S''_c/S = −⟨z_c φ(z_c)/Φ(z_c)⟩/V_c
    d₁ = ∂log Z/∂m = κ s',  d₂ = ∂²log Z/∂m² = κ S''/S − d₁²,  ∂log Z/∂V = ½ κ S''/S,
    ∂log Z/∂ε = (1/C − S)/Z

d₂ is computed centred, κ [S''/S − s'²] + κ(1−κ) s'², because S''/S and s'² are 1e16 in
the tails and their difference is not: S''_y/S − s'_y² = Var(f)/V_y² − 1/V_y,  S''_c/S −
s'_c² = [Var(h_c) − ⟨h_c(h_c+z_c)⟩]/V_c.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from .tilted import averages, log_integral, mean_derivatives, tilt


class RobustMoments(NamedTuple):
    """log S, log Z and the derivatives of log Z for one point."""

    log_s: float
    log_z: float
    d1: np.ndarray  # (C,) ∂/∂m_c
    d2: np.ndarray  # (C,) ∂²/∂m_c²
    dv: np.ndarray  # (C,) ∂/∂V_c
    depsilon: float  # ∂/∂ε


def rivals_of(y, C):
    """The classes other than y, ascending."""
    return np.array([c for c in range(C) if c != y])


def integrand_of(y, mean, var):
    """N(f; m_y, V_y) Π_{c≠y} Φ(z_c) as a Tilted."""
    mean, var = np.asarray(mean, dtype=float), np.asarray(var, dtype=float)
    others = rivals_of(y, len(mean))
    return tilt(mean[y], var[y], mean[others], var[others])


def log_largest(y, mean, var, adaptive=True) -> float:
    """log S(y), right to 1e-11 + 1e-14·|log S|; mean, var (C,). adaptive=False: fixed
    panels, faster.
    """
    return log_integral(integrand_of(y, mean, var), adaptive)


def log_robust(y, mean, var, epsilon, adaptive=True) -> float:
    """log Z = log[(1−ε) S + ε/C]."""
    return mix(log_largest(y, mean, var, adaptive), epsilon, len(mean))[0]


def mix(log_s, epsilon, C):
    """log Z, κ = (1−ε)S/Z and ∂log Z/∂ε = (1/C − S)/Z, from log S."""
    if epsilon == 0:
        log_z, kappa = log_s, 1.0
    else:
        log_z = float(np.logaddexp(math.log1p(-epsilon) + log_s, math.log(epsilon / C)))
        kappa = math.exp(math.log1p(-epsilon) + log_s - log_z)
    with np.errstate(
        over="ignore"
    ):  # ε = 0 and S below 1e-308: the slope in ε is infinite in float64
        return log_z, kappa, float(np.exp(-math.log(C) - log_z) - np.exp(log_s - log_z))


def step_derivatives(t, y, C, adaptive=True):
    """s', S''/S − s'² and S''/S of S, each (C,), from its integrand."""
    first, second, raw = np.zeros(C), np.zeros(C), np.zeros(C)
    first[y], second[y] = mean_derivatives(t, adaptive)
    raw[y] = second[y] + first[y] ** 2
    at = range(C - 1)
    h = averages(t, [lambda p, i=i: p.h[..., i] for i in at], adaptive)
    zh = averages(t, [lambda p, i=i: p.z[..., i] * p.h[..., i] for i in at], adaptive)
    bent = averages(t, [lambda p, i=i: p.bend[..., i] for i in at], adaptive)
    spread = averages(
        t, [lambda p, i=i: (p.h[..., i] - h[i]) ** 2 for i in at], adaptive
    )
    for i, c in enumerate(rivals_of(y, C)):
        first[c] = -h[i] / t.sd[i]
        second[c] = (spread[i] - bent[i]) / t.sd[i] ** 2
        raw[c] = -zh[i] / t.sd[i] ** 2
    return first, second, raw


def robust_moments(y, mean, var, epsilon=0.0, adaptive=True) -> RobustMoments:
    """log S, log Z and all first derivatives, d₂ too; mean, var (C,) are m\\ and V =
    v\\ + r of one point.

    adaptive=True: scipy's quad for every average. adaptive=False: fixed panels, for use
    inside EP.
    """
    t = integrand_of(y, mean, var)
    log_s = log_integral(t, adaptive)
    log_z, kappa, depsilon = mix(log_s, epsilon, len(mean))
    first, second, raw = step_derivatives(t, y, len(mean), adaptive)
    d2 = kappa * second + kappa * (1 - kappa) * first**2
    return RobustMoments(log_s, log_z, kappa * first, d2, 0.5 * kappa * raw, depsilon)


def largest_probabilities(mean, var, epsilon=0.0, adaptive=True):
    """(1−ε) p(y = k) + ε/C of every row, not normalised; mean, var, result (n, C).
    [METHOD 8]
    """
    return np.array(
        [
            [np.exp(log_robust(k, m, v, epsilon, adaptive)) for k in range(len(m))]
            for m, v in zip(mean, var, strict=True)
        ]
    )


def difference(function, x, step) -> float:
    """f'(x) ≈ [8(f(x+h) − f(x−h)) − (f(x+2h) − f(x−2h))]/(12h), error O(h⁴)."""
    near, far = (
        function(x + step) - function(x - step),
        function(x + 2 * step) - function(x - 2 * step),
    )
    return (8 * near - far) / (12 * step)


def moved(values, c, x):
    """values with entry c set to x."""
    new = np.array(values, dtype=float)
    new[c] = x
    return new


def finite_differences(y, mean, var, epsilon, step=1e-3):
    """∂log Z/∂m (C,), ∂²/∂m² (C,), ∂/∂V (C,), ∂/∂ε from values of log Z (d₂: of d₁)
    alone.

    Steps: step·√min(V_y, V_c) in m_c; step·V_c in V_c; step·min(ε, 1−ε) in ε (NaN at ε
    = 0).
    """
    value = lambda m, v, e: log_robust(y, m, v, e, adaptive=False)
    d1, d2, dv = np.zeros((3, len(mean)))
    for c, sd in enumerate(np.sqrt(np.minimum(var, var[y]))):
        slope = lambda x, c=c: robust_moments(
            y, moved(mean, c, x), var, epsilon, adaptive=False
        ).d1[c]
        d1[c] = difference(
            lambda x, c=c: value(moved(mean, c, x), var, epsilon), mean[c], step * sd
        )
        d2[c] = difference(slope, mean[c], step * sd)
        dv[c] = difference(
            lambda x, c=c: value(mean, moved(var, c, x), epsilon), var[c], step * var[c]
        )
    if epsilon == 0:
        return d1, d2, dv, math.nan
    return (
        d1,
        d2,
        dv,
        difference(
            partial(value, mean, var), epsilon, step * min(epsilon, 1 - epsilon)
        ),
    )
