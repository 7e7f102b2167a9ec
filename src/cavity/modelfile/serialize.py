"""Values as JSON and tensors, and back: the arguments of an estimator and of its kernels, labels. Nothing else comes back."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cavity import kernels
from cavity.errors import BadFile, BadInput
from cavity.kernels import Kernel, KernelLike

KERNELS = (
    "RBF",
    "Matern12",
    "Matern32",
    "Matern52",
    "RationalQuadratic",
    "Linear",
    "Constant",
    "Sum",
    "Product",
)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = ("float16", "float32", "float64", *INTEGERS, "bool")


class LeftOut:
    """Stands for an argument that a file does not hold: a callback, a generator of random numbers."""


class Packing:
    """Values become JSON; arrays among them are collected as tensors."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._kernels: dict[int, int] = {}

    def pack(self, value: Any, name: str) -> Any:
        """`name` is what an array is called."""
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, nn.Module | KernelLike):
            return self._kernel(value, name)
        if isinstance(value, dict):
            return {
                "pairs": [
                    [self.pack(k, f"{name}.key"), self.pack(v, f"{name}.{k}")] for k, v in value.items()
                ]
            }
        if isinstance(value, list | tuple | set | frozenset):
            kind = "list" if isinstance(value, list) else "tuple"
            members = sorted(value, key=str) if isinstance(value, set | frozenset) else value
            return {kind: [self.pack(v, f"{name}.{i}") for i, v in enumerate(members)]}
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if isinstance(value, torch.device | os.PathLike):
            return str(value)
        return self._array(value, name)

    def _array(self, value: Any, name: str) -> Any:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        if array.dtype.name not in NUMBERS:
            return {"left out": type(value).__name__}
        self.tensors[name] = torch.tensor(array)
        return {"array": name}

    def _kernel(self, kernel: Any, name: str) -> Any:
        """The name of one of ours with its arguments, once where it is used twice; of a user's own, who made it."""
        if not _ours(kernel):
            return {"foreign": _spelt(kernel)}
        if id(kernel) in self._kernels:
            return {"same": self._kernels[id(kernel)]}
        number = self._kernels[id(kernel)] = len(self._kernels)
        arguments = {k: self.pack(v, f"{name}.{k}") for k, v in kernel.get_params(deep=False).items()}
        return {"kernel": type(kernel).__name__, "number": number, "arguments": arguments}


def _ours(kernel: Any) -> bool:
    """Whether a kernel, and every part of it, is of a kind that a name is enough for."""
    name = type(kernel).__name__
    if name not in KERNELS or type(kernel) is not getattr(kernels, name):
        return False
    return all(_ours(k) for k in kernel.get_params(deep=False).values() if isinstance(k, nn.Module))


def _spelt(kernel: Any) -> str:
    """The names of a kernel's class and of its parts' classes."""
    inner = kernel.get_params(deep=False).values() if isinstance(kernel, Kernel) else ()
    parts = ", ".join(_spelt(part) for part in inner if isinstance(part, nn.Module))
    return f"{type(kernel).__name__}({parts})" if parts else type(kernel).__name__


class Unpacking:
    """JSON becomes values; a user's own kernel is the one that is given, or an error."""

    def __init__(self, tensors: dict[str, Tensor], kernel: Any = None) -> None:
        self.tensors, self.kernel = tensors, kernel
        self._kernels: dict[int, Any] = {}

    def unpack(self, packed: Any) -> Any:
        if packed is None or isinstance(packed, bool | int | float | str):
            return packed
        if not isinstance(packed, dict):
            raise BadFile(f"{packed!r:.60} stands where a value should.")
        if "kernel" in packed:
            return self._kernel(packed)
        if len(packed) != 1:
            raise BadFile(f"{packed!r:.60} stands where a value should.")
        ((kind, content),) = packed.items()
        makers = {
            "list": lambda: [self.unpack(v) for v in content],
            "tuple": lambda: tuple(self.unpack(v) for v in content),
            "pairs": lambda: {self.unpack(k): self.unpack(v) for k, v in content},
            "array": lambda: self.tensors[content].numpy().copy(),
            "same": lambda: self._kernels[content],
            "foreign": lambda: self._foreign(content),
            "left out": LeftOut,
        }
        if kind not in makers:
            raise BadFile(f"a value of kind {kind!r:.40} is unknown.")
        return makers[kind]()

    def _kernel(self, packed: dict[str, Any]) -> Any:
        name = packed["kernel"]
        if name not in KERNELS:
            raise BadFile(f"the kernel {name!r:.40} is unknown; known are {', '.join(KERNELS)}.")
        arguments = {str(k): self.unpack(v) for k, v in packed["arguments"].items()}
        made = self._kernels[packed["number"]] = getattr(kernels, name)(**arguments)
        return made

    def _foreign(self, name: str) -> Any:
        if self.kernel is None:
            raise BadFile(
                f"the model's kernel is a {name!s:.200}, whose code no file holds: make it as for the fit and hand it over, "
                "cavity.load(path, kernel=...); its learnt values are in the file."
            )
        if _spelt(self.kernel) != name:
            raise BadFile(
                f"the model's kernel is a {name!s:.200}, and kernel= is a {_spelt(self.kernel)}: make it as for the fit."
            )
        return self.kernel


def pack_labels(classes: NDArray[Any]) -> dict[str, Any]:
    """Class labels as JSON, with their type."""
    kind = (
        classes.dtype.name
        if classes.dtype.name in NUMBERS
        else {"U": "str", "O": "object"}.get(classes.dtype.kind)
    )
    values = classes.tolist()
    if kind is None or (kind == "object" and not all(isinstance(v, str) for v in values)):
        raise BadInput(
            f"labels of type {type(values[0]).__name__} ({classes.dtype}) cannot be saved: fit with text, whole numbers or truth "
            "values, for example y.astype(str)."
        )
    return {"type": kind, "values": values}


def unpack_labels(packed: Any) -> NDArray[Any]:
    """The same array of labels: at least two, in order, none twice."""
    kind, values = packed["type"], packed["values"]
    if kind not in ("str", "object", *NUMBERS) or not isinstance(values, list):
        raise BadFile(f"the labels are of an unknown type, {kind!r:.40}.")
    if not all(isinstance(v, str if kind in ("str", "object") else bool | int | float) for v in values):
        raise BadFile(f"the labels are not all of type {kind}.")
    classes = np.array(values, dtype=kind)
    if len(classes) < 2 or not all(a < b for a, b in pairwise(values)):
        raise BadFile("the labels are fewer than two, or not in order.")
    return classes
