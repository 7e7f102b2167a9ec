"""Convert values to JSON and arrays, and back: arguments of estimators, kernels,
methods, likelihoods, labels and records of a fit.

Reading the first kernel, method or likelihood loads torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.registry import Registry
from cavity.common.types import Floats
from cavity.errors import BadFile, BadInput

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = ("float16", "float32", "float64", *INTEGERS, "bool")
OBJECTS = ("kernel", "method", "likelihood", "parameter")
# options of 0.3 that were removed, with their defaults
GIVEN_UP = {
    "q_update": "natural",
    "probit": False,
}


def find_registry(kind: str) -> Registry[Any]:
    """Return the registered classes of a kind; loads torch."""
    from cavity.engine.kernels import KERNELS
    from cavity.engine.likelihoods import LIKELIHOODS
    from cavity.engine.parameters import SETTINGS
    from cavity.fitting.options.library import METHODS

    registries: dict[str, Registry[Any]] = {
        "kernel": KERNELS,
        "method": METHODS,
        "likelihood": LIKELIHOODS,
        "parameter": SETTINGS,
    }
    return registries[kind]


class Omitted:
    """An argument that cannot be stored: a callback, a random number generator."""


class Packing:
    """Converts values to JSON, and collects their arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}

    def pack(self, value: Any, name: str) -> Any:
        """Return `value` as JSON; an array becomes the array `name`."""
        import torch

        from cavity.engine.kernels import KernelLike
        from cavity.engine.likelihoods import Likelihood
        from cavity.engine.parameters import Setting
        from cavity.fitting.options.method import Method

        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.nn.Module | KernelLike):
            if _is_registered(value):
                return self._object("kernel", value, name)

            return {"foreign": _spell(value)}
        if isinstance(value, Method | Likelihood):
            kind = "method" if isinstance(value, Method) else "likelihood"
            if not find_registry(kind).holds(value):
                raise BadInput(
                    f"{type(value).__name__} cannot be saved by name: register the "
                    f"class first, with the decorator {kind.upper()}S.register of "
                    f"cavity.{kind}s."
                )

            return self._object(kind, value, name)
        if isinstance(value, Setting):
            return self._object("parameter", value, name)
        if isinstance(value, dict):
            pairs = [
                (self.pack(k, f"{name}.key"), self.pack(v, f"{name}.{k}"))
                for k, v in value.items()
            ]
            return {"pairs": pairs}

        if isinstance(value, set | frozenset):
            value = tuple(sorted(value, key=str))
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.pack(v, f"{name}.{i}") for i, v in enumerate(value)]}
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        if isinstance(value, torch.device | os.PathLike):
            return str(value)

        return self._array(value, name)

    def _array(self, value: Any, name: str) -> Any:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
        array = np.asarray(value)
        cells = array.tolist()
        if array.ndim == 1 and all(isinstance(cell, str) for cell in cells):
            return self.pack(cells, name)
        if array.dtype.name not in NUMBERS:
            return {"left out": type(value).__name__}

        self.arrays[name] = array
        return {"array": name}

    def _object(self, kind: str, value: Any, name: str) -> Any:
        """Return the class name of a registered object, and its arguments."""
        arguments = {
            k: self.pack(v, f"{name}.{k}")
            for k, v in value.get_params(deep=False).items()
        }
        return {kind: type(value).__name__, "arguments": arguments}


def _is_registered(kernel: Any) -> bool:
    """Return whether the names of a kernel and its parts are enough to restore it.

    A torch module inside has code of its own.
    """
    from torch import nn

    if not find_registry("kernel").holds(kernel):
        return False

    return all(
        _is_registered(k)
        for k in kernel.get_params(deep=False).values()
        if isinstance(k, nn.Module)
    )


def _spell(kernel: Any) -> str:
    from torch import nn

    from cavity.engine.kernels import Kernel

    name = type(kernel).__name__
    if not isinstance(kernel, Kernel):
        return name

    inner = kernel.get_params(deep=False).values()
    parts = ", ".join(_spell(part) for part in inner if isinstance(part, nn.Module))
    return f"{name}({parts})" if parts else name


class Unpacking:
    """Converts JSON back to values; a kernel that is not registered must be given."""

    def __init__(self, arrays: dict[str, NDArray[Any]], kernel: Any = None) -> None:
        self.arrays = arrays
        self.kernel = kernel

    def unpack(self, packed: Any) -> Any:
        """Return the value that `Packing.pack` was given."""
        if packed is None or isinstance(packed, bool | int | float | str):
            return packed
        if not isinstance(packed, dict):
            raise BadFile(f"{packed!r:.60} is not a value of a model.")

        for kind in OBJECTS:
            if kind in packed:
                return self._object(packed, kind)
        if len(packed) != 1:
            raise BadFile(f"{packed!r:.60} is not a value of a model.")

        ((kind, content),) = packed.items()
        makers = {
            "list": lambda: [self.unpack(v) for v in content],
            "tuple": lambda: tuple(self.unpack(v) for v in content),
            "pairs": lambda: {self.unpack(k): self.unpack(v) for k, v in content},
            "array": lambda: self.arrays[content].copy(),
            "foreign": lambda: self._foreign(content),
            "left out": Omitted,
        }
        if kind not in makers:
            raise BadFile(f"a value of kind {kind!r:.40} is unknown.")

        return makers[kind]()

    def unpack_all(self, packed: dict[str, Any]) -> dict[str, Any]:
        """Return the values by name, without those that could not be stored."""
        values = {name: self.unpack(value) for name, value in packed.items()}
        return {
            name: value for name, value in values.items() if not _holds_omitted(value)
        }

    def _object(self, packed: dict[str, Any], kind: str) -> Any:
        name = packed[kind]
        registry = find_registry(kind)
        if name not in list(registry):
            raise BadFile(
                f"the {kind} {name!r:.40} is unknown; known are {', '.join(registry)}. "
                "Import the module that registers it first."
            )

        known = registry[name].parameter_names()
        arguments = {}
        for key, inner in packed["arguments"].items():
            value = self.unpack(inner)
            if key in known:
                arguments[str(key)] = value
            elif GIVEN_UP.get(key, ...) != value:
                raise BadFile(
                    f"{key!r:.60} is not an argument of {name} in this version."
                )

        return registry[name](**arguments)

    def _foreign(self, name: str) -> Any:
        if self.kernel is None:
            raise BadFile(
                f"the model's kernel is a {name!s:.200}, which a file does not store: "
                "create it as for the fit and pass it, cavity.load(path, kernel=...). "
                "The file has its learnt values."
            )
        if _spell(self.kernel) != name:
            raise BadFile(
                f"the model's kernel is a {name!s:.200}, and kernel= is a "
                f"{_spell(self.kernel)}: create it as for the fit."
            )

        return self.kernel


def _holds_omitted(value: Any) -> bool:
    members = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(member, Omitted) for member in members)


def pack_labels(classes: NDArray[Any]) -> dict[str, Any]:
    values = classes.tolist()
    if classes.dtype.name in NUMBERS:
        return {"type": classes.dtype.name, "values": values}
    if all(isinstance(value, str) for value in values):
        kind = "str" if classes.dtype.kind == "U" else "object"
        return {"type": kind, "values": values}

    raise BadInput(
        f"labels of type {type(values[0]).__name__} ({classes.dtype}) cannot be saved: "
        "fit with text or numbers, y.astype(str)."
    )


def unpack_labels(packed: Any) -> NDArray[Any]:
    """Return the packed labels: at least two, sorted, without repeats."""
    kind = packed["type"]
    values = packed["values"]
    if kind not in ("str", "object", *NUMBERS) or not isinstance(values, list):
        raise BadFile(f"the labels are of an unknown type, {kind!r:.40}.")

    expected: Any = str if kind in ("str", "object") else bool | int | float
    if not all(isinstance(value, expected) for value in values):
        raise BadFile(f"the labels are not all of type {kind}.")

    classes = np.array(values, dtype=kind)
    if len(classes) < 2 or not all(a < b for a, b in pairwise(values)):
        raise BadFile("the labels are fewer than two, or not in order.")

    return classes


def to_json(value: Any) -> Any:
    """Convert named tuples, also in tuples, or an array to JSON; keep other values."""
    if hasattr(value, "_asdict"):
        return {name: to_json(inner) for name, inner in value._asdict().items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [to_json(inner) for inner in value]

    return value


def from_json(
    kind: Any, value: dict[str, Any] | None, many: Callable[[list[Any]], Any] = tuple
) -> Any:
    """Return the named tuple that `to_json` was given, with `many` applied to lists;
    None stays None.
    """
    if value is None:
        return None

    fields = {}
    for name in kind._fields:
        if name in value:
            field = value[name]
            fields[name] = many(field) if isinstance(field, list) else field

    return kind(**fields)


def read_array(value: list[float] | None) -> Floats | None:
    if value is None:
        return None

    return np.array(value, dtype=np.float64)
