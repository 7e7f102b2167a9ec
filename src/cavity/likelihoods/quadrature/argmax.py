"""Probability that each of C independent normals is the largest. [METHOD 8]"""

from __future__ import annotations

import torch
from torch import Tensor

from cavity.common.namespaces import Array, namespace
from cavity.likelihoods.normal_tails import LOG_SQRT_2PI
from cavity.likelihoods.quadrature import trapezoid
from cavity.likelihoods.quadrature.far_tails import mend_far_tails
from cavity.likelihoods.quadrature.grid import (
    MANY,
    ORDER,
    SPREAD,
    bumps,
    natural_length,
    piecewise_legendre,
    shortest_grids,
    thin,
)

REACH = 8.5  # standard deviations beyond which a normal has no mass in float64
MOST_EDGES = MANY * len(SPREAD)
FEW = 4  # rows up to which NumPy is faster than dozens of small torch calls
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
    if len(rows) <= FEW and not rows.is_cuda:
        log_p, left = map(torch.from_numpy, trapezoid.log_probabilities(rows.numpy(), sd.numpy()))
    else:
        log_p, left = trapezoid.log_probabilities(rows, sd)
    if left.any():
        log_p[left] = log_by_panels(rows[left], sd[left])
    found: Tensor = log_p.reshape(mean.shape)
    return found


def integrate_all_panels(mean: Array, var: Array, C: int) -> Array:
    """Return the same in any namespace, on panels between all breakpoints: a graph cannot branch on its rows."""
    sd = namespace(mean).sqrt(var)
    return _integrate(mean, sd, _find_edges(mean, sd, C)[0])


def _find_edges(mean: Array, sd: Array, C: int) -> tuple[Array, Array | None]:
    """Return breakpoints, and the lowest place of the largest value, [n 1], if there are many classes."""
    xp, edges = namespace(mean), bumps(mean, sd)
    if C <= MANY:
        return edges, None
    floor, ceiling = xp.max(mean - REACH * sd), xp.max(mean + REACH * sd)
    return thin(edges, floor, ceiling, MOST_EDGES), floor


def log_by_panels(mean: Tensor, sd: Tensor) -> Tensor:
    """Integrate every row on the shortest grid of Gauss–Legendre panels that resolves it; far tails around their own modes."""
    C = mean.shape[-1]
    size = max(1, BYTES // (8 * C * ORDER * min(len(SPREAD) * C, MOST_EDGES)))
    log_p = torch.empty_like(mean)
    for some in torch.split(torch.arange(len(mean), device=mean.device), size):
        m, s = mean[some], sd[some]
        edges, floor = _find_edges(m, s, C)
        # of many classes, only those that can be the largest need panels of their width: the others have no mass above `floor`
        sharp = s if floor is None else s.masked_fill(m + REACH * s < floor, torch.inf)
        for place, own in shortest_grids(edges, natural_length(edges, m, sharp)):
            log_p[some[place]] = _integrate(m[place], s[place], own)
    if log_p.requires_grad or log_p.dtype != torch.float64:
        return log_p
    return mend_far_tails(log_p, mean, sd)


def _integrate(mean: Array, sd: Array, edges: Array) -> Array:
    xp, grid = namespace(mean), piecewise_legendre(edges)
    z = (grid.nodes[..., None] - mean[..., None, :]) / sd[..., None, :]  # [n Q C]
    log_cdf = xp.log_ndtr(z)
    log_density = -0.5 * z * z - (xp.log(sd) + LOG_SQRT_2PI)[..., None, :]
    return xp.logsumexp(log_density + (xp.sum(log_cdf) - log_cdf) + grid.log_weights[..., None], 1)
