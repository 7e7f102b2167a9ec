"""ONNX graphs, written like the formulas that they compute.

All numbers in them are float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.errors import BadOption

OPSET = 18
TEXT_OPSET = 20  # of graphs that match texts
IR_VERSION = 8
ML_DOMAIN = "ai.onnx.ml"  # has LabelEncoder, and trees in float64
ML_OPSET = 3
RESULTS = {"TopK": 2, "Unique": 3}  # of operators with several


def package(name: str) -> Any:
    """Import onnx or onnxruntime, which are optional."""
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise BadOption(f"ONNX export needs {name}: pip install cavity[onnx]") from None


class Graph:
    """Nodes and constants, in the order of their creation."""

    def __init__(self) -> None:
        self.onnx = package("onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> Value:
        """Add a node and return its result, the first one if there are several."""
        names = [self.value(x).name for x in inputs]  # may add nodes
        name = f"cavity/v{len(self.nodes)}"  # no column has such a name
        results = [name, *(f"{name}_{k}" for k in range(1, RESULTS.get(kind, 1)))]
        node = self.onnx.helper.make_node(kind, names, results, **attributes)
        self.nodes.append(node)
        return Value(self, name)

    def value(self, x: Any) -> Value:
        """Return a value as it is, and anything else as a new constant of the graph."""
        if isinstance(x, Value):
            return x

        if isinstance(x, int):
            x = float(x)
        array = np.ascontiguousarray(x)
        name = f"cavity/c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        constant = Value(self, name)
        if array.dtype == np.float32:  # takes half the bytes in the file
            return to_double(constant)

        return constant


def to_double(value: Value) -> Value:
    return value.graph.op("Cast", value, to=value.graph.onnx.TensorProto.DOUBLE)


def concatenate(parts: list[Value]) -> Value:
    """Join columns."""
    if len(parts) == 1:
        return parts[0]

    return parts[0].graph.op("Concat", *parts, axis=1)


def _operator(kind: str, swap: bool = False) -> Callable[..., Value]:
    """Return the method that adds a node of a value and its operand, if it has one.

    The operand comes first if `swap`.
    """
    if swap:
        return lambda one, other: one.graph.op(kind, other, one)

    return lambda *operands: operands[0].graph.op(kind, *operands)


@dataclass(frozen=True)
class Value:
    """A tensor of the graph.

    Operators (`+ − * / @`), `x < y`, `x[:, None]`, `x[:, 0]`, `x[..., 1:]` and methods
    add the node that computes the result.
    """

    graph: Graph
    name: str
    __array_ufunc__ = None  # NumPy arrays leave operators with a value to this class

    __add__ = _operator("Add")
    __sub__ = _operator("Sub")
    __mul__ = _operator("Mul")
    __truediv__ = _operator("Div")
    __matmul__ = _operator("MatMul")
    __radd__ = _operator("Add", swap=True)
    __rsub__ = _operator("Sub", swap=True)
    __rmul__ = _operator("Mul", swap=True)
    __rtruediv__ = _operator("Div", swap=True)
    __rmatmul__ = _operator("MatMul", swap=True)
    __lt__ = _operator("Less")
    __le__ = _operator("LessOrEqual")
    __neg__ = _operator("Neg")
    at_least = _operator("Max")
    at_most = _operator("Min")
    exp = _operator("Exp")
    log = _operator("Log")
    sqrt = _operator("Sqrt")

    def __getitem__(self, index: tuple[Any, ...]) -> Value:
        """Take parts of axes, leave out axes that are at 0, add one for each None.

        Axes that are left out have length 1; `...` may come first.
        """
        if isinstance(index[-1], np.ndarray):
            return self.graph.op("Gather", self, index[-1], axis=len(index) - 1)

        first = 0
        if index[0] is ...:
            index = index[1:]
            first = -len(index)
        found = self
        dropped = []
        added = []
        for axis, part in enumerate(index, first):
            if part is None:
                added.append(axis)
            elif isinstance(part, int):
                dropped.append(axis)
            elif part != slice(None):
                stop = np.iinfo(np.int64).max if part.stop is None else part.stop
                ends = ([part.start or 0], [stop], [axis])
                found = self.graph.op("Slice", found, *map(np.array, ends))

        if dropped:
            found = self.graph.op("Squeeze", found, np.array(dropped))
        if added:
            return self.graph.op("Unsqueeze", found, np.array(added))

        return found

    @property
    def T(self) -> Value:
        """The transpose of a matrix."""
        return self.graph.op("Transpose", self, perm=[1, 0])

    def sum(self, axis: int, keepdims: bool = False) -> Value:
        return self._reduce("ReduceSum", axis, keepdims)

    def max(self, axis: int, keepdims: bool = False) -> Value:
        return self._reduce("ReduceMax", axis, keepdims)

    def _reduce(self, kind: str, axis: int, keepdims: bool) -> Value:
        return self.graph.op(kind, self, np.array([axis]), keepdims=int(keepdims))
