"""Probability that each of C independent normals is the largest. [METHOD 8]"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cavity.likelihoods.normal_tails import log_ndtr, log_normal_pdf
from cavity.likelihoods.quadrature import single_row, trapezoid
from cavity.likelihoods.quadrature.grid import (
    ORDER,
    SPREAD,
    bumps,
    natural_length,
    piecewise_legendre,
    shortest_grids,
    thin,
)

MANY = 16  # with more classes, only those that can be the largest get breakpoints
REACH = 8.5  # standard deviations beyond which a normal has no mass in float64
MOST_EDGES = MANY * len(SPREAD)
BYTES = 64 << 20  # of one array over a piece's nodes


def log_argmax_probability(mean: Tensor, var: Tensor) -> Tensor:
    r"""Return log P(f_k is the largest) for independent normals, [... C] → [... C].        [METHOD 8]

        p_k = ∫ N(f; m_k, v_k) Π_{c≠k} Φ((f − m_c)/√v_c) df

    One grid per row serves all its classes: the trapezoidal rule, or panels that adapt to each class where that does not resolve
    the row. The result is not normalised: |Σ_k p_k − 1| is the error of the quadrature.
    """
    learns = mean.requires_grad or var.requires_grad
    if mean.shape == var.shape == (1, mean.shape[-1]) and _suits_numpy(mean) and not learns:
        from scipy import special

        found = single_row.log_probabilities(mean.numpy()[0], np.sqrt(var.numpy()[0]), special)
        if found is not None:
            return torch.from_numpy(found[None])
    rows, sd = mean.reshape(-1, mean.shape[-1]), var.sqrt().expand_as(mean).reshape(-1, mean.shape[-1])
    if learns or rows.dtype != torch.float64:
        return _by_panels(rows, sd).reshape(mean.shape)
    log_p, left = trapezoid.log_probabilities(rows, sd)
    place = left.nonzero()[:, 0]
    if len(place):
        log_p[place] = _by_panels(rows[place], sd[place])
    return log_p.reshape(mean.shape)


def _suits_numpy(mean: Tensor) -> bool:
    return mean.dtype == torch.float64 and not mean.is_cuda


def leader_is_sure(mean: Tensor, var: Tensor) -> Tensor:
    r"""Return the rows where the class with the largest mean has probability above ½, by a bound alone, [n C] → [n].

    P(class l does not win) ≤ Σ_{c≠l} Φ(−(m_l − m_c)/√(v_l + v_c))
    """
    best, leader = mean.max(-1, keepdim=True)
    z = (mean - best) / (var + var.gather(-1, leader)).sqrt()
    lost: Tensor = torch.special.ndtr(z).sum(-1) - 0.5  # the leader's own term is ½
    return lost < 0.499


def _by_panels(mean: Tensor, sd: Tensor) -> Tensor:
    """Integrate on Gauss–Legendre panels, a few rows at a time."""
    C = mean.shape[-1]
    size = max(1, BYTES // (8 * C * ORDER * min(len(SPREAD) * C, MOST_EDGES)))
    parts = []
    for m, s in zip(torch.split(mean, size), torch.split(sd, size), strict=True):
        parts.append(_integrate_each(m, s, s, bumps(m, s)) if C <= MANY else _integrate_contenders(m, s))
    return torch.cat(parts)


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
