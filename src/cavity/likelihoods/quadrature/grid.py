"""Gauss–Legendre quadrature between well-placed breakpoints. [METHOD 8]

Grids of all breakpoints are written over an array namespace, for NumPy and ONNX graphs too; shorter ones follow from the values,
in torch, which only they load.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cavity.common.namespaces import Array, namespace

if TYPE_CHECKING:
    from torch import Tensor

# Breakpoints around every bump, in its own standard deviations; ±16 and ±38 keep logarithms accurate in far tails.
SPREAD = (-38.0, -16.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 38.0)
ORDER = 8
SIZES = (16, 24, 32, 48, 96, 192)  # numbers of panels of the grids
ENOUGH = 1.25  # natural panels per panel: probabilities are then accurate to about 1e-12
NEAR = 2.5  # standard deviations within which a bump needs panels of one standard deviation
_NODES, _WEIGHTS = (tuple(column.tolist()) for column in np.polynomial.legendre.leggauss(ORDER))


class Grid(NamedTuple):
    """Quadrature nodes of a row and the logarithm of their weights."""

    nodes: Array  # [... Q]
    log_weights: Array  # [... Q]


def piecewise_legendre(edges: Array) -> Grid:
    """Return eight Gauss–Legendre nodes between each pair of neighbouring edges ([... E], sorted)."""
    xp = namespace(edges)
    nodes, weights = xp.constant(_NODES, edges), xp.constant(_WEIGHTS, edges)
    low, high = edges[..., :-1], edges[..., 1:]
    half, mid = (0.5 * (high - low))[..., None], (0.5 * (high + low))[..., None]
    with np.errstate(divide="ignore"):  # two equal edges
        return Grid(xp.flatten(mid + half * nodes), xp.flatten(xp.log(half * weights)))


def bumps(mean: Array, sd: Array) -> Array:
    """Return sorted breakpoints [... 13 C] around C bumps, given as [... C]."""
    xp = namespace(mean)
    return xp.sort(xp.flatten(mean[..., None] + sd[..., None] * xp.constant(SPREAD, mean)))


def natural_length(edges: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    """Return the panels up to each edge, [... E]: one is max(1, |z|/2.5) standard deviations of the sharpest bump nearby."""
    import torch

    z = (edges[..., None] - mean[..., None, :]) / sd[..., None, :]
    density = ((z.abs() / NEAR).clamp_min(1) * sd[..., None, :]).reciprocal().amax(-1)
    parts = 0.5 * edges.diff(dim=-1) * (density[..., 1:] + density[..., :-1])
    return torch.cat([torch.zeros_like(parts[..., :1]), parts.cumsum(-1)], -1)


def respace(edges: Tensor, length: Tensor, panels: int) -> Tensor:
    """Return breakpoints at equal steps of a length that increases along the edges, [... E] → [... panels + 1]."""
    import torch

    steps = torch.linspace(0, 1, panels + 1, dtype=edges.dtype, device=edges.device) * length[..., -1:]
    after = torch.searchsorted(length, steps, right=True).clamp(1, edges.shape[-1] - 1)
    low, high = (length.gather(-1, i) for i in (after - 1, after))
    left, right = (edges.gather(-1, i) for i in (after - 1, after))
    share = ((steps - low) / (high - low).clamp_min(torch.finfo(edges.dtype).tiny)).clamp(0, 1)
    return left + share * (right - left)


def shortest_grids(edges: Tensor, length: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield indices of rows with the shortest grid that resolves them; rows that no grid resolves keep all their edges."""
    import torch

    panels, left = length[:, -1] / ENOUGH, torch.ones(len(edges), dtype=torch.bool, device=edges.device)
    for most in SIZES:
        place = (left & (panels <= most)).nonzero()[:, 0]
        if len(place):
            left[place] = False
            yield place, respace(edges[place], length[place], most)
    place = left.nonzero()[:, 0]
    if len(place):
        yield place, edges[place]
