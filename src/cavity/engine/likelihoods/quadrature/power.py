"""Averages of fractional powers of the probit, and of its logarithm. [METHOD 4, power
EP and weights]
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavity.common.namespaces import SQRT_2_OVER_PI, SQRT_HALF
from cavity.common.torch_namespace import constant
from cavity.engine.likelihoods.normal_tails import (
    LOG_SQRT_2PI,
    hazard,
    hazard_slope,
    log_ndtr,
    log_normal_pdf,
)
from cavity.engine.likelihoods.quadrature.grid import bumps, piecewise_legendre

REACH = 7.2  # standard deviations on either side that nodes should cover
# where the spacing of nodes changes from the left tail's to the right tail's, and how
# gently
CENTER = -4.0
BEND = 3.0
CERTAIN = 10.0  # log Φ(10) is −8e-24
LOG_2 = math.log(2)


class ProbitMoments(NamedTuple):
    """log ∫ Φ(d/√R)^e N(d; μ, V) dd, or E log Φ(d/√R), with its derivatives in μ, V and
    R.
    """

    value: Tensor
    dm: Tensor
    dv: Tensor
    dr: Tensor


class Rule(NamedTuple):
    """Gauss–Hermite rule that integrates powers from `least` to 1 with an error below
    1e-10.
    """

    least: float
    nodes: tuple[float, ...]
    weights: tuple[float, ...]


def _make_rule(least: float, n: int, scale: float) -> Rule:
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    weights = scale * weights * np.exp(0.5 * nodes**2)
    return Rule(least, tuple((scale * nodes).tolist()), tuple(weights.tolist()))


# least exponent, number of nodes, and their scale
_SIZES = (
    (0.95, 13, 0.88),
    (0.9, 14, 0.87),
    (0.5, 18, 0.8),
    (0.1, 24, 0.78),
    (1e-3, 48, 0.55),
)
RULES = tuple(_make_rule(*size) for size in _SIZES)


def probit_power(
    mean: Tensor, var: Tensor, residual: Tensor, e: Tensor, least: float = 0.0
) -> ProbitMoments:
    r"""Return log Z, Z = ∫ Φ(d/√R)^e N(d; μ, V) dd, and its derivatives in μ, V and R.
    [METHOD 4, power EP]

    `least` is a lower bound of the exponents, known without reading them. The larger it
    is, the fewer nodes are needed.
    """
    # a zero width would have no grid; 1e-16 of the other is a point mass in float64
    V = torch.maximum(var, 1e-16 * residual)
    R = torch.maximum(residual, 1e-16 * var)
    for rule in RULES:  # the shortest first
        if least >= rule.least:
            return _add_difference(mean, V, R, e, rule)
    # left of 0 the integrand is a normal of precision 1/V + e/R around `shifted`; right
    # of 0 it is a tail of N(μ, V), which falls by e in V/|μ|
    slope = e / R
    shifted = mean.clamp(max=0) / (1 + V * slope)
    narrow = (1 / (1 / V + slope)).sqrt()
    tail = V / (mean * mean + V).sqrt()
    log_Z, average = _average_over_panels(
        mean, V, R, e, ((shifted, narrow), (0 * mean, tail))
    )
    return ProbitMoments(log_Z, *(e * slope for slope in average[1:]))


def _add_difference(
    mean: Tensor, var: Tensor, residual: Tensor, e: Tensor, rule: Rule
) -> ProbitMoments:
    r"""Add a short quadrature to the closed form of e = 1.

    With x = d/√R, m = μ/√R, v = V/R and β = φ/Φ:

        Z = Φ(α) + ∫ (Φ^e − Φ) N(x; m, v) dx,  α = m/√(1 + v)

    Φ^e − Φ is a positive bump around 0, however large v is, so that a few nodes are
    enough.
        (Φ^e − Φ)' = β (eΦ^e − Φ)      (Φ^e − Φ)'' = −x (Φ^e − Φ)' − e(1 − e) β² Φ^e
    With y = −x/√2 and E = erfcx(y): Φ = ½ E exp(−y²), β = √(2/π)/E.
    """
    width = residual.sqrt()
    m = mean / width
    v = var / residual
    y, weight = _place(m, v, e, rule)
    E = torch.special.erfcx(y.clamp_(min=-SQRT_HALF * CERTAIN))
    log_cdf = E.log().addcmul_(y, y, value=-1)  # log 2Φ
    scale = (1 + v).rsqrt()
    alpha = m * scale
    offset = 0.5 * v.log() + LOG_SQRT_2PI + LOG_2 * e
    closed = log_ndtr(alpha) + offset
    slope = hazard(alpha) * scale
    log_g = (y + SQRT_HALF * m).square_().mul_(-1 / v).addcmul_(log_cdf, e)
    top = torch.maximum(closed, log_g.amax(0))
    power = log_g.sub_(top).exp_().mul_(weight)  # Φ^e N
    whole = torch.addcmul((e - 1) * LOG_2, 1 - e, log_cdf).exp_().mul_(power)  # Φ N
    one = (closed - top).exp()
    Z = one + power.sum(0) - whole.sum(0)
    fall = whole.addcmul_(power, e, value=-1).div_(E)
    d1 = one * slope - SQRT_2_OVER_PI * fall.sum(0)
    along = -one * slope * alpha * scale - SQRT_2_OVER_PI / SQRT_HALF * y.mul_(
        fall
    ).sum(0)
    d2 = along - SQRT_2_OVER_PI**2 * e * (1 - e) * power.div_(E).div_(E).sum(0)
    value = Z.log() + top - offset
    return ProbitMoments(
        value, d1 / (Z * width), 0.5 * d2 / (Z * residual), 0.5 * along / (Z * residual)
    )


def _place(m: Tensor, v: Tensor, e: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    r"""Return nodes y = −x/√2 and the weights of x for the bump (Φ^e − Φ) N(x; m, v),
    [Q ...].

    Left of 0 the bump is a normal of precision e + 1/v, right of 0 one of precision 1 +
    1/v. A hyperbola x(t) with these two slopes makes both tails standard normal in t.
    """
    nodes, weights = (
        constant(c, m).reshape(-1, *[1] * m.dim()) for c in (rule.nodes, rule.weights)
    )
    left = e + 1 / v
    right = 1 + 1 / v
    pull = m / v

    def find_end(sign: float, own: Tensor, other: Tensor) -> Tensor:
        """Return where the side of precision `own` ends; beyond 0 it starts with what
        the other side has left of its fall.
        """
        # that of the other side is where the bump is not
        at = pull / own
        at_other = pull / other
        fall = REACH**2 - pull * at_other
        beyond = at + sign * (at**2 + fall.clamp(min=0) / own).sqrt()
        beyond = torch.where(fall > 0, beyond, at_other + sign * REACH * other.rsqrt())
        return torch.where(sign * m < 0, beyond, at + sign * REACH * own.rsqrt())

    low = find_end(-1.0, left, right)
    high = find_end(1.0, right, left)
    # slopes: x = CENTER + p t − q √(t² + BEND²)
    a = left.rsqrt()
    b = right.rsqrt()
    p = 0.5 * (a + b)
    q = 0.5 * (a - b)
    ends = torch.stack([low, high]) - CENTER
    start, stop = (p * ends + q * (ends * ends + a * b * BEND**2).sqrt()) / (a * b)
    spread = (stop - start) * (0.5 / REACH)
    middle = 0.5 * (start + stop)
    t = torch.addcmul(middle, spread, nodes)
    root = (t * t).add_(BEND**2).sqrt_()
    y = torch.addcmul(
        -SQRT_HALF * (CENTER + p * middle), -SQRT_HALF * p * spread, nodes
    )
    weight = torch.addcmul(p * spread, -q * spread, t.div_(root)).mul_(weights)
    return y.addcmul_(SQRT_HALF * q, root), weight


def probit_average(mean: Tensor, var: Tensor, residual: Tensor) -> ProbitMoments:
    r"""Return E log Φ(d/√R), d ~ N(μ, V), and its derivatives: the limit e → 0 of power
    EP's (1/e) log Z. [METHOD 4, power EP]
    """
    V = torch.maximum(var, 1e-16 * residual)
    R = torch.maximum(residual, 1e-16 * var)
    # left of 0 log Φ approaches its parabola only as 1/d²: add breakpoints between the
    # two widths
    return _average_over_panels(mean, V, R, 0 * mean, ((0 * mean, (V * R) ** 0.25),))[1]


def _average_over_panels(
    mean: Tensor,
    var: Tensor,
    residual: Tensor,
    exponent: Tensor,
    more: tuple[tuple[Tensor, Tensor], ...],
) -> tuple[Tensor, ProbitMoments]:
    r"""Return log Z, and the average of g(d) = log Φ(d/√R) under Φ^e N, normalised,
    with (1/e) times the derivatives of log Z.

    ∂/∂μ = ⟨g'⟩      ∂/∂V = ½⟨g'' + e g'²⟩      ∂/∂R = ⟨∂g/∂R⟩

    `more` are centres and widths of breakpoints beside those of N and Φ.
    """
    sd = var.sqrt()
    width = residual.sqrt()
    places = zip((mean, sd), (0 * mean, width), *more, strict=True)
    grid = piecewise_legendre(bumps(*(torch.stack(column, -1) for column in places)))
    alpha = grid.nodes / width[..., None]
    beta = hazard(alpha)
    log_cdf = log_ndtr(alpha)
    z = (grid.nodes - mean[..., None]) / sd[..., None]
    log_g = exponent[..., None] * log_cdf + log_normal_pdf(z) + grid.log_weights
    top = log_g.amax(-1, keepdim=True)
    p = log_g.sub_(top).exp_()
    pb = p * beta
    total = p.sum(-1)
    sums = (p * log_cdf, pb, pb * beta, p * hazard_slope(alpha, beta), pb * alpha)
    value, g1, square, bend, turn = (x.sum(-1) / total for x in sums)
    dv = 0.5 * (exponent * square - bend) / residual
    log_Z = total.log() + top[..., 0] - sd.log()
    return log_Z, ProbitMoments(value, g1 / width, dv, -0.5 * turn / residual)
