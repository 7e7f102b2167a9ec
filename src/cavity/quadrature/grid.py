"""Gauss–Legendre between well-placed breakpoints. [METHOD 8]"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavity.numerics import constant

# Breakpoints around every bump, in its own standard deviations; ±16 and ±38 keep logarithms right in far tails.
SPREAD = (-38.0, -16.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 38.0)
ORDER = 8
_NODES, _WEIGHTS = (tuple(column.tolist()) for column in np.polynomial.legendre.leggauss(ORDER))


class Grid(NamedTuple):
    """Quadrature nodes of a row and the logarithm of their weights."""

    nodes: Tensor  # [... Q]
    log_weights: Tensor  # [... Q]


def piecewise_legendre(edges: Tensor) -> Grid:
    """Eight Gauss–Legendre nodes between each pair of neighbouring edges ([... E], sorted)."""
    nodes, weights = constant(_NODES, edges), constant(_WEIGHTS, edges)
    half = 0.5 * edges.diff(dim=-1)[..., None]
    mid = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None]
    return Grid((mid + half * nodes).flatten(-2), (half * weights).log().flatten(-2))


def bumps(mean: Tensor, sd: Tensor) -> Tensor:
    """Sorted breakpoints [... 13 C] around C bumps, given as [... C]."""
    return (mean[..., None] + sd[..., None] * constant(SPREAD, mean)).flatten(-2).sort(-1).values


def thin(edges: Tensor, floor: Tensor, ceiling: Tensor, most: int) -> Tensor:
    """At most `most` breakpoints: evenly spaced ranks of those inside [floor, ceiling], ends included."""
    inside = edges.clamp(floor, ceiling)
    below = (edges <= floor).sum(-1, keepdim=True) - 1
    above = (edges < ceiling).sum(-1, keepdim=True)
    below, above = below.clamp(min=0), above.clamp(max=edges.shape[-1] - 1)
    share = torch.linspace(0, 1, most, dtype=edges.dtype, device=edges.device)
    rank = (below + share * (above - below)).round().long()
    return inside.gather(-1, rank)
