"""An ONNX graph written like the formula it computes. All numbers in it are float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.errors import BadOption

OPSET = 18
IR_VERSION = 8


def package(name: str) -> Any:
    """onnx or onnxruntime, which are an extra."""
    from importlib import import_module

    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise BadOption(
            f"ONNX export needs {name}, which is not installed: pip install cavity[onnx]"
        ) from None


class Graph:
    """Nodes and constants in the order in which they were written down."""

    def __init__(self) -> None:
        self.onnx = package("onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> Value:
        """One node with one result (of several, the first)."""
        name = f"v{len(self.nodes)}"
        results = [name, f"{name}_rank"] if kind == "TopK" else [name]
        names = [self.value(x).name for x in inputs]
        self.nodes.append(self.onnx.helper.make_node(kind, names, results, **attributes))
        return Value(self, name)

    def value(self, x: Any) -> Value:
        """A value of the graph, or a number or array as one of its constants."""
        if isinstance(x, Value):
            return x
        array = np.asarray(x)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return Value(self, name)


@dataclass(frozen=True)
class Value:
    """A tensor of the graph; `+ − * / @` and a few methods write down what computes the next one."""

    graph: Graph
    name: str

    def __add__(self, other: Any) -> Value:
        return self.graph.op("Add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.graph.op("Sub", self, other)

    def __mul__(self, other: Any) -> Value:
        return self.graph.op("Mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        return self.graph.op("Div", self, other)

    def __matmul__(self, other: Any) -> Value:
        return self.graph.op("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.op("Neg", self)

    def exp(self) -> Value:
        return self.graph.op("Exp", self)

    def log(self) -> Value:
        return self.graph.op("Log", self)

    def sqrt(self) -> Value:
        return self.graph.op("Sqrt", self)

    def at_least(self, low: Any) -> Value:
        return self.graph.op("Max", self, low)

    def at_most(self, high: Any) -> Value:
        return self.graph.op("Min", self, high)

    def sum(self, axis: int, keep: bool = False) -> Value:
        return self.graph.op("ReduceSum", self, np.array([axis]), keepdims=int(keep))

    def max(self, axis: int, keep: bool = False) -> Value:
        return self.graph.op("ReduceMax", self, np.array([axis]), keepdims=int(keep))

    def new_axis(self, *axes: int) -> Value:
        return self.graph.op("Unsqueeze", self, np.array(axes))

    def without_axis(self, axis: int) -> Value:
        return self.graph.op("Squeeze", self, np.array([axis]))

    def shaped(self, *shape: int) -> Value:
        """−1 is what is left."""
        return self.graph.op("Reshape", self, np.array(shape))

    def turned(self, *axes: int) -> Value:
        return self.graph.op("Transpose", self, perm=list(axes))

    def part(self, axis: int, start: int, stop: int) -> Value:
        return self.graph.op("Slice", self, np.array([start]), np.array([stop]), np.array([axis]))
