"""One Gaussian times steps, g(f) = N(f; m, V) Π_c Φ((f − m_c)/√V_c)^p: log ∫g and
averages under g/∫g.

g is log-concave, so it has one mode f₀ and falls monotonically on both sides.
Everything is computed as the ratio g(f₀ + x)/g(f₀), whose logarithm is small wherever
it matters even if log g(f₀) is −1e9:

    log g(f₀+x) − log g(f₀) = −x(x + 2(f₀−m))/(2V) + p Σ_c [log Φ(z_c + x/√V_c) − log
    Φ(z_c)] z, z' < 0:  log Φ(z') − log Φ(z) = −½(z'−z)(z'+z) +
    log[erfcx(−z'/√2)/erfcx(−z/√2)]

The interval is where the ratio exceeds e^−60; it is cut at every bump m_c + √V_c·{0,
±1, ±2, ±4, ±8} and at halves, quarters, … of the way from the mode to its ends.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, roots_legendre

from .probit import hazard

DROP = 60.0
OFFSETS = np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8])
SHARES = 0.5 ** np.arange(1, 9)
NODES, WEIGHTS = roots_legendre(20)
# an adaptive integral whose error estimate is above this share of its size is refused
WORST = 1e-7


class Tilted(NamedTuple):
    """g around its mode f₀."""

    mean: float  # m
    var: float  # V
    sd: np.ndarray  # (R,) √V_c
    power: float  # p
    mode: float  # f₀
    z: np.ndarray  # (R,) z_c at the mode
    top: float  # log g(f₀)
    breaks: np.ndarray  # ascending x, ends included
    # ratio and Point where they were already computed, so that no average repeats the
    # work
    known: dict


class Point(NamedTuple):
    """What an average may depend on at f = f₀ + x; x () or (n,), the others (R,) or (n,
    R).
    """

    x: np.ndarray
    z: np.ndarray  # (f − m_c)/√V_c
    h: np.ndarray  # φ(z)/Φ(z)
    bend: np.ndarray  # h(h + z) = −∂² log Φ/∂z²


def bend(z):
    """h(h+z), by 1 − z⁻² + 6z⁻⁴ − 50z⁻⁶ + 518z⁻⁸ for z < −50, where the sum cancels.
    [METHOD 10]
    """
    near, far = np.maximum(z, -50.0), np.minimum(z, -50.0) ** -2.0
    h = hazard(near)
    series = 1 - far * (1 - far * (6 - far * (50 - far * 518)))
    return np.where(z < -50, series, h * (h + near))


def log_ndtr_ratio(z, dz):
    """log Φ(z + dz) − log Φ(z) without cancellation between two far tails."""
    end = z + dz
    tails = np.maximum(-end, 0) / math.sqrt(2), np.maximum(-z, 0) / math.sqrt(2)
    below = -0.5 * dz * (end + z) + np.log(erfcx(tails[0]) / erfcx(tails[1]))
    return np.where((z < 0) & (end < 0), below, log_ndtr(end) - log_ndtr(z))


def find_mode(mean, var, means, sd, power) -> float:
    """Root of (log g)' = −(f−m)/V + p Σ h_c/√V_c, which is ≥ 0 at m and decreases; a
    rough one will do.
    """

    def slope(f):
        return -(f - mean) / var + power * float(np.sum(hazard((f - means) / sd) / sd))

    if slope(mean) <= 0:
        return mean
    step = math.sqrt(var)
    while slope(mean + step) > 0:
        step *= 2
    return brentq(slope, mean, mean + step, xtol=1e-5 * min(math.sqrt(var), sd.min()))


def log_ratio(t: Tilted, x):
    """log g(f₀+x) − log g(f₀); x () or (n,)."""
    x = np.asarray(x)
    gauss = -x * (x + 2 * (t.mode - t.mean)) / (2 * t.var)
    return gauss + t.power * np.sum(log_ndtr_ratio(t.z, x[..., None] / t.sd), axis=-1)


def find_end(t: Tilted, sign) -> float:
    """x > 0 or < 0 (sign) where the ratio is below e^−DROP, at most a quarter farther
    out than need be.
    """
    step = min(math.sqrt(t.var), t.sd.min())
    while log_ratio(t, sign * step) > -DROP:
        step *= 2
    while log_ratio(t, 0.8 * sign * step) < -DROP:
        step *= 0.8
    return sign * step


def tilt(mean, var, means, variances, power=1.0) -> Tilted:
    """g with its mode and panels; means, variances (R,) of the steps."""
    means, sd = (
        np.asarray(means, dtype=float),
        np.sqrt(np.asarray(variances, dtype=float)),
    )
    mean, var = float(mean), float(var)
    mode = find_mode(mean, var, means, sd, power)
    z = (mode - means) / sd
    top = (
        -0.5 * (mode - mean) ** 2 / var
        - 0.5 * math.log(2 * math.pi * var)
        + power * np.sum(log_ndtr(z))
    )
    t = Tilted(mean, var, sd, power, mode, z, float(top), np.zeros(0), {})
    left, right = find_end(t, -1), find_end(t, 1)
    own = mean - mode + math.sqrt(var) * OFFSETS
    bumps = np.concatenate([own, (-(z * sd)[:, None] + sd[:, None] * OFFSETS).ravel()])
    inside = bumps[(bumps > left) & (bumps < right)]
    return t._replace(
        breaks=np.unique([left, *left * SHARES, 0, *right * SHARES, right, *inside])
    )


def at(t: Tilted, x) -> Point:
    """z, h and h(h+z) at f₀ + x."""
    z = t.z + np.asarray(x)[..., None] / t.sd
    return Point(np.asarray(x), z, hazard(z), bend(z))


def integrals_by_quad(t: Tilted, functions):
    """∫ F(x) g(f₀+x)/g(f₀) dx of every F(Point), each by its own adaptive quadrature
    over the panels.

    F must be of order one or of one sign.
    """

    def integrand(x, F):
        if x not in t.known:
            t.known[x] = math.exp(log_ratio(t, x)), at(t, x)
        weight, point = t.known[x]
        return weight * float(F(point))

    width, results = t.breaks[-1] - t.breaks[0], []
    for F in functions:
        value, error, *_ = quad(
            integrand,
            t.breaks[0],
            t.breaks[-1],
            args=(F,),
            points=t.breaks[1:-1],
            limit=20 * len(t.breaks),
            epsabs=1e-15 * width,
            epsrel=1e-11,
            full_output=1,
        )
        if error > WORST * max(abs(value), 1e-6 * width):
            raise ArithmeticError(f"quadrature gave {value} ± {error} for {t}")
        results.append(value)
    return results


def panels(t: Tilted):
    """Nodes x and weights of ∫ · g(f₀+x)/g(f₀) dx: 20 Gauss–Legendre nodes per panel."""
    if "panels" not in t.known:
        half = 0.5 * np.diff(t.breaks)[:, None]
        x = (t.breaks[:-1, None] + half * (1 + NODES)).ravel()
        t.known["panels"] = x, (half * WEIGHTS).ravel() * np.exp(log_ratio(t, x))
    return t.known["panels"]


def integrals_by_panels(t: Tilted, functions):
    """The same by fixed panels: a thousand times faster, for use inside EP."""
    x, weight = panels(t)
    if "points" not in t.known:
        t.known["points"] = at(t, x)
    return [float(np.sum(weight * F(t.known["points"]))) for F in functions]


def log_integral(t: Tilted, adaptive=True) -> float:
    """log ∫ g."""
    return t.top + math.log(
        integrals_by_quad(t, [lambda p: 1.0])[0] if adaptive else np.sum(panels(t)[1])
    )


def averages(t: Tilted, functions, adaptive=True):
    """⟨F⟩ under the normalised g, for every F(Point)."""
    integrals = integrals_by_quad if adaptive else integrals_by_panels
    total, *values = integrals(t, [lambda p: 1.0, *functions])
    return [value / total for value in values]


def mean_derivatives(t: Tilted, adaptive=True):
    """∂/∂m and ∂²/∂m² of log ∫g, good to 1e-10 of their largest possible size.

    ⟨f−m⟩/V and Var(f)/V² − 1/V   or, by parts, ⟨η⟩ and Var(η) − p⟨Σ bend_c/V_c⟩ with η = p Σ h_c/√V_c:
    the first pair cancels where the steps hardly matter, the second where they are
    sharp.
    """
    width = t.breaks[-1] - t.breaks[0]

    def eta(p):
        return t.power * np.sum(p.h / t.sd, axis=-1)

    def curvature(p):
        return t.power * np.sum(p.bend / t.sd**2, axis=-1)

    x, slope, bent = averages(t, [lambda p: p.x / width, eta, curvature], adaptive)
    if bent < 1 / t.var:
        (spread,) = averages(t, [lambda p: (eta(p) - slope) ** 2], adaptive)
        return slope, spread - bent
    (spread,) = averages(t, [lambda p: (p.x / width - x) ** 2], adaptive)
    return (t.mode - t.mean + x * width) / t.var, (
        spread * width**2 / t.var - 1
    ) / t.var
