"""Averages of powers of the probit and of its logarithm. [METHOD 4, power EP, weights]

The exponents are between 0 and 1.
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
# the spacing of nodes changes from left to right tail around CENTER, within BEND
CENTER = -4.0
BEND = 3.0
CERTAIN = 10.0  # log Φ(10) is −8e-24
LOG_2 = math.log(2)


class ProbitMoments(NamedTuple):
    """log ∫ Φ(d/√R)^e N(d; μ, V) dd, or E log Φ(d/√R), and its derivatives."""

    value: Tensor
    dm: Tensor  # in μ
    dv: Tensor  # in V
    dr: Tensor  # in R


class Rule(NamedTuple):
    """Gauss–Hermite rule, right to 1e-10 for powers from `least` to 1."""

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

    `least` is a lower bound of the exponents, known without reading them. The larger it
    is, the fewer nodes are needed. [METHOD 4, power EP]
    """
    V, R = _widen(var, residual)
    for rule in RULES:  # the shortest first
        if least >= rule.least:
            return _add_difference(mean, V, R, e, rule)
    # Left of 0 the integrand is a normal of precision 1/V + e/R around `shifted`. Right
    # of 0 it is a tail of N(μ, V), which falls by a factor of e over V/|μ|.
    shifted = mean.clamp(max=0) / (1 + V * (e / R))
    narrow = (1 / (1 / V + e / R)).sqrt()
    tail = V / (mean * mean + V).sqrt()
    more = ((shifted, narrow), (0 * mean, tail))
    log_Z, average = _average_over_panels(mean, V, R, e, more)
    return ProbitMoments(log_Z, e * average.dm, e * average.dv, e * average.dr)


def _widen(var: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
    """Return V and R, both positive: a width of 0 would have no grid.

    1e-16 of the other is a point mass in float64.
    """
    return torch.maximum(var, 1e-16 * residual), torch.maximum(residual, 1e-16 * var)


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

    # closed form
    scale = (1 + v).rsqrt()
    alpha = m * scale
    slope = hazard(alpha) * scale
    offset = 0.5 * v.log() + LOG_SQRT_2PI + LOG_2 * e
    log_closed = log_ndtr(alpha) + offset

    # Φ^e N and Φ N at the nodes, relative to exp(top)
    log_g = (y + SQRT_HALF * m).square_().mul_(-1 / v).addcmul_(log_cdf, e)
    top = torch.maximum(log_closed, log_g.amax(0))
    power = log_g.sub_(top).exp_().mul_(weight)
    whole = torch.addcmul((e - 1) * LOG_2, 1 - e, log_cdf).exp_().mul_(power)
    closed = (log_closed - top).exp()
    Z = closed + power.sum(0) - whole.sum(0)

    # derivatives in m, once and twice
    fall = whole.addcmul_(power, e, value=-1).div_(E)
    first = closed * slope - SQRT_2_OVER_PI * fall.sum(0)
    moved = SQRT_2_OVER_PI / SQRT_HALF * y.mul_(fall).sum(0)
    along = -closed * slope * alpha * scale - moved
    square = power.div_(E).div_(E).sum(0)
    second = along - SQRT_2_OVER_PI**2 * e * (1 - e) * square
    return ProbitMoments(
        Z.log() + top - offset,
        first / (Z * width),
        0.5 * second / (Z * residual),
        0.5 * along / (Z * residual),
    )


def _place(m: Tensor, v: Tensor, e: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    r"""Return nodes y = −x/√2, [Q ...], and their weights in x.

    They are for the bump (Φ^e − Φ) N(x; m, v). Left of 0 it is a normal of precision
    e + 1/v, right of 0 one of precision 1 + 1/v. A hyperbola x(t) with these two slopes
    makes both tails standard normal in t:

        x = CENTER + p t − q √(t² + BEND²)
    """
    column = (-1, *[1] * m.dim())
    nodes = constant(rule.nodes, m).reshape(column)
    weights = constant(rule.weights, m).reshape(column)
    left = e + 1 / v
    right = 1 + 1 / v
    a = left.rsqrt()
    b = right.rsqrt()
    p = 0.5 * (a + b)
    q = 0.5 * (a - b)

    # t where each side ends, as far as REACH
    low = _find_end(-1.0, m, v, left, right)
    high = _find_end(1.0, m, v, right, left)
    ends = torch.stack([low, high]) - CENTER
    start, stop = (p * ends + q * (ends * ends + a * b * BEND**2).sqrt()) / (a * b)
    spread = (stop - start) * (0.5 / REACH)
    middle = 0.5 * (start + stop)

    t = torch.addcmul(middle, spread, nodes)
    root = (t * t).add_(BEND**2).sqrt_()
    first = -SQRT_HALF * (CENTER + p * middle)
    y = torch.addcmul(first, -SQRT_HALF * p * spread, nodes)
    weight = torch.addcmul(p * spread, -q * spread, t.div_(root)).mul_(weights)
    return y.addcmul_(SQRT_HALF * q, root), weight


def _find_end(sign: float, m: Tensor, v: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """Return where the side of precision `own` ends.

    If the bump is centred on the other side, this one starts with what that has left of
    its fall.
    """
    pull = m / v
    at = pull / own
    at_other = pull / other
    fall = REACH**2 - pull * at_other
    beyond = at + sign * (at**2 + fall.clamp(min=0) / own).sqrt()
    beyond = torch.where(fall > 0, beyond, at_other + sign * REACH * other.rsqrt())
    return torch.where(sign * m < 0, beyond, at + sign * REACH * own.rsqrt())


def probit_average(mean: Tensor, var: Tensor, residual: Tensor) -> ProbitMoments:
    r"""Return E log Φ(d/√R), d ~ N(μ, V), and its derivatives.

    This is the limit e → 0 of power EP's (1/e) log Z. [METHOD 4, power EP]
    """
    V, R = _widen(var, residual)
    # left of 0 log Φ approaches its parabola only as 1/d²: breakpoints between the
    # two widths
    more = ((0 * mean, (V * R) ** 0.25),)
    _, average = _average_over_panels(mean, V, R, 0 * mean, more)
    return average


def _average_over_panels(
    mean: Tensor,
    var: Tensor,
    residual: Tensor,
    e: Tensor,
    more: tuple[tuple[Tensor, Tensor], ...],
) -> tuple[Tensor, ProbitMoments]:
    r"""Return log Z, and the average of g(d) = log Φ(d/√R) under Φ^e N, normalised.

    The average comes with (1/e) times the derivatives of log Z:

        ∂/∂μ = ⟨g'⟩      ∂/∂V = ½⟨g'' + e g'²⟩      ∂/∂R = ⟨∂g/∂R⟩

    `more` are centres and widths of breakpoints beside those of N and Φ.
    """
    sd = var.sqrt()
    width = residual.sqrt()
    centers, widths = zip((mean, sd), (0 * mean, width), *more, strict=True)
    grid = piecewise_legendre(bumps(torch.stack(centers, -1), torch.stack(widths, -1)))
    alpha = grid.nodes / width[..., None]
    beta = hazard(alpha)
    log_cdf = log_ndtr(alpha)
    z = (grid.nodes - mean[..., None]) / sd[..., None]
    log_g = e[..., None] * log_cdf + log_normal_pdf(z) + grid.log_weights
    top = log_g.amax(-1, keepdim=True)
    p = log_g.sub_(top).exp_()
    total = p.sum(-1)
    log_Z = total.log() + top[..., 0] - sd.log()

    p_beta = p * beta
    bend = p * hazard_slope(alpha, beta)
    terms = (p * log_cdf, p_beta, p_beta * beta, bend, p_beta * alpha)
    value, slope, square, bend, turn = (x.sum(-1) / total for x in terms)
    dv = 0.5 * (e * square - bend) / residual
    return log_Z, ProbitMoments(value, slope / width, dv, -0.5 * turn / residual)
