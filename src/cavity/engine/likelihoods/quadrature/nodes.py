"""Nodes for log-concave integrands on the line, and √(2π) φ/Φ and log Φ at them.

Does not load torch. [METHOD 8]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from cavity.common.namespaces import NUMPY, SQRT_HALF, Array, namespace
from cavity.common.slices import slices
from cavity.common.types import Floats

CEILING = 26.0  # largest −u: exp(−u²) is not 0, and erfcx(u) is finite
# size of an array over the nodes of a few rows: on the CPU it stays in the cache
CACHE_BYTES = 256 << 10
GPU_BYTES = 256 << 20
# ends of a table of log Φ: Φ < 1e-299 on the left, and 1 in float64 on the right
LOW = -37.0
HIGH = 9.0
CELLS = 256  # per unit of z: the cubics of the table err by less than 1e-13

# √(2π) φ/Φ [n C Q] and −Σ_c log Φ [n Q] at z = shift + rate · d, from [n C], [n C] and
# [n Q]
Evaluate = Callable[[Array, Array, Array], tuple[Array, Array]]


class Span(NamedTuple):
    """Where integrands have their mass, each [n 1]."""

    low: Array
    high: Array
    scale: Array  # on which they bend at the lower end

    def at(self, place: Array) -> Span:
        return Span(*(t[place] for t in self))


def find_length(span: Span, growth: float) -> Array:
    r"""Return t at `high`, [n 1], for nodes at equal steps of t.

    Their distance from `low` is

        d(t) = s sinh(ρt)/ρ        ρ = growth,  s = 1/√κ at `low`,  κ = −(log g)''

    κ falls with f. Left of the mode, the rise of log g from `low` is at least ½ κ d²
    and at most DROP, so that g bends on a scale 1/√κ of at least d/√(2 DROP): steps may
    grow in proportion to d.
    """
    xp = namespace(span.low)
    share = growth * (span.high - span.low) / span.scale
    return xp.log(share + xp.sqrt(share * share + 1)) * (1 / growth)


def place_nodes(
    span: Span, length: Array, nodes: int, growth: float
) -> tuple[Array, Array]:
    """Return distances d of nodes from `low`, and their weights, [n Q].

    Every other node comes first, then the others.
    """
    places = namespace(length).constant(_order(nodes), length)
    return spread_nodes(span, length * (growth / nodes), places, growth)


def spread_nodes(
    span: Span, step: Array, places: Array, growth: float
) -> tuple[Array, Array]:
    """Return distances d of nodes from `low`, and their weights, [n Q].

    `step` [n 1]: between nodes in ρt; `places` [Q]: of the nodes, in steps.
    """
    unit = span.scale * (0.5 / growth)
    grown = namespace(step).exp(step * places)
    shrunk = 1.0 / grown
    return unit * (grown - shrunk), (unit * step) * (grown + shrunk)


@cache
def _order(nodes: int) -> tuple[float, ...]:
    places = [0.5 + j for j in range(nodes)]
    return (*places[::2], *places[1::2])


def by_erfcx(shift: Array, rate: Array, d: Array) -> tuple[Array, Array]:
    r"""Evaluate anywhere.

    With u = −z/√2:

        log Φ(z) = log(½ erfcx(u)) − u²        √(2π) φ(z)/Φ(z) = 2/erfcx(u)
    """
    xp = namespace(d)
    u = (-SQRT_HALF * rate)[..., None] * d[:, None]
    u += (-SQRT_HALF * shift)[..., None]
    u = xp.maximum(u, -CEILING)
    half = 0.5 * xp.erfcx(u)
    u *= u
    u -= xp.log(half)
    return 1 / half, u.sum(1)


def sum_halves(terms: Array) -> Array:
    """Return the sums over both halves of the nodes, [n C Q] → [n C 2]."""
    return terms.reshape(*terms.shape[:-1], 2, terms.shape[-1] // 2).sum(-1)


class NodeTable:
    """`by_erfcx` in NumPy, which has no erfcx, by a table of cubics.

    For z < LOW, log Φ is log Φ(LOW).

    Arrays are used again, because new memory costs as much as the arithmetic. The next
    call overwrites the first result.
    """

    def __init__(self) -> None:
        self._numbers = np.empty((4, 0))
        self._cells = np.empty(0, np.intp)

    def __call__(self, shift: Array, rate: Array, d: Array) -> tuple[Array, Array]:
        shape = (*rate.shape, d.shape[1])
        size = math.prod(shape)
        if size > len(self._cells):
            self._numbers = np.empty((4, size))
            self._cells = np.empty(size, np.intp)
        t, local, found, coefficient = self._numbers[:, :size].reshape(4, *shape)
        cell = self._cells[:size].reshape(shape)
        # z in cells of the table
        np.multiply((CELLS * rate)[..., None], d[:, None], out=t)
        t += (CELLS * shift)[..., None]
        np.minimum(np.maximum(t, CELLS * LOW, out=local), CELLS * HIGH, out=local)
        local -= CELLS * LOW
        with np.errstate(invalid="ignore"):  # NaN becomes some integer
            np.copyto(cell, local, casting="unsafe")
        local -= cell

        highest, *lower = _coefficients()
        highest.take(cell, out=found, mode="clip")
        for values in lower:
            found *= local
            found += values.take(cell, out=coefficient, mode="clip")
        total = found.sum(1)
        t *= t
        t *= -0.5 / CELLS**2
        t += found
        return np.exp(t, out=t), total


@cache
def _coefficients() -> Floats:
    """Return the coefficients of −log Φ in each cell, highest power first.

    The cubics interpolate at the Chebyshev points; beyond HIGH they are 0.
    """
    angles = np.pi * (np.arange(4) + 0.5) / 4
    x = 0.5 + 0.5 * np.cos(angles)  # in [0, 1]
    z = LOW + (np.arange((HIGH - LOW) * CELLS)[:, None] + x) / CELLS
    values = np.linalg.solve(np.vander(x), -NUMPY.log_ndtr(z).T)  # [4 cells]
    return np.pad(values, ((0, 0), (0, 1)))


def choose_evaluator(xp: Any) -> Evaluate:
    return NodeTable() if xp is NUMPY else by_erfcx


def cut_rows(n: int, width: int, like: Array) -> Iterator[slice]:
    """Yield slices of n rows, a few at a time, for `width` numbers per row.

    Without rows there is one empty slice.
    """
    held = CACHE_BYTES
    if namespace(like) is not NUMPY and like.is_cuda:
        held = GPU_BYTES
    size = max(1, held // (8 * width))
    return slices(n, size)
