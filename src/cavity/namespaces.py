"""Array namespaces: a formula is written once, for NumPy arrays, torch tensors and values of an ONNX graph.

A formula uses operators (`+ − * / @`), `x[:, None]`, `.T` of a matrix, and for all else the functions of the namespace `xp` of its
argument. A name that ends with `_` may overwrite its first argument. Numbers of a graph's formula are NumPy arrays, so the
functions of a graph take these, too. This module does not load torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.onnx_graph import Value

LARGEST = float(np.finfo(np.float64).max)
Array = Any  # a NumPy array, a tensor, or a value of a graph


class NumpyNamespace:
    """Functions of NumPy arrays."""

    exp, log1p, sqrt, abs, tanh = map(staticmethod, (np.exp, np.log1p, np.sqrt, np.abs, np.tanh))
    maximum, minimum = staticmethod(np.maximum), staticmethod(np.minimum)

    @staticmethod
    def array(x: Any) -> Array:
        """Return a tensor or an array in this namespace."""
        if isinstance(x, np.ndarray):
            return x
        found = x.detach().cpu().numpy()
        return found.astype(np.float64) if found.dtype.kind == "f" else found

    @staticmethod
    def largest(x: Array) -> float:
        """Return the largest number of the array's type."""
        return LARGEST

    @staticmethod
    def exp_(x: Array) -> Array:
        return np.exp(x, out=x)

    @staticmethod
    def minimum_(x: Array, high: float) -> Array:
        return np.minimum(x, high, out=x)

    @staticmethod
    def max(x: Array) -> Array:
        """Return the maximum along the last axis, which stays."""
        return x.max(-1, keepdims=True)

    @staticmethod
    def column_sum(x: Array) -> Array:
        """Return Σ_m x_cmn, [C M n] → [C n]."""
        return x.sum(1)

    @staticmethod
    def products(points: Array, V: Array) -> Array:
        """Return u·v, [C M D] × [n D] → [C M n]."""
        C, M, D = points.shape
        return (points.reshape(C * M, D) @ V.T).reshape(C, M, len(V))

    @staticmethod
    def add_products_(offset: Array, points: Array, V: Array) -> Array:
        """Return offset + u·v, [C M n]."""
        offset += NumpyNamespace.products(points, V)
        return offset

    @staticmethod
    def repeat_rows(x: Array, X: Array) -> Array:
        """Repeat along the last axis for each row of X, [... 1] → [... n]."""
        n = X.shape[-2]
        return x if n == 1 else np.broadcast_to(x, (*x.shape[:-1], n))

    @staticmethod
    def solve_lower(lower: Array, B: Array) -> Array:
        """Return lower⁻¹ B, [C M n], by forward substitution: NumPy would factorise the triangle again."""
        X = np.broadcast_to(B, (max(len(lower), len(B)), *B.shape[1:])).copy()
        for i in range(X.shape[1]):
            X[:, i] -= (lower[:, i, None, :i] @ X[:, :i])[:, 0]
            X[:, i] /= lower[:, i, i, None]
        return X

    @staticmethod
    def columns(X: Array, place: Array) -> Array:
        """Return some columns of rows, transposed: [n D] → [d n]."""
        return X[:, place].T

    @staticmethod
    def with_columns(X: Array, place: Array, cells: Array) -> Array:
        """Return rows with other values in some columns, given as [d n]."""
        out = X.copy()
        out[:, place] = cells.T
        return out

    @staticmethod
    def count_up_to(table: Array, cells: Array) -> Array:
        """Return how many entries of each ascending row of a table are at most x, [d K] × [d n] → [d n]."""
        pairs = zip(table, cells, strict=True)
        return np.stack([np.searchsorted(entries, x, side="right") for entries, x in pairs])

    @staticmethod
    def look_up(table: Array, index: Array) -> Array:
        """Return entries of each row of a table, [d K] × [d n] → [d n]."""
        return np.take_along_axis(table, index, 1)


class GraphNamespace:
    """Functions of values of an ONNX graph: each adds the nodes that compute it."""

    @staticmethod
    def largest(x: Value) -> float:
        return LARGEST

    @staticmethod
    def exp(x: Array) -> Array:
        return x.exp() if isinstance(x, Value) else np.exp(x)

    @staticmethod
    def log1p(x: Value) -> Value:
        return (x + 1.0).log()

    @staticmethod
    def sqrt(x: Value) -> Value:
        return x.sqrt()

    @staticmethod
    def abs(x: Value) -> Value:
        return x.graph.op("Abs", x)

    @staticmethod
    def tanh(x: Value) -> Value:
        return x.graph.op("Tanh", x)

    @staticmethod
    def maximum(x: Value, low: Any) -> Value:
        return x.at_least(low)

    @staticmethod
    def minimum(x: Value, high: Any) -> Value:
        return x.at_most(high)

    exp_, minimum_ = exp, minimum

    @staticmethod
    def max(x: Value) -> Value:
        return x.max(-1, keep=True)

    @staticmethod
    def column_sum(x: Value) -> Value:
        return x.sum(1)

    @staticmethod
    def products(points: Array, V: Value) -> Value:
        return points @ V.T  # type: ignore[no-any-return]

    @staticmethod
    def add_products_(offset: Value, points: Array, V: Value) -> Value:
        return offset + GraphNamespace.products(points, V)

    @staticmethod
    def repeat_rows(x: Array, X: Value) -> Value:
        return X.graph.op("Expand", x, X.graph.op("Shape", X, start=0, end=1))

    @staticmethod
    def solve_lower(lower: Array, B: Value) -> Value:
        """Multiply by the inverse, which is a constant of the graph."""
        return NumpyNamespace.solve_lower(lower, np.eye(lower.shape[-1])[None]) @ B  # type: ignore[no-any-return]

    @staticmethod
    def columns(X: Value, place: Array) -> Value:
        return X.graph.op("Gather", X, place, axis=1).T

    @staticmethod
    def with_columns(X: Value, place: Array, cells: Value) -> Value:
        op, updates = X.graph.op, cells.T
        return op("ScatterElements", X, op("Expand", place[None], op("Shape", updates)), updates, axis=1)

    @staticmethod
    def count_up_to(table: Array, cells: Value) -> Value:
        graph = cells.graph
        reached = graph.op("GreaterOrEqual", cells[:, :, None], table[:, None])
        return graph.op("Cast", reached, to=graph.onnx.TensorProto.INT64).sum(2)

    @staticmethod
    def look_up(table: Array, index: Value) -> Value:
        return index.graph.op("GatherElements", table, index, axis=1)


NUMPY, GRAPH = NumpyNamespace(), GraphNamespace()


def namespace(x: Array) -> Any:
    """Return the functions of an array's kind."""
    if isinstance(x, np.ndarray):
        return NUMPY
    if isinstance(x, Value):
        return GRAPH
    from cavity.torch_namespace import TORCH

    return TORCH
