"""Gauss–Legendre quadrature between well-placed breakpoints. [METHOD 8]

For torch, NumPy and ONNX graphs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.common.namespaces import Array, namespace

# Breakpoints around every bump, in its own standard deviations; ±16 and ±38 keep
# logarithms accurate in far tails.
SPREAD = (-38.0, -16.0, -8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 38.0)
ORDER = 8
_legendre = np.polynomial.legendre.leggauss(ORDER)
_NODES, _WEIGHTS = (tuple(column.tolist()) for column in _legendre)


class Grid(NamedTuple):
    """Quadrature nodes of a row and the logarithm of their weights."""

    nodes: Array  # [... Q]
    log_weights: Array  # [... Q]


def piecewise_legendre(edges: Array) -> Grid:
    """Return eight Gauss–Legendre nodes between each pair of neighbouring edges.

    Edges are sorted, [... E].
    """
    xp = namespace(edges)
    nodes = xp.constant(_NODES, edges)
    weights = xp.constant(_WEIGHTS, edges)
    low = edges[..., :-1]
    high = edges[..., 1:]
    half = (0.5 * (high - low))[..., None]
    mid = (0.5 * (high + low))[..., None]
    with np.errstate(divide="ignore"):  # two equal edges
        log_weights = xp.log(half * weights)
    return Grid(xp.flatten(mid + half * nodes), xp.flatten(log_weights))


def bumps(mean: Array, sd: Array) -> Array:
    """Return sorted breakpoints [... 13 C] around C bumps, given as [... C]."""
    xp = namespace(mean)
    edges = mean[..., None] + sd[..., None] * xp.constant(SPREAD, mean)
    return xp.sort(xp.flatten(edges))
