"""Probability that each of C independent normals is the largest. [METHOD 8]"""

from __future__ import annotations

import torch
from torch import Tensor

from cavity.numerics import log_ndtr, log_normal_pdf
from cavity.quadrature.grid import SPREAD, bumps, natural_length, piecewise_legendre, shortest_grids, thin

MANY = 16  # with more classes, only those that can be the largest get breakpoints
REACH = 8.5  # standard deviations beyond which a normal has no mass in float64
MOST_EDGES = MANY * len(SPREAD)


def log_argmax_probability(mean: Tensor, var: Tensor) -> Tensor:
    r"""Return log P(f_k is the largest) for independent normals, [... C] → [... C].        [METHOD 8]

        p_k = ∫ N(f; m_k, v_k) Π_{c≠k} Φ((f − m_c)/√v_c) df

    One grid per row serves all its classes. The result is not normalised: |Σ_k p_k − 1| is the error of the quadrature.
    """
    rows, sd = mean.reshape(-1, mean.shape[-1]), var.sqrt().expand_as(mean).reshape(-1, mean.shape[-1])
    if mean.shape[-1] <= MANY:
        return _integrate_each(rows, sd, sd, bumps(rows, sd)).reshape(mean.shape)
    return _integrate_contenders(rows, sd).reshape(mean.shape)


def _integrate_each(mean: Tensor, sd: Tensor, sharp: Tensor, edges: Tensor) -> Tensor:
    """Integrate every row on the shortest grid that resolves its bumps; very uneven rows use all breakpoints.

    `sharp`: the widths of the bumps, ∞ for bumps without mass here.
    """
    log_p = torch.empty_like(mean)
    for place, own in shortest_grids(edges, natural_length(edges, mean, sharp)):
        log_p[place] = _integrate(mean[place], sd[place], own)
    return log_p


def _integrate(mean: Tensor, sd: Tensor, edges: Tensor) -> Tensor:
    grid = piecewise_legendre(edges)
    z = (grid.nodes[..., None] - mean[..., None, :]) / sd[..., None, :]  # [n Q C]
    log_cdf = log_ndtr(z)
    log_others = log_cdf.sum(-1, keepdim=True) - log_cdf
    log_integrand = log_normal_pdf(z) - sd[..., None, :].log() + log_others
    return (log_integrand + grid.log_weights[..., None]).logsumexp(-2)


def _integrate_contenders(mean: Tensor, sd: Tensor) -> Tensor:
    """Integrate rows of many classes: drop classes that cannot be the largest, thin the breakpoints of the others.

    The largest value has no mass below L = max_c (m_c − reach·sd_c). So a class whose whole mass lies below L is not a rival.
    Its own log p is bounded by its duel with the class that sets L.
    """
    low = mean - REACH * sd
    floor, leader = low.max(-1, keepdim=True)
    ceiling = (mean + REACH * sd).max(-1, keepdim=True).values
    contends = mean + REACH * sd >= floor
    count = int(contends.sum(-1).max())
    # contenders with the highest reach come first; ties beyond `count` add only classes without mass
    chosen = (mean + REACH * sd).topk(count, dim=-1).indices
    m, s = mean.gather(-1, chosen), sd.gather(-1, chosen)
    real = contends.gather(-1, chosen)
    edges = _own_edges(m, s, real, floor, ceiling)
    won = _integrate_each(m, s, s.masked_fill(~real, torch.inf), edges)
    duel = log_ndtr((mean - mean.gather(-1, leader)) / (sd.square() + sd.gather(-1, leader).square()).sqrt())
    return duel.scatter(-1, chosen, torch.where(real, won, duel.gather(-1, chosen)))


def _own_edges(m: Tensor, s: Tensor, real: Tensor, floor: Tensor, ceiling: Tensor) -> Tensor:
    """Return the breakpoints of a row's own contenders, independent of the other rows; thin them if there are many."""
    edges = bumps(m.masked_fill(~real, torch.inf), s * real)  # those of non-contenders come last
    last = edges.masked_fill(edges.isinf(), -torch.inf).amax(-1, keepdim=True)
    few = torch.minimum(edges[..., :MOST_EDGES], last)
    if m.shape[-1] <= MANY:
        return few
    return torch.where(real.sum(-1, keepdim=True) > MANY, thin(edges, floor, ceiling, MOST_EDGES), few)
