"""Probability that each of C independent normals is the largest. [METHOD 8]"""

from __future__ import annotations

import torch
from torch import Tensor

from cavity.common.namespaces import Array, namespace
from cavity.likelihoods.normal_tails import LOG_SQRT_2PI
from cavity.likelihoods.quadrature import trapezoid
from cavity.likelihoods.quadrature.far_tails import mend_far_tails
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
    rows, sd = mean.reshape(-1, mean.shape[-1]), var.sqrt().expand_as(mean).reshape(-1, mean.shape[-1])
    if mean.requires_grad or var.requires_grad or rows.dtype != torch.float64:
        return log_by_panels(rows, sd).reshape(mean.shape)
    log_p, left = trapezoid.log_probabilities(rows, sd)
    if left.any():
        log_p[left] = log_by_panels(rows[left], sd[left])
    found: Tensor = log_p.reshape(mean.shape)
    return found


def integrate_all_panels(mean: Array, var: Array, C: int) -> Array:
    """Return the same in any namespace, on panels between all breakpoints: a graph cannot branch on its rows."""
    sd = namespace(mean).sqrt(var)
    edges = bumps(mean, sd)
    if C > MANY:
        edges = thin(edges, *_find_range(mean, sd), MOST_EDGES)
    return _integrate(mean, sd, edges)


def _find_range(mean: Array, sd: Array) -> tuple[Array, Array]:
    """Return the lowest and the highest place of the largest value, [n 1]."""
    xp = namespace(mean)
    return xp.max(mean - REACH * sd), xp.max(mean + REACH * sd)


def leader_is_sure(mean: Tensor, var: Tensor) -> Tensor:
    r"""Return the rows where the class with the largest mean has probability above ½, by a bound alone, [n C] → [n].

    P(class l does not win) ≤ Σ_{c≠l} Φ(−(m_l − m_c)/√(v_l + v_c))
    """
    best, leader = mean.max(-1, keepdim=True)
    z = (mean - best) / (var + var.gather(-1, leader)).sqrt()
    lost: Tensor = torch.special.ndtr(z).sum(-1) - 0.5  # the leader's own term is ½
    return lost < 0.499


def log_by_panels(mean: Tensor, sd: Tensor) -> Tensor:
    """Integrate on Gauss–Legendre panels, a few rows at a time; far tails around their own modes."""
    C = mean.shape[-1]
    size = max(1, BYTES // (8 * C * ORDER * min(len(SPREAD) * C, MOST_EDGES)))
    parts = []
    for m, s in zip(torch.split(mean, size), torch.split(sd, size), strict=True):
        parts.append(_integrate_each(m, s, s, bumps(m, s)) if C <= MANY else _integrate_crowd(m, s))
    log_p = torch.cat(parts)
    if log_p.requires_grad or log_p.dtype != torch.float64:
        return log_p
    return mend_far_tails(log_p, mean, sd)


def _integrate_each(mean: Tensor, sd: Tensor, sharp: Tensor, edges: Tensor) -> Tensor:
    """Integrate every row on the shortest grid that resolves its bumps; very uneven rows use all breakpoints.

    `sharp`: the widths of the bumps, ∞ for bumps without mass here.
    """
    log_p = torch.empty_like(mean)
    for place, own in shortest_grids(edges, natural_length(edges, mean, sharp)):
        log_p[place] = _integrate(mean[place], sd[place], own)
    return log_p


def _integrate(mean: Array, sd: Array, edges: Array) -> Array:
    xp, grid = namespace(mean), piecewise_legendre(edges)
    z = (grid.nodes[..., None] - mean[..., None, :]) / sd[..., None, :]  # [n Q C]
    log_cdf = xp.log_ndtr(z)
    log_density = -0.5 * z * z - (xp.log(sd) + LOG_SQRT_2PI)[..., None, :]
    return xp.logsumexp(log_density + (xp.sum(log_cdf) - log_cdf) + grid.log_weights[..., None], 1)


def _integrate_crowd(mean: Tensor, sd: Tensor) -> Tensor:
    """Integrate rows of many classes: only those that can be the largest need panels of their width.

    The largest value has no mass below L = max_c (m_c − reach·sd_c). So a class whose whole mass lies below L is not a rival.
    """
    floor, ceiling = _find_range(mean, sd)
    sharp = sd.masked_fill(mean + REACH * sd < floor, torch.inf)
    return _integrate_each(mean, sd, sharp, thin(bumps(mean, sd), floor, ceiling, MOST_EDGES))
