"""Probability that one normal is the largest of a few, with its derivatives, by the trapezoidal rule. [METHOD 4, REP]

The integrand is analytic and falls off at least as fast as a normal, as in `trapezoid`: some thirty nodes do what needs 128 or more
on panels. Rows that the rule does not resolve are left to the panels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import SQRT_2_OVER_PI, SQRT_HALF, hazard, hazard_slope, log_ndtr
from cavity.likelihoods.quadrature.trapezoid import CEILING, LEAST

DROP = 34.0  # the integrand ends where its logarithm has fallen by this
STEP = 0.5  # of the rule, in standard deviations of the integrand where it is sharpest
RESOLVED = 36.0  # logarithm of the error of a rival's step, relative to its weight
MOST = 160  # nodes
ROUND = 8  # numbers of nodes are multiples of it
MOST_CHANGE = 1e-4  # of the integrals, relative to their sizes, if every other node is left out: the error is far smaller
BYTES = 1 << 20  # of one array over a piece's nodes: it stays in the cache


class Integrals(NamedTuple):
    """log S without its constant, and means under the normalised integrand; see `largest.win`."""

    value: Tensor  # [B]
    own: Tensor  # [B 1], ⟨ρ⟩
    turn: Tensor  # [B 1], ⟨xρ⟩
    rate: Tensor  # [B R], ⟨β⟩
    pull: Tensor  # [B R], ⟨zβ⟩


def integrate(mean: Tensor, sd: Tensor) -> tuple[Integrals, Tensor]:
    """Return the integrals for rivals [B R] in units of the first normal, and the rows [B] that are not resolved."""
    B, R = mean.shape
    low, high, panels = find_span(mean, sd)
    count = (panels / ROUND).ceil() * ROUND
    found = mean.new_empty(B, 3 + 2 * R)
    resolved = torch.zeros(B, dtype=torch.bool, device=mean.device)
    for nodes in range(ROUND, MOST + 1, ROUND):
        place = (count == nodes).nonzero()[:, 0]
        for some in torch.split(place, max(1, BYTES // (8 * R * nodes))):
            if len(some):
                found[some], resolved[some] = _sum_nodes(mean[some], sd[some], low[some], high[some], nodes)
    return Integrals(found[:, 0], *torch.split(found[:, 1:], [1, 1, R, R], 1)), ~resolved


def find_span(mean: Tensor, sd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""Bound where g(x) = φ(x) Π_c Φ((x − μ_c)/s_c) exceeds exp(−DROP) of its largest value, and count panels; each [B].

    As in `trapezoid.find_span` for one class: with b = max(0, max_c μ_c), s the width of the rival at b,

        x ≤ √(b² + D)      x ≥ b − d − √(d² + D s²/(1 + s²)),   d = b s²/(1 + s²),   D = 2 (DROP − Σ_c log Φ((b − μ_c)/s_c))
    """
    best, leader = mean.max(-1, keepdim=True)
    share = sd.gather(-1, leader).square()
    share = torch.where(best > 0, share / (1 + share), 1.0)[:, 0]
    best = best.clamp_min(0)
    drop = 2 * (DROP - log_ndtr((best - mean) / sd).sum(-1))
    best = best[:, 0]
    back = best * share
    low, high = best - back - (back.square() + drop * share).sqrt(), (best.square() + drop).sqrt()
    z = ((best - back - share.sqrt())[:, None] - mean) / sd
    precision = 1 + (hazard_slope(z, hazard(z)) / sd.square()).sum(-1)
    # log of g at a rival's step relative to the largest value, at most
    weight = 0.5 * (best.square() + drop)[:, None] - DROP - 0.5 * mean.square()
    sharp = ((RESOLVED + weight.clamp(max=0)).clamp_min(0) / sd.square()).amax(-1) / (2 * math.pi**2)
    return low, high, (high - low) * torch.maximum(precision.sqrt() / STEP, sharp.sqrt())


def _sum_nodes(mean: Tensor, sd: Tensor, low: Tensor, high: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the integrals [B 3 + 2 R] of some rows, and whether leaving out every other node changes them little, [B]."""
    h = (high - low) / nodes
    steps = torch.arange(nodes + 1, dtype=mean.dtype, device=mean.device)
    x = torch.addcmul(low[:, None], h[:, None], steps)  # [B Q]
    rate = sd.reciprocal()
    z = (x[:, None] - mean[..., None]) * rate[..., None]  # [B R Q]
    beta, product = _hazards(z)
    weight = (-0.5 * x * x).exp_().mul_(product)
    total, half = weight.sum(-1), weight[:, ::2].sum(-1)
    rho = (rate[:, None] @ beta)[:, 0]
    # [B R+1 Q]; sums over every node, and over every other one
    terms = torch.cat([rho[:, None], beta], 1)
    arms = torch.cat([x[:, None], z], 1)
    sums = torch.stack([weight, torch.zeros_like(weight)], -1)
    sums[:, ::2, 1] = weight[:, ::2]
    first, second = terms @ sums, (terms * arms) @ sums  # [B R+1 2]
    norm = torch.stack([total, half], -1)[:, None]
    first, second = first / norm, second / norm
    change = torch.cat([(2 * half / total - 1).abs()[:, None], _change(first), _change(second)], 1).amax(-1)
    value = (total * h).log()
    found = torch.cat(
        [value[:, None], first[:, :1, 0], second[:, :1, 0], first[:, 1:, 0], second[:, 1:, 0]], 1
    )
    return found, (change < MOST_CHANGE) & (total > LEAST)


def _change(sums: Tensor) -> Tensor:
    """Return how far the two sums [... 2] differ, relative to 1 or to their size if that is more."""
    whole, half = sums.unbind(-1)
    return (half - whole).abs() / (1 + whole.abs())


def _hazards(z: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return β(z) [B R Q] and Π_c Φ(z_c) [B Q]; where a Φ is below 1e-290, so is the product."""
    u = (z * -SQRT_HALF).clamp_(max=CEILING)
    below = u > 0
    tail = torch.special.erfcx(u.abs())
    density = u.square_().neg_().exp_().mul_(0.5)
    tail.mul_(density)
    cdf = torch.where(below, tail, 1 - tail)
    return density.div_(cdf).mul_(SQRT_2_OVER_PI), cdf.prod(1)
