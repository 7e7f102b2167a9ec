"""What columns need to encode cells, and what they do with missing ones."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.rows.batches.source import Array

MEAN_IS_USED = "the mean is used"


class EncodingContext(NamedTuple):
    """Number of the first row, policy for unseen categories, and counts of unusual cells."""

    first: int
    unseen: str
    notes: Counter[str]

    def note_missing(self, name: str, count: int, consequence: str) -> None:
        """Count missing cells in a column that had none in the training rows."""
        if count:
            note = f"column {name!r} has missing cells, which the training rows did not have; {consequence}"
            self.notes[note] += count

    def mark_missing(self, column: Any, X: Array, lacks: NDArray[np.bool_], consequence: str) -> Array:
        """Return features with the column's indicator of missing cells; if it has none, count them."""
        if column.missing:
            return np.column_stack([X, lacks])
        self.note_missing(column.name, int(lacks.sum()), consequence)
        return X


def list_indicator(column: Any) -> list[str]:
    """Return the name of a column's indicator of missing cells, if it has one."""
    return [f"{column.name} missing"] if column.missing else []


def describe_missing(column: Any) -> str:
    """Return what a description says about missing cells."""
    return ", some missing" if column.missing else ""
