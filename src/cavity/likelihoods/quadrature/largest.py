"""Probability that one normal is the largest of many, with its derivatives: robust EP's integral. [METHOD 4, REP]"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import LOG_SQRT_2PI, constant, hazard, log_ndtr
from cavity.likelihoods.quadrature.argmax import MANY
from cavity.likelihoods.quadrature.grid import ORDER, piecewise_legendre, thin
from cavity.likelihoods.quadrature.largest_trapezoid import Integrals, Standard, derivatives, integrate, start

# breakpoints around a rival's step, in its standard deviations
STEPS = (-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
INWARD = (1.0, 0.5, 0.25, 0.125, 0.0625)  # breakpoints between the mode and the ends of the integrand
DROP = 40.0  # the integrand ends where its logarithm has fallen by this
NEWTON = 20  # steps to the mode and to each end; all converge from one side
NODES = (48, 160)  # of the trapezoidal rule, and for rows that it does not resolve
BYTES = 32 << 20  # of one array over a piece's nodes


class Win(NamedTuple):
    """S = P(own > every rival): log S and the ratios S'/S, S''/S in each mean."""

    log_value: Tensor  # [B]
    first: Tensor  # [B 1+R], own first
    second: Tensor  # [B 1+R]


def win(mean: Tensor, var: Tensor) -> Win:
    r"""Return S = ∫ N(f; m₀, V₀) Π_c Φ((f − m_c)/√V_c) df for the first column of [B 1+R]. With ⟨·⟩ under the normalised integrand,

    rival:  S'/S = −⟨β(z)⟩/√V_c        S''/S = −⟨z β(z)⟩/V_c        z = (f − m_c)/√V_c,  β = φ/Φ
    own:    S'/S = ⟨ρ⟩                 S''/S = ⟨(f − m₀) ρ⟩/V₀      ρ = Σ_c β(z)/√V_c

    The forms for own come from ⟨f − m₀⟩/V₀ and ⟨(f − m₀)²⟩/V₀² − 1/V₀ by integration by parts; those would cancel if S is near 1.
    They are sums of the rivals': with x = (f − m₀)/√V₀ = μ_c + s_c z, √V₀⟨ρ⟩ = Σ_c ⟨β⟩/s_c and √V₀⟨xρ⟩ = Σ_c μ_c⟨β⟩/s_c + ⟨zβ⟩.
    """
    sd = var.sqrt()
    unit = sd[:, :1]
    g = Standard((mean[:, 1:] - mean[:, :1]) / unit, unit / sd[:, 1:])
    value, rate, pull = _by_panels(g) if mean.is_cuda else _by_trapezoids(g)
    force = g.rate * rate
    own, turn = force.sum(1, keepdim=True), (g.mean * force + pull).sum(1, keepdim=True)
    first = torch.cat([own, -rate], 1) / sd
    second = torch.cat([turn, -pull], 1) / var
    return Win(value - LOG_SQRT_2PI, first, second)


def _by_trapezoids(g: Standard) -> Integrals:
    """Integrate in float64, every row with as many nodes as resolve it. A recorded step cannot sort rows."""
    found = _refine(Standard(g.mean.double(), g.rate.double()), NODES)
    return Integrals(*(t.to(g.mean.dtype) for t in found))


def _refine(g: Standard, nodes: tuple[int, ...]) -> Integrals:
    """Integrate by the trapezoidal rule with these numbers of nodes in turn, then on panels; each time the rows that are left."""
    if not nodes:
        return _by_panels(g)
    found, resolved = integrate(g, nodes[0])
    left = resolved.logical_not().nonzero()[:, 0]
    if len(left):
        for column, part in zip(found, _refine(Standard(g.mean[left], g.rate[left]), nodes[1:]), strict=True):
            column[left] = part
    return found


def _by_panels(g: Standard) -> Integrals:
    """Integrate on Gauss–Legendre panels, a few rows at a time."""
    rivals = g.mean.shape[1]
    size = max(1, BYTES // (8 * rivals * ORDER * (_count_edges(rivals) - 1)))
    pieces = [Standard(*piece) for piece in zip(*(torch.split(t, size) for t in g), strict=True)]
    parts = [_integrate(piece, _breakpoints(piece, _mode(piece))) for piece in pieces]
    return Integrals(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _integrate(g: Standard, edges: Tensor) -> Integrals:
    """Integrate between the edges."""
    grid = piecewise_legendre(edges)
    x = grid.nodes  # [B Q]
    z = (x[..., None] - g.mean[:, None]) * g.rate[:, None]  # [B Q R]
    log_g = log_ndtr(z).sum(-1) - 0.5 * x * x + grid.log_weights
    value = log_g.logsumexp(-1)
    p = (log_g - value[:, None]).exp()
    h = hazard(z)
    return Integrals(value, (p[:, None] @ h)[:, 0], (p[:, None] @ (z * h))[:, 0])


def _mode(g: Standard) -> Tensor:
    """Return the point where g' = 0, [B]. g' is convex and decreasing, so Newton's steps from the left never overshoot."""
    x = start(g)
    for _ in range(NEWTON):
        slope, bend = derivatives(x, g)
        x = x + slope / bend
    return x


def _ends(g: Standard, mode: Tensor) -> Tensor:
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


def _breakpoints(g: Standard, mode: Tensor) -> Tensor:
    """Return sorted breakpoints [B E]: graded from both ends towards the mode, and around every rival's step."""
    low, high = _ends(g, mode)[..., None]
    inward = constant(INWARD, mode)
    centre = mode[:, None]
    graded = torch.cat([centre + (low - centre) * inward, centre, centre + (high - centre) * inward], 1)
    around = (g.mean[..., None] + constant(STEPS, mode) / g.rate[..., None]).flatten(1).sort(-1).values
    most = MANY * len(STEPS)
    inside = around.clamp(low, high) if around.shape[1] <= most else thin(around, low, high, most)
    return torch.cat([graded, inside], 1).sort(-1).values


def _count_edges(rivals: int) -> int:
    """Return the number of breakpoints."""
    return 2 * len(INWARD) + 1 + len(STEPS) * min(rivals, MANY)
