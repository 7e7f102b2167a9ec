"""Array namespaces: a formula is written once, for NumPy arrays, torch tensors and values of an ONNX graph.

A formula uses operators (`+ − * / @`), `x[:, None]`, `X[:, columns]`, `.T` of a matrix, and the functions of a namespace:

    array             a tensor or an array in this namespace
    largest           the largest number of the array's type
    exp, log, log1p, sqrt, abs, tanh, maximum, minimum, clip, where      as in NumPy; `exp_` and `minimum_` may overwrite
                      their argument
    log_ndtr, log_sigmoid      log Φ(x) and log σ(x), accurate in both tails
    may_exceed        whether some |x| may be above a number: True where the values are not known, or take long to read
    max, sum          over the last axis, which stays; max_over another one
    count             how many Booleans of the last axis are true; the axis stays
    logsumexp         over one axis, which goes; in a graph of numbers that do not overflow, and at least log TINY
                      (onnxruntime sums no rows over axes counted from the end wrongly)
    log_softmax       x − log Σ exp x over the last axis
    concat, stack     along the last axis, along a new last axis
    sort              along the last axis
    flatten           [n a b] → [n ab], in torch and NumPy also of more axes
    constant          numbers as an array like another
    as_index          the nearest integers
    column_sum        Σ_m x_cmn, [C M n] → [C n]
    products          u·v of points [C M D] and rows [n D], [C M n]; in torch also of [C n D], for k(Z, Z)
    add_products_     offset + u·v; may overwrite the offset
    repeat_rows       x once for each row of X, [... 1] → [... n]
    solve_lower       lower⁻¹ B, [C M n]
    look_up           entries of each row of a table, [d K], [d n] → [d n]

NumPy and torch, whose values can be read, also have erf, erfc, erfcx(x) = exp(x²) erfc(x), ceil, min, arange(n, like) and
find(Booleans), the places of those that are true; swap, the last two axes; descending, the order of
each row; single precision; like(x, other), a NumPy array as an array like another.

Numbers of a formula are NumPy arrays where its rows are values of a graph. This module does not load torch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from cavity.common import array_tails
from cavity.common.onnx_graph import Value

LARGEST, TINY = float(np.finfo(np.float64).max), float(np.finfo(np.float64).tiny)
SADDLE, DEGREE = 3.0, 12  # of the polynomial for erfc in a graph: relative error 3e-9
Array = Any  # a NumPy array, a tensor, or a value of a graph


def namespace(x: Array) -> Any:
    """Return the functions of an array's kind."""
    if isinstance(x, np.ndarray):
        return NUMPY
    if isinstance(x, Value):
        return GRAPH
    from cavity.common.torch_namespace import TORCH

    return TORCH


def _to_numpy(x: Any) -> Array:
    found = x if isinstance(x, np.ndarray) else x.detach().cpu().numpy()
    return found.astype(np.float64, copy=False) if found.dtype.kind == "f" else found


def _add_products(offset: Array, points: Array, V: Array) -> Array:
    offset += (points.reshape(-1, points.shape[-1]) @ V.T).reshape(offset.shape)
    return offset


def _repeat_rows(x: Array, X: Array) -> Array:
    return x if X.shape[-2] == 1 else np.broadcast_to(x, (*x.shape[:-1], X.shape[-2]))


def _solve_lower(lower: Array, B: Array) -> Array:
    """Forward substitution: NumPy would factorise the triangle again."""
    X = np.broadcast_to(B, (max(len(lower), len(B)), *B.shape[1:])).copy()
    for i in range(X.shape[1]):
        X[:, i] -= (lower[:, i, None, :i] @ X[:, :i])[:, 0]
        X[:, i] /= lower[:, i, i, None]
    return X


def _special() -> Any:
    """Return SciPy's functions if they are loaded: they are faster than ours, but take longer to load."""
    return sys.modules.get("scipy.special", array_tails)


def _logsumexp(x: Array, axis: int) -> Array:
    top = x.max(axis, keepdims=True)
    return np.log(np.exp(x - top).sum(axis)) + top.squeeze(axis)


def _log_softmax(x: Array) -> Array:
    off = x - x.max(-1, keepdims=True)
    return off - np.log(np.exp(off).sum(-1, keepdims=True))


def in_torch(function: Callable[..., Any], *arrays: Array) -> Array:
    """Call a function of tensors with NumPy arrays."""
    import torch

    return function(*map(torch.tensor, arrays)).numpy()


def _log_sigmoid(xp: Any, x: Array) -> Array:
    return xp.minimum(x, 0.0) - xp.log1p(xp.exp(-xp.abs(x)))


def _log_ndtr_in_graph(z: Value) -> Value:
    r"""log Φ(z), from erfc(x) = exp(−x²) g(y)/(1 + 2x), x = |z|/√2.

    onnxruntime has no Erf of float64. g is smooth in y = (x − 3)/(x + 3): a polynomial, fitted here.
    """
    graph = z.graph
    x = graph.op("Abs", z) * math.sqrt(0.5)
    y = (x - SADDLE) / (x + SADDLE)
    *lower, highest = _erfc_coefficients()
    g = graph.value(highest)
    for coefficient in reversed(lower):
        g = y * g + coefficient
    ratio, below = g / (x * 4.0 + 2.0), z.at_most(0.0)
    scaled = graph.op("Where", z < 0.0, ratio, 1.0 - (-(x * x)).exp() * ratio)
    return scaled.log() - below * below * 0.5


@cache
def _erfc_coefficients() -> tuple[float, ...]:
    """Coefficients of g, the lowest first."""
    from numpy.polynomial import chebyshev

    y = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    x = SADDLE * (1 + y) / (1 - y)
    fitted = chebyshev.cheb2poly(chebyshev.chebfit(y, (1 + 2 * x) * array_tails.erfcx(x), DEGREE))
    return tuple(float(c) for c in fitted)


def _join(parts: list[Value]) -> Value:
    return parts[0].graph.op("Concat", *parts, axis=-1)


def _sort_in_graph(x: Value) -> Value:
    count = x.graph.op("Shape", x, start=-1)
    return x.graph.op("TopK", x, count, axis=-1, largest=0, sorted=1)


def _cast(x: Value, to: str) -> Value:
    return x.graph.op("Cast", x, to=getattr(x.graph.onnx.TensorProto, to))


def _node(kind: str, in_numpy: Callable[..., Any] | None = None, **attributes: Any) -> Callable[..., Any]:
    """Return the function that adds a node to the graph of its arguments; with NumPy arrays alone it computes the value."""

    def add(*arguments: Any) -> Any:
        graph = next((x.graph for x in arguments if isinstance(x, Value)), None)
        return in_numpy(*arguments) if graph is None else graph.op(kind, *arguments, **attributes)  # type: ignore[misc]

    return add


NUMPY: Any = SimpleNamespace(
    array=_to_numpy,
    largest=lambda x: LARGEST,
    **{
        name: getattr(np, name)
        for name in "exp log log1p sqrt abs tanh maximum minimum where ceil reciprocal".split()
    },
    rsqrt=lambda x: 1 / np.sqrt(x),
    erf=lambda x: _special().erf(x),
    erfc=lambda x: _special().erfc(x),
    erfcx=lambda x: _special().erfcx(x),
    log_ndtr=lambda x: _special().log_ndtr(x),
    log_sigmoid=lambda x: _log_sigmoid(NUMPY, x),
    clip=lambda x, low, high: np.minimum(np.maximum(x, low), high),  # np.clip takes longer to start
    may_exceed=lambda x, most: np.maximum.reduce(np.abs(x), None) > most,
    exp_=lambda x: np.exp(x, out=x),
    minimum_=lambda x, high: np.minimum(x, high, out=x),
    max=lambda x: np.maximum.reduce(x, -1, keepdims=True),  # methods take twice as long to start
    min=lambda x: np.minimum.reduce(x, -1, keepdims=True),
    sum=lambda x: np.add.reduce(x, -1, keepdims=True),
    max_over=lambda x, axis: np.maximum.reduce(x, axis, keepdims=True),
    swap=lambda x: x.swapaxes(-1, -2),
    descending=lambda x: np.argsort(-x, 1, kind="stable"),
    single=lambda x: x.astype(np.float32),
    like=lambda x, other: x,
    find=np.flatnonzero,
    arange=lambda n, like: np.arange(n, dtype=np.float64),
    count=lambda x: x.sum(-1, keepdims=True),
    logsumexp=_logsumexp,
    log_softmax=_log_softmax,
    concat=lambda parts: np.concatenate(parts, -1),
    stack=lambda parts: np.stack(parts, -1),
    sort=np.sort,
    flatten=lambda x: x.reshape(*x.shape[:-2], -1),
    constant=lambda values, like: np.array(values),
    as_index=lambda x: np.rint(x).astype(np.int64),
    column_sum=lambda x: x.sum(1),
    products=lambda points, V: points @ V.T,
    add_products_=_add_products,
    repeat_rows=_repeat_rows,
    solve_lower=_solve_lower,
    look_up=lambda table, index: np.take_along_axis(table, index, 1),
)
GRAPH: Any = SimpleNamespace(
    largest=lambda x: LARGEST,
    exp=_node("Exp", np.exp),
    log=_node("Log"),
    log1p=lambda x: (x + 1.0).log(),
    sqrt=_node("Sqrt"),
    abs=_node("Abs"),
    tanh=_node("Tanh"),
    maximum=_node("Max"),
    minimum=_node("Min"),
    where=_node("Where"),
    log_ndtr=_log_ndtr_in_graph,
    log_sigmoid=lambda x: _log_sigmoid(GRAPH, x),
    clip=lambda x, low, high: x.at_least(low).at_most(high),
    may_exceed=lambda x, most: True,
    exp_=_node("Exp"),
    minimum_=_node("Min"),
    max=lambda x: x.max(-1, keepdims=True),
    max_over=lambda x, axis: x.max(axis, keepdims=True),
    sum=lambda x: x.sum(-1, keepdims=True),
    count=lambda x: _cast(x, "DOUBLE").sum(-1, keepdims=True),
    logsumexp=lambda x, axis: x.exp().sum(axis).at_least(TINY).log(),
    log_softmax=_node("LogSoftmax", axis=-1),
    concat=_join,
    stack=lambda parts: _join([part[..., None] for part in parts]),
    sort=_sort_in_graph,
    flatten=_node("Flatten", axis=1),
    constant=lambda values, like: np.array(values),
    as_index=lambda x: _cast(x.graph.op("Round", x), "INT64"),
    column_sum=lambda x: x.sum(1),
    products=lambda points, V: points @ V.T,
    add_products_=lambda offset, points, V: offset + points @ V.T,
    repeat_rows=lambda x, X: X.graph.op("Expand", x, X.graph.op("Shape", X, start=0, end=1)),
    # a product with the inverse, which is a constant of the graph
    solve_lower=lambda lower, B: _solve_lower(lower, np.eye(lower.shape[-1])[None]) @ B,
    look_up=_node("GatherElements", axis=1),
)
