"""The model selection of a fit in model files: which model was selected, its kernel, and the candidates' scores."""

from __future__ import annotations

import math
from typing import Any

from cavity.errors import BadFile
from cavity.fitting.selection import Score, Selection
from cavity.kernels import Kernel
from cavity.modelfile.serialize import Packing, Unpacking


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
    kernel = unpacking.unpack(about["kernel"])
    if not (kernel is None or isinstance(kernel, Kernel)):
        raise BadFile("the selected kernel is not one.")
    scores = tuple(
        Score(name, *(math.nan if v is None else v for v in values)) for name, *values in about["scores"]
    )
    return Selection(about["selected"], about["how"], scores, about["robust"], kernel, about.get("points"))
