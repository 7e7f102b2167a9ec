"""Probability that one normal is the largest of many, with its derivatives: robust EP's integral. [METHOD 4, REP]"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import LOG_SQRT_2PI, constant, hazard, log_ndtr
from cavity.likelihoods.quadrature import largest_trapezoid
from cavity.likelihoods.quadrature.argmax import MANY
from cavity.likelihoods.quadrature.grid import (
    ORDER,
    SIZES,
    natural_density,
    panels_along,
    piecewise_legendre,
    shortest_grids,
    thin,
)

# breakpoints around a rival's step, in its standard deviations
STEPS = (-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
INWARD = (1.0, 0.5, 0.25, 0.125, 0.0625)  # breakpoints between the mode and the ends of the integrand
DROP = 40.0  # the integrand ends where its logarithm has fallen by this
NEWTON = 20  # steps to the mode and to each end; all converge from one side
BYTES = 32 << 20  # of one array over a piece's nodes


class Win(NamedTuple):
    """S = P(own > every rival): log S and the ratios S'/S, S''/S in each mean."""

    log_value: Tensor  # [B]
    first: Tensor  # [B 1+R], own first
    second: Tensor  # [B 1+R]


class _Standard(NamedTuple):
    """g(x) = log φ(x) + Σ_c log Φ((x − μ_c)/s_c), x in units of the first normal: log-concave, with −g'' ≥ 1."""

    mean: Tensor  # [B R]
    sd: Tensor  # [B R]
    rate: Tensor  # [B R], 1/s


def win(mean: Tensor, var: Tensor) -> Win:
    r"""Return S = ∫ N(f; m₀, V₀) Π_c Φ((f − m_c)/√V_c) df for the first column of [B 1+R]. With ⟨·⟩ under the normalised integrand,

    rival:  S'/S = −⟨β(z)⟩/√V_c        S''/S = −⟨z β(z)⟩/V_c        z = (f − m_c)/√V_c,  β = φ/Φ
    own:    S'/S = ⟨ρ⟩                 S''/S = ⟨(f − m₀) ρ⟩/V₀      ρ = Σ_c β(z)/√V_c

    The forms for own come from ⟨f − m₀⟩/V₀ and ⟨(f − m₀)²⟩/V₀² − 1/V₀ by integration by parts; those would cancel if S is near 1.
    """
    rivals = mean.shape[1] - 1
    size = max(1, BYTES // (8 * rivals * ORDER * (_count_edges(rivals) - 1)))
    parts = [_win(m, v) for m, v in zip(torch.split(mean, size), torch.split(var, size), strict=True)]
    return parts[0] if len(parts) == 1 else Win(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _win(mean: Tensor, var: Tensor) -> Win:
    sd = var.sqrt()
    unit = sd[:, :1]
    g = _Standard((mean[:, 1:] - mean[:, :1]) / unit, sd[:, 1:] / unit, unit / sd[:, 1:])
    value, own, turn, rate, pull = _by_trapezoid(g) if suits_trapezoid(mean) else _by_panels(g)
    first = torch.cat([own, -rate], 1) / sd
    second = torch.cat([turn, -pull], 1) / var
    return Win(value - LOG_SQRT_2PI, first, second)


def suits_trapezoid(mean: Tensor) -> bool:
    """Return whether the trapezoidal rule is faster: it sorts rows by their number of nodes, which a recorded step cannot."""
    return mean.dtype == torch.float64 and not mean.is_cuda and mean.shape[1] <= MANY


def _by_trapezoid(g: _Standard) -> tuple[Tensor, ...]:
    """Integrate by the trapezoidal rule, and on panels where it does not resolve a row."""
    found, left = largest_trapezoid.integrate(g.mean, g.sd)
    place = left.nonzero()[:, 0]
    if len(place):
        for column, part in zip(found, _by_panels(_Standard(*(t[place] for t in g))), strict=True):
            column[place] = part
    return tuple(found)


def _by_panels(g: _Standard) -> tuple[Tensor, ...]:
    edges = _breakpoints(g, _mode(g))
    return _integrate(g, edges) if edges.is_cuda else _integrate_each(g, edges)


def _integrate_each(g: _Standard, edges: Tensor) -> tuple[Tensor, ...]:
    """Integrate every row on the shortest grid that resolves it. A step recorded on a GPU cannot choose grids."""
    sizes = [size for size in SIZES if size < edges.shape[1] - 1]
    places, parts = [], []
    for place, own in shortest_grids(edges, _length(g, edges), sizes):
        places.append(place)
        parts.append(_integrate(_Standard(*(t[place] for t in g)), own))
    back = torch.cat(places).argsort()
    return tuple(torch.cat(column)[back] for column in zip(*parts, strict=True))


def _length(g: _Standard, edges: Tensor) -> Tensor:
    """Return the number of panels from the first edge to each, [B E]. Panels are as wide as nearby steps, or as 1/√−g'' if less."""
    z = (edges[..., None] - g.mean[:, None]) * g.rate[:, None]
    h = hazard(z)
    bend = torch.where(z < -1e4, 1.0, h * (h + z))
    own = ((bend * g.rate[:, None].square()).sum(-1) + 1).sqrt()
    steps = natural_density(edges, g.mean, g.sd)
    return panels_along(edges, torch.maximum(own, steps))


def _integrate(g: _Standard, edges: Tensor) -> tuple[Tensor, ...]:
    """Return log S [B] without its constant, ⟨ρ⟩ and ⟨xρ⟩ [B 1], and ⟨β⟩ and ⟨zβ⟩ of each rival [B R]."""
    grid = piecewise_legendre(edges)
    x = grid.nodes  # [B Q]
    z = (x[..., None] - g.mean[:, None]) * g.rate[:, None]  # [B Q R]
    log_g = log_ndtr(z).sum(-1) - 0.5 * x * x + grid.log_weights
    value = log_g.logsumexp(-1)
    p = (log_g - value[:, None]).exp()
    h = hazard(z)
    rate = (p[:, None] @ h)[:, 0]
    pull = (p[:, None] @ (z * h))[:, 0]
    rho = (h @ g.rate[..., None])[..., 0]  # [B Q]
    own = (p * rho).sum(-1, keepdim=True)
    turn = (p * x * rho).sum(-1, keepdim=True)
    return value, own, turn, rate, pull


def _mode(g: _Standard) -> Tensor:
    """Return the point where g' = 0, [B]. g' is convex and decreasing, so Newton's steps from the left never overshoot.

    The start is left of the mode: β(z) > −z, so the mode lies right of the point where each rival's −z balances x.
    """
    x = (g.mean / (1 + g.sd.square())).amax(-1).clamp_min(0)
    curve = g.rate.square()
    for _ in range(NEWTON):
        z = (x[:, None] - g.mean) * g.rate
        h = hazard(z)
        bend = torch.where(z < -1e4, 1.0, h * (h + z))  # −β', accurate enough for a step
        x = x + ((h * g.rate).sum(-1) - x) / ((bend * curve).sum(-1) + 1)
    return x


def _ends(g: _Standard, mode: Tensor) -> Tensor:
    """Return the points where g has fallen by DROP on either side, [2 B].

    g is concave, so Newton's steps from outside never overshoot; −g'' ≥ 1 gives the start.
    """
    value = log_ndtr((mode[:, None] - g.mean) * g.rate).sum(-1) - 0.5 * mode * mode
    reach = math.sqrt(2 * DROP)
    x = torch.stack([mode - reach, mode + reach])
    for _ in range(NEWTON):
        z = (x[..., None] - g.mean) * g.rate
        excess = (log_ndtr(z).sum(-1) - 0.5 * x * x - value + DROP).clamp(max=0)
        x = x - excess / ((hazard(z) * g.rate).sum(-1) - x)
    return x


def _breakpoints(g: _Standard, mode: Tensor) -> Tensor:
    """Return sorted breakpoints [B E]: graded from both ends towards the mode, and around every rival's step."""
    low, high = _ends(g, mode)[..., None]
    inward = constant(INWARD, mode)
    centre = mode[:, None]
    graded = torch.cat([centre + (low - centre) * inward, centre, centre + (high - centre) * inward], 1)
    around = (g.mean[..., None] + g.sd[..., None] * constant(STEPS, mode)).flatten(1).sort(-1).values
    most = MANY * len(STEPS)
    inside = around.clamp(low, high) if around.shape[1] <= most else thin(around, low, high, most)
    return torch.cat([graded, inside], 1).sort(-1).values


def _count_edges(rivals: int) -> int:
    """Return the number of breakpoints."""
    return 2 * len(INWARD) + 1 + len(STEPS) * min(rivals, MANY)
