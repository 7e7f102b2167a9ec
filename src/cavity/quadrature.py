"""Integrals over one latent value: Gauss–Legendre between well-placed breakpoints. [METHOD 8]"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavity.numerics import hazard, hazard_slope, log_ndtr, log_normal_pdf

# Breakpoints around every bump, in its own standard deviations; ±16 and ±38 keep logarithms right in far tails.
SPREAD = (-38.0, -16.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 38.0)
ORDER = 8
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(ORDER)

MANY = 16  # from this number of classes on, only those that can be the largest get breakpoints
REACH = 8.5  # standard deviations beyond which a normal has no mass in float64
MOST_EDGES = MANY * len(SPREAD)


class Grid(NamedTuple):
    """Quadrature nodes of a row and the logarithm of their weights."""

    nodes: Tensor  # [... Q]
    log_weights: Tensor  # [... Q]


def piecewise_legendre(edges: Tensor) -> Grid:
    """Eight Gauss–Legendre nodes between each pair of neighbouring edges ([... E], sorted)."""
    nodes = torch.as_tensor(_NODES, dtype=edges.dtype, device=edges.device)
    weights = torch.as_tensor(_WEIGHTS, dtype=edges.dtype, device=edges.device)
    half = 0.5 * edges.diff(dim=-1)[..., None]
    mid = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None]
    return Grid((mid + half * nodes).flatten(-2), (half * weights).log().flatten(-2))


def bumps(mean: Tensor, sd: Tensor) -> Tensor:
    """Sorted breakpoints [... 13 C] around C bumps, given as [... C]."""
    spread = torch.as_tensor(SPREAD, dtype=mean.dtype, device=mean.device)
    return (mean[..., None] + sd[..., None] * spread).flatten(-2).sort(-1).values


def log_argmax_probability(mean: Tensor, var: Tensor) -> Tensor:
    r"""log P(f_k is the largest) for independent normals, [n C] → [n C].        [METHOD 8]

        p_k = ∫ N(f; m_k, v_k) Π_{c≠k} Φ((f − m_c)/√v_c) df

    One grid a row serves all its classes. Not normalised: |Σ_k p_k − 1| is the error of the quadrature.
    """
    sd = var.sqrt()
    if mean.shape[-1] <= MANY:
        return _integrate(mean, sd, bumps(mean, sd))
    return _integrate_contenders(mean, sd)


def _integrate(mean: Tensor, sd: Tensor, edges: Tensor) -> Tensor:
    grid = piecewise_legendre(edges)
    z = (grid.nodes[..., None] - mean[..., None, :]) / sd[..., None, :]  # [n Q C]
    log_cdf = log_ndtr(z)
    log_others = log_cdf.sum(-1, keepdim=True) - log_cdf
    log_integrand = log_normal_pdf(z) - sd[..., None, :].log() + log_others
    return (log_integrand + grid.log_weights[..., None]).logsumexp(-2)


def _integrate_contenders(mean: Tensor, sd: Tensor) -> Tensor:
    """Many classes: drop those that cannot be the largest, thin the breakpoints of the rest.

    Below L = max_c (m_c − reach·sd_c) the largest value has no mass, so a class whose whole mass lies below L
    is no rival; its own log p is bounded by its duel with the class that sets L.
    """
    low = mean - REACH * sd
    floor, leader = low.max(-1, keepdim=True)
    ceiling = (mean + REACH * sd).max(-1, keepdim=True).values
    contends = mean + REACH * sd >= floor
    count = int(contends.sum(-1).max())
    # the contenders with the highest reach come first; ties beyond `count` add only classes without mass
    chosen = (mean + REACH * sd).topk(count, dim=-1).indices
    m, s = mean.gather(-1, chosen), sd.gather(-1, chosen)
    real = contends.gather(-1, chosen)
    edges = _own_edges(m, s, real, floor, ceiling)
    duel = log_ndtr((mean - mean.gather(-1, leader)) / (sd.square() + sd.gather(-1, leader).square()).sqrt())
    return duel.scatter(-1, chosen, torch.where(real, _integrate(m, s, edges), duel.gather(-1, chosen)))


def _own_edges(m: Tensor, s: Tensor, real: Tensor, floor: Tensor, ceiling: Tensor) -> Tensor:
    """Breakpoints of a row's own contenders, whatever the other rows of the batch need; crowds are thinned."""
    edges = bumps(m.masked_fill(~real, torch.inf), s * real)  # those of no contender come last
    last = edges.masked_fill(edges.isinf(), -torch.inf).amax(-1, keepdim=True)
    few = torch.minimum(edges[..., :MOST_EDGES], last)
    if m.shape[-1] <= MANY:
        return few
    return torch.where(real.sum(-1, keepdim=True) > MANY, _thin(edges, floor, ceiling), few)


def _thin(edges: Tensor, floor: Tensor, ceiling: Tensor) -> Tensor:
    """At most MOST_EDGES breakpoints: evenly spaced ranks of those inside [floor, ceiling], ends included."""
    inside = edges.clamp(floor, ceiling)
    below = (edges <= floor).sum(-1, keepdim=True) - 1
    above = (edges < ceiling).sum(-1, keepdim=True)
    below, above = below.clamp(min=0), above.clamp(max=edges.shape[-1] - 1)
    share = torch.linspace(0, 1, MOST_EDGES, dtype=edges.dtype, device=edges.device)
    rank = (below + share * (above - below)).round().long()
    return inside.gather(-1, rank)


class PowerMoments(NamedTuple):
    """log ∫ Φ(d/√R)^e N(d; μ, V) dd, with its derivatives in μ, V and R."""

    value: Tensor
    dm: Tensor
    dv: Tensor
    dr: Tensor


def probit_power(mean: Tensor, var: Tensor, residual: Tensor, exponent: Tensor) -> PowerMoments:
    r"""Tilted normaliser of a fractional probit, g(d) = e log Φ(d/√R).        [METHOD 4, power EP]

    ∂/∂μ = ⟨g'⟩      ∂/∂V = ½⟨g'' + g'²⟩      ∂/∂R = ⟨∂g/∂R⟩        (⟨·⟩: under Φ^e N, normalised)
    """
    # a degenerate width would leave no grid; 1e-16 of the other is a point mass to all digits that matter
    var = torch.maximum(var, 1e-16 * residual)
    residual = torch.maximum(residual, 1e-16 * var)
    sd, width = var.sqrt(), residual.sqrt()
    # left of 0 the integrand is a normal of precision 1/V + e/R around `shifted`; right of 0 it is a tail of
    # N(μ, V), which falls by e in V/|μ|
    slope = exponent / residual
    shifted = mean.clamp(max=0) / (1 + var * slope)
    narrow = (1 / (1 / var + slope)).sqrt()
    tail = var / (mean * mean + var).sqrt()
    zero = torch.zeros_like(mean)
    edges = bumps(torch.stack([mean, zero, shifted, zero], -1), torch.stack([sd, width, narrow, tail], -1))
    grid = piecewise_legendre(edges.detach())  # where the nodes lie has no derivative; edges may coincide
    alpha = grid.nodes / width[..., None]
    beta = hazard(alpha)
    e = exponent[..., None]
    log_g = (
        e * log_ndtr(alpha)
        + log_normal_pdf((grid.nodes - mean[..., None]) / sd[..., None])
        + grid.log_weights
    )
    value = log_g.logsumexp(-1)
    p = (log_g - value[..., None]).exp()
    g1 = e * beta / width[..., None]
    g2 = -e * hazard_slope(alpha, beta) / residual[..., None]
    gr = -0.5 * e * beta * alpha / residual[..., None]
    return PowerMoments(
        value - sd.log(), (p * g1).sum(-1), 0.5 * (p * (g2 + g1 * g1)).sum(-1), (p * gr).sum(-1)
    )
