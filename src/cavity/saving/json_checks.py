"""Values from the JSON of a model file that the schema has checked. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadFile
from cavity.rows.columns.encoder import ColumnEncoder
from cavity.rows.validation import Features, prepared_features

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = ("float16", "float32", "float64", *INTEGERS, "bool")


def to_json(value: Any) -> Any:
    """Return a named tuple, with what is in it, or an array as JSON; other values stay."""
    if hasattr(value, "_asdict"):
        return {name: to_json(inner) for name, inner in value._asdict().items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def from_json(kind: Any, value: dict[str, Any] | None, many: Callable[[list[Any]], Any] = tuple) -> Any:
    """Return the named tuple that `to_json` was given, with `many` of lists; None stays."""
    if value is None:
        return None
    fields = {name: value[name] for name in kind._fields if name in value}
    return kind(**{name: many(v) if isinstance(v, list) else v for name, v in fields.items()})


def read_array(value: list[float] | None) -> NDArray[np.float64] | None:
    return None if value is None else np.array(value, dtype=np.float64)


def read_features(meta: dict[str, Any], owner: str, D: int) -> Features:
    """Return the columns that the model was fitted on, D features."""
    names = None if meta["names"] is None else tuple(np.array(meta["names"], dtype=object))
    if meta["preparation"] is None:
        return Features(owner, D, names)
    features = prepared_features(owner, ColumnEncoder.from_json(meta["preparation"]))
    if features.n != D:
        raise BadFile(f"the preparation makes {features.n} features, but the model has {D}.")
    return features


def unpack_labels(packed: Any) -> NDArray[Any]:
    """Return the array of labels that was packed: at least two, in order, none twice."""
    kind, values = packed["type"], packed["values"]
    if kind not in ("str", "object", *NUMBERS) or not isinstance(values, list):
        raise BadFile(f"the labels are of an unknown type, {kind!r:.40}.")
    if not all(isinstance(v, str if kind in ("str", "object") else bool | int | float) for v in values):
        raise BadFile(f"the labels are not all of type {kind}.")
    classes = np.array(values, dtype=kind)
    if len(classes) < 2 or not all(a < b for a, b in pairwise(values)):
        raise BadFile("the labels are fewer than two, or not in order.")
    return classes
