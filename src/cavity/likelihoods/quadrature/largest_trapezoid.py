"""Probability that one normal is the largest, with its derivatives, by the trapezoidal rule. [METHOD 4, REP]

The integrand is analytic and log-concave: 48 nodes around its mode integrate an ordinary row to 1e-12, with log Φ from a table.
The sum over every other node, and the width of the rivals' steps, tell how large the error is. Rows that the rule does not resolve
are left to panels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import LOG_SQRT_2PI, constant, hazard, log_ndtr
from cavity.likelihoods.quadrature.cdf_table import CELLS, LOW, Workspace

DROP = 26.0  # the integrand ends where its logarithm has fallen by this
MOST_CHANGE = 1e-5  # of the integrals if every other node is left out, relative to their sizes: their error is far smaller
LOG_ERROR = -25.0  # of the rule at a rival's step
BYTES = 1 << 20  # of one array over a piece's nodes: it stays in the cache


class Standard(NamedTuple):
    """g(x) = log φ(x) + Σ_c log Φ((x − μ_c)/s_c), x in units of the first normal: log-concave, with −g'' ≥ 1."""

    mean: Tensor  # [B R]
    rate: Tensor  # [B R], 1/s


class Integrals(NamedTuple):
    """log S without its constant, and means under the normalised integrand; see `largest.win`."""

    value: Tensor  # [B]
    rate: Tensor  # [B R], ⟨β⟩
    pull: Tensor  # [B R], ⟨zβ⟩


def start(g: Standard) -> Tensor:
    """Return a point left of the mode, [B]: β(z) > −z, so the mode lies right of where each rival's −z balances x."""
    curve = g.rate.square()
    return (g.mean * curve / (1 + curve)).amax(-1).clamp_min(0)


def derivatives(x: Tensor, g: Standard) -> tuple[Tensor, Tensor]:
    """Return g' and −g'' at x, [B], accurate enough for a step."""
    z = (x[:, None] - g.mean) * g.rate
    h = hazard(z)
    bend = torch.where(z < -1e4, 1.0, h * (h + z))
    return (h * g.rate).sum(-1) - x, (bend * g.rate.square()).sum(-1) + 1


def integrate(g: Standard, nodes: int) -> tuple[Integrals, Tensor]:
    """Return the integrals of each row, and whether it is resolved, [B]."""
    size = max(1, BYTES // (8 * g.mean.shape[1] * nodes))
    if len(g.mean) <= size:
        return _sum_nodes(g, nodes)
    pieces = zip(*(torch.split(t, size) for t in g), strict=True)
    parts, resolved = zip(*(_sum_nodes(Standard(*piece), nodes) for piece in pieces), strict=True)
    return Integrals(*(torch.cat(column) for column in zip(*parts, strict=True))), torch.cat(resolved)


class _Span(NamedTuple):
    """Where g is above g(x₀) − DROP, and g(x₀), for a point x₀ left of its mode."""

    low: Tensor  # [B]
    high: Tensor  # [B]
    top: Tensor  # [B]


def _find_span(g: Standard) -> _Span:
    r"""−g'' decreases with x, from −g''(x₀) at most to 1, and g(x) ≤ −½ x², so that with γ = g'(x₀), κ = −g''(x₀)

    x ≥ x₀ − (√(γ² + 2κ DROP) − γ)/κ        x ≤ x₀ + γ + √(γ² + 2 DROP)        x² ≤ 2 (DROP − g(x₀))
    """
    x = start(g)
    slope, bend = derivatives(x, g)
    top = log_ndtr((x[:, None] - g.mean) * g.rate).sum(-1) - 0.5 * x * x
    square = slope.square()
    low = x - ((square + 2 * DROP * bend).sqrt() - slope) / bend
    return _Span(low, torch.minimum(x + slope + (square + 2 * DROP).sqrt(), (2 * (DROP - top)).sqrt()), top)


def _sum_nodes(g: Standard, nodes: int) -> tuple[Integrals, Tensor]:
    """Return the integrals of some rows, and whether they are resolved: leaving out every other node changes them little."""
    B, R = g.mean.shape
    low, high, top = _find_span(g)
    h = (high - low) / nodes
    steps = constant((*range(0, nodes, 2), *range(1, nodes, 2)), h)
    x = torch.addcmul(low[:, None], h[:, None], steps)  # [B Q]
    z = (x[:, None] - g.mean[..., None]).mul_(g.rate[..., None])  # [B R Q]
    minus_log = Workspace(z.numel()).minus_log_cdf(CELLS * z)
    terms = h.new_empty(B, 1 + 2 * R, nodes)
    weight, rates, pulls = terms[:, :1], terms[:, 1 : 1 + R], terms[:, 1 + R :]
    torch.exp(torch.addcmul(minus_log.sum(1), x, x, value=0.5).add_(top[:, None]).neg_()[:, None], out=weight)
    beta = minus_log.addcmul_(z, z, value=-0.5).sub_(LOG_SQRT_2PI).exp_()
    torch.mul(beta, weight, out=rates)
    torch.mul(rates, z, out=pulls)
    even, odd = terms.view(B, 1 + 2 * R, 2, nodes // 2).sum(-1).unbind(-1)
    total = even + odd
    norm = total[:, :1]
    settled = ((even - odd).abs_() < MOST_CHANGE * (norm + total.abs())).all(1)
    fine = ((z[..., 0] > LOW) & (_log_error(g, h, top) < LOG_ERROR)).all(1)
    return Integrals((norm[:, 0] * h).log() + top, *(total[:, 1:] / norm).chunk(2, 1)), settled & fine


def _log_error(g: Standard, h: Tensor, top: Tensor) -> Tensor:
    r"""Return the logarithm of the error at each rival's step, which may be too narrow for a sum over every other node, [B R].

    φ(x) φ((x − μ)/s) is a normal of precision p = 1 + 1/s² and mass exp(−½ μ²/(1 + s²)); the rule errs by exp(−2π²/(p h²)) of it.
    """
    curve = g.rate.square()
    return (
        -(2 * math.pi**2 / h.square()[:, None] + 0.5 * g.mean.square() * curve) / (1 + curve) - top[:, None]
    )
