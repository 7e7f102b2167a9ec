"""The model selection of a fit in model files: which model was selected, its kernel, and the candidates' scores."""

from __future__ import annotations

import math
from typing import Any

from cavity.errors import BadFile
from cavity.fitting.selection import Score, Selection
from cavity.kernels import Kernel
from cavity.modelfile.facts import finite
from cavity.modelfile.serialize import Packing, Unpacking

MOST_TEXT = 200
MOST_SCORES = 100


def describe_selection(selection: Selection | None, packing: Packing) -> dict[str, Any] | None:
    """Return a selection as values that JSON can hold; arrays of its kernel become tensors."""
    if selection is None:
        return None
    scores = [[s.name, *(_number(v) for v in s[1:])] for s in selection.scores]
    kernel = packing.pack(selection.kernel, "selection.kernel")
    return selection._asdict() | {"scores": scores, "kernel": kernel}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def read_selection(about: Any, unpacking: Unpacking) -> Selection | None:
    """Return the selection of a file; None for a fit without one, and for older files."""
    if about is None:
        return None
    kernel, robust = unpacking.unpack(about["kernel"]), about["robust"]
    if not (kernel is None or isinstance(kernel, Kernel)) or not isinstance(robust, bool):
        raise BadFile("the selected model has an invalid kernel, or robust is not true or false.")
    if len(about["scores"]) > MOST_SCORES:
        raise BadFile(f"the selection has more than {MOST_SCORES} candidates.")
    scores = tuple(_read_score(*entry) for entry in about["scores"])
    points = about.get("points")
    points = None if points is None else int(finite(points))
    return Selection(_text(about["selected"]), _text(about["how"]), scores, robust, kernel, points)


def _read_score(name: Any, *values: Any) -> Score:
    return Score(_text(name), *(math.nan if v is None else finite(v) for v in values))


def _text(value: Any) -> str:
    return str(value)[:MOST_TEXT]
