"""Nodes for log-concave integrands on the line, and √(2π) φ/Φ and log Φ at them. Does not load torch. [METHOD 8]"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from cavity.common.namespaces import NUMPY, SQRT_HALF, Array, namespace
from cavity.likelihoods.quadrature.cdf_table import Table

CEILING = 26.0  # of |u|: exp(−u²) is not 0, and erfcx(−u) is finite
# of one array over a piece's nodes: on the CPU it stays in the cache; torch has threads to share it
NUMPY_BYTES, BYTES, GPU_BYTES = 512 << 10, 2 << 20, 256 << 20

# √(2π) φ/Φ [n C Q] and −Σ_c log Φ [n Q] at z = shift + rate · d, from [n C], [n C] and [n Q]
Evaluate = Callable[[Array, Array, Array], tuple[Array, Array]]


class Span(NamedTuple):
    """Where integrands have their mass, and the scale on which they bend at its lower end, each [n 1]."""

    low: Array
    high: Array
    scale: Array

    def at(self, place: Array) -> Span:
        return Span(*(t[place] for t in self))


def find_length(span: Span, growth: float) -> Array:
    r"""Return t at `high`, [n 1], for nodes at equal steps of t: the distance from `low` is

        d(t) = s sinh(ρt)/ρ        ρ = growth,  s = 1/√κ at `low`,  κ = −(log g)''

    κ falls with f. Left of the mode, the rise of log g from `low` is at least ½ κ d² and at most DROP, so that g bends on a scale
    1/√κ of at least d/√(2 DROP): steps may grow in proportion to d.
    """
    xp, share = namespace(span.low), growth * (span.high - span.low) / span.scale
    return xp.log(share + xp.sqrt(share * share + 1)) * (1 / growth)


def place_nodes(span: Span, length: Array, nodes: int, growth: float) -> tuple[Array, Array]:
    """Return distances d of nodes from `low`, and their weights, [n Q]: every other node first, then the others."""
    xp, unit, step = namespace(length), span.scale * (0.5 / growth), length * (growth / nodes)
    grown = xp.exp(step * xp.constant(_order(nodes), length))
    shrunk = 1.0 / grown
    return unit * (grown - shrunk), (unit * step) * (grown + shrunk)


@cache
def _order(nodes: int) -> tuple[float, ...]:
    return tuple(0.5 + j for start in (0, 1) for j in range(start, nodes, 2))


def by_erfcx(shift: Array, rate: Array, d: Array) -> tuple[Array, Array]:
    r"""Evaluate anywhere. With u = −z/√2,        log Φ(z) = log(½ erfcx(u)) − u²        √(2π) φ(z)/Φ(z) = 2/erfcx(u)"""
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
    return terms.reshape(*terms.shape[:-1], 2, -1).sum(-1)


def choose_evaluator(like: Array) -> Evaluate:
    """Return the fastest way to evaluate: on a CPU, a table."""
    return by_erfcx if namespace(like) is not NUMPY and like.is_cuda else Table(like)


def cut_rows(n: int, width: int, like: Array) -> Iterator[slice]:
    """Yield slices of n rows, a few at a time, each of `width` numbers."""
    held = NUMPY_BYTES if namespace(like) is NUMPY else GPU_BYTES if like.is_cuda else BYTES
    size = max(1, held // (8 * width))
    return (slice(start, start + size) for start in range(0, n, size))
