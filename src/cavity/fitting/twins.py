"""Rows with equal features: which of them leave a table together, and for how many rows a weighted table counts. [METHOD 17]"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import distinct_rows
from cavity.kernels.inducing import CANDIDATES
from cavity.rows.tables import Facts, Table

Array = NDArray[np.float64]

MOST_REPEATS = 2.0  # rows per distinct row with its label, from which a table may be one of cells
MIXED = 0.25  # share of the repeated rows whose twins have other labels, from which it is


def find_twins(table: Facts) -> NDArray[np.int64] | None:
    """Return a number for each row, the same for rows with equal features; None if every row leaves alone.

    Twins may be one case that was entered twice, so a row says nothing new about its twin. In a table of cells they are different
    cases, and a new row will meet its cell again: there every row leaves alone.
    """
    if not isinstance(table, Table) or table.n_rows > CANDIDATES:
        return None
    distinct, place = distinct_rows(table.X)
    return None if len(distinct) == table.n_rows or has_cells(table) else place


def has_cells(table: Facts) -> bool:
    """Return whether a table has few distinct rows, each with many cases of different labels, as one of a few categories has."""
    if not isinstance(table, Table) or table.n_rows > CANDIDATES:
        return False
    place = distinct_rows(table.X)[1]
    count = np.zeros((place.max() + 1, table.n_classes), dtype=np.int64)
    np.add.at(count, (place, table.y), 1)
    if table.n_rows <= MOST_REPEATS * np.count_nonzero(count):
        return False
    rows, labels = count.sum(1), np.count_nonzero(count, axis=1)
    return bool(rows[labels > 1].sum() > MIXED * rows[rows > 1].sum())


def effective_share(weight: Array, twins: NDArray[np.int64] | None = None) -> float:
    """Return Σω / Σω², by which weights become those of as many rows as they are worth: (Σω)² / Σω².

    Twins count as one row of their common weight.
    """
    each = weight if twins is None else np.bincount(twins, weight)
    return float(each.sum() / np.square(each).sum())
