"""Array namespaces: a formula is written once, for NumPy arrays, torch tensors and values of an ONNX graph.

A formula uses operators (`+ − * / @`), `x[:, None]`, `X[:, columns]`, `.T` of a matrix, and the functions of a namespace:

    array             a tensor or an array in this namespace
    largest           the largest number of the array's type
    exp, log1p, sqrt, abs, tanh, maximum, minimum, clip      as in NumPy; `exp_` and `minimum_` may overwrite their argument
    may_exceed        whether some |x| may be above a number: True where the values are not known, or take long to read
    max               over the last axis, which stays
    column_sum        Σ_m x_cmn, [C M n] → [C n]
    products          u·v of points [C M D] and rows [n D], [C M n]; in torch also of [C n D], for k(Z, Z)
    add_products_     offset + u·v; may overwrite the offset
    repeat_rows       x once for each row of X, [... 1] → [... n]
    with_columns      rows with other values in some columns
    solve_lower       lower⁻¹ B, [C M n]
    count_up_to       how many entries of each ascending row of a table are at most x, [d K], [d n] → [d n]
    look_up           entries of each row of a table, [d K], [d n] → [d n]

Numbers of a formula are NumPy arrays where its rows are values of a graph. This module does not load torch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from cavity.common.onnx_graph import Value

LARGEST = float(np.finfo(np.float64).max)
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


def _with_columns(X: Array, place: Array, cells: Array) -> Array:
    out = X.copy()
    out[:, place] = cells
    return out


def _solve_lower(lower: Array, B: Array) -> Array:
    """Forward substitution: NumPy would factorise the triangle again."""
    X = np.broadcast_to(B, (max(len(lower), len(B)), *B.shape[1:])).copy()
    for i in range(X.shape[1]):
        X[:, i] -= (lower[:, i, None, :i] @ X[:, :i])[:, 0]
        X[:, i] /= lower[:, i, i, None]
    return X


def _count_up_to(table: Array, cells: Array) -> Array:
    return np.stack([np.searchsorted(row, x, side="right") for row, x in zip(table, cells, strict=True)])


def _count_in_graph(table: Array, cells: Value) -> Value:
    reached = cells.graph.op("GreaterOrEqual", cells[:, :, None], table[:, None])
    return cells.graph.op("Cast", reached, to=cells.graph.onnx.TensorProto.INT64).sum(2)


def _scatter_columns(X: Value, place: Array, cells: Value) -> Value:
    op = X.graph.op
    return op("ScatterElements", X, op("Expand", place[None], op("Shape", cells)), cells, axis=1)


def _node(kind: str, in_numpy: Callable[..., Any] | None = None, **attributes: Any) -> Callable[..., Any]:
    """Return the function that adds a node to the graph of its arguments; with NumPy arrays alone it computes the value."""

    def add(*arguments: Any) -> Any:
        graph = next((x.graph for x in arguments if isinstance(x, Value)), None)
        return in_numpy(*arguments) if graph is None else graph.op(kind, *arguments, **attributes)  # type: ignore[misc]

    return add


NUMPY = SimpleNamespace(
    array=_to_numpy,
    largest=lambda x: LARGEST,
    **{name: getattr(np, name) for name in "exp log1p sqrt abs tanh maximum minimum".split()},
    clip=lambda x, low, high: np.minimum(np.maximum(x, low), high),  # np.clip takes longer to start
    may_exceed=lambda x, most: np.abs(x).max() > most,
    exp_=lambda x: np.exp(x, out=x),
    minimum_=lambda x, high: np.minimum(x, high, out=x),
    max=lambda x: x.max(-1, keepdims=True),
    column_sum=lambda x: x.sum(1),
    products=lambda points, V: points @ V.T,
    add_products_=_add_products,
    repeat_rows=_repeat_rows,
    with_columns=_with_columns,
    solve_lower=_solve_lower,
    count_up_to=_count_up_to,
    look_up=lambda table, index: np.take_along_axis(table, index, 1),
)
GRAPH = SimpleNamespace(
    largest=lambda x: LARGEST,
    exp=_node("Exp", np.exp),
    log1p=lambda x: (x + 1.0).log(),
    sqrt=_node("Sqrt"),
    abs=_node("Abs"),
    tanh=_node("Tanh"),
    maximum=_node("Max"),
    minimum=_node("Min"),
    clip=lambda x, low, high: x.at_least(low).at_most(high),
    may_exceed=lambda x, most: True,
    exp_=_node("Exp"),
    minimum_=_node("Min"),
    max=lambda x: x.max(-1, keep=True),
    column_sum=lambda x: x.sum(1),
    products=lambda points, V: points @ V.T,
    add_products_=lambda offset, points, V: offset + points @ V.T,
    repeat_rows=lambda x, X: X.graph.op("Expand", x, X.graph.op("Shape", X, start=0, end=1)),
    with_columns=_scatter_columns,
    # a product with the inverse, which is a constant of the graph
    solve_lower=lambda lower, B: _solve_lower(lower, np.eye(lower.shape[-1])[None]) @ B,
    count_up_to=_count_in_graph,
    look_up=_node("GatherElements", axis=1),
)
