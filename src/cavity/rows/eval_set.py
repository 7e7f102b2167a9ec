"""Validation rows of the user's own, read as the rows of the fit were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput, BadOption
from cavity.rows.labels import check_labels, encode
from cavity.rows.tables import Request, Table
from cavity.rows.targets import Targets, read_targets_of_fit
from cavity.rows.validation import Features, check_rows

ADVICE = "give one pair, eval_set=(X_val, y_val)."


def unpack_pair(eval_set: Any) -> tuple[Any, Any]:
    """Return X and y of `(X, y)` or `[(X, y)]`."""
    found = eval_set
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, tuple | list):
        raise BadOption(f"eval_set is a {type(eval_set).__name__}: {ADVICE}")
    if len(found) != 2:
        raise BadOption(f"eval_set has {len(found)} parts instead of 2: {ADVICE}")
    if all(isinstance(part, tuple) for part in found):
        raise BadOption(f"eval_set has {len(found)} pairs, but one set decides when training stops: {ADVICE}")
    return found[0], found[1]


def read_eval_labels(pair: tuple[Any, Any], features: Features, classes: NDArray[Any]) -> Table:
    with _name_rows():
        rows = check_rows(pair[0], features)
        labels = check_labels(pair[1], len(rows))
    return Table(rows, encode(labels, classes, "eval_set"), np.ones(len(rows)), len(classes))


def read_eval_targets(pair: tuple[Any, Any], features: Features, units: tuple[float, float]) -> Targets:
    """Read validation rows with targets, in the units of the fit."""
    with _name_rows():
        return read_targets_of_fit(Request(*pair), features, units)


@contextmanager
def _name_rows() -> Iterator[None]:
    """Name the argument in errors about its rows."""
    try:
        yield
    except ValueError as error:  # of scikit-learn, too
        raise BadInput(f"eval_set: {error}") from error
