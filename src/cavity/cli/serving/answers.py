"""Answers of the server, and predictions as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from pydantic_core import to_json

from cavity.cli.models import Extras, Model
from cavity.cli.serving.requests import BadRows, CellError
from cavity.common.text_tables import format_label
from cavity.common.version import __version__
from cavity.errors import CavityError

Array = NDArray[np.float64]
Columns = dict[str, Array]  # of a prediction, one entry per row


class Health(BaseModel):
    """State of the server, and what it serves."""

    status: Literal["ok"] = "ok"
    version: str = Field(default=__version__, description="Version of cavity.")
    model: str = Field(description="SHA-256 of the model file, as sha256sum prints it.")
    versions: dict[str, str] = Field(description="Versions of Python, torch and numpy.")


class Refusal(BaseModel):
    """Reason why a request has no answer."""

    detail: str
    errors: list[CellError] = Field(default=[], description="Rows and columns that are wrong, at most 20.")


def predict_block(model: Model, X: Array, extras: Extras) -> Columns:
    """Predict a block of rows: `probabilities`, [n C], and extras, [n]; of a regressor, its numbers, [n]."""
    if model.classes is None:
        return model.predict_columns(X, extras._replace(uncertainty=False))
    found = model.predict_columns(X, extras)
    P = [found.pop(name) for name in list(found) if name.startswith("p_")]
    del found["label"]
    return {"probabilities": np.column_stack(P), **found}


def format_answer(model: Model, found: Columns, notes: Counter[str], digest: str) -> bytes:
    """Format a prediction as JSON. Raises BadRows for rows without a finite prediction."""
    n = len(next(iter(found.values())))
    finite = np.all([np.isfinite(column.reshape(n, -1)).all(1) for column in found.values()], axis=0)
    if not finite.all():
        message = "the model has no finite prediction for this row: correct it, or leave it out."
        wrong = np.flatnonzero(~finite)[:20]
        raise BadRows([CellError(row=int(i) + 1, column=None, message=message) for i in wrong])
    answer: dict[str, Any] = {name: column.tolist() for name, column in found.items()}
    if model.classes is not None:
        classes = np.array([format_label(c) for c in model.classes])
        labels = classes[found["probabilities"].argmax(1)]
        answer = {"labels": labels.tolist(), "classes": classes.tolist()} | answer
    return to_json(answer | {"notes": notes, "model": digest})


def format_refusal(error: CavityError) -> bytes:
    errors = error.errors if isinstance(error, BadRows) else []
    return Refusal(detail=str(error), errors=errors).model_dump_json().encode()
