"""Rows that occur more than once: copies of one case, or different cases in one cell of a table of categories. [METHOD 17]

A copy says nothing new, so copies leave together: out of folds, leave-one-out and standard errors. In a table of cells a new row
meets its cell again, so there every row is a case of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cavity.rows.splitting import number_units
from cavity.rows.tables import Table

Numbers = NDArray[np.int64]

MOST_COUNTS = 10**7  # distinct rows × classes: larger tables are not searched for cells
MOST_REPEATS = 2.0  # rows per distinct row with its label, from which a table may be one of cells
MIXED = 0.25  # share of the repeated rows whose twins have other labels, from which it is


def has_cells(table: Table) -> bool:
    """Return whether equal rows are different cases: their labels differ, or their columns are those of categories.

    If every row occurs a multiple of g times, the table is g copies of a smaller one, which is judged.
    """
    first, cell = _number_rows(table)
    if table.n_rows == len(first) or len(first) * table.n_classes > MOST_COUNTS:
        return False
    distinct = table.X[first]
    count = np.zeros((len(distinct), table.n_classes), dtype=np.int64)
    np.add.at(count, (cell, table.y), 1)
    if _is_grid(distinct):
        return True
    count //= np.gcd.reduce(count, axis=None)
    if count.sum() <= MOST_REPEATS * np.count_nonzero(count):
        return False
    rows, labels = count.sum(1), np.count_nonzero(count, axis=1)
    if rows[labels > 1].sum() > MIXED * rows[rows > 1].sum():
        return True
    values = max(len(np.unique(column)) for column in distinct.T)
    return 2 * values <= len(distinct)


def _is_grid(distinct: NDArray[np.float64]) -> bool:
    """Return whether every combination of the columns' values occurs, and these are equally spaced, as codes of categories are."""
    columns = [np.unique(column) for column in distinct.T]
    if np.prod([float(len(values)) for values in columns]) != len(distinct):
        return False
    return all(np.allclose(np.diff(values), values[1] - values[0]) for values in columns if len(values) > 2)


def find_units(table: Table) -> Numbers | None:
    """Return a number for each row, the same for rows that leave together; None if every row leaves alone."""
    first, place = _number_rows(table)
    return None if len(first) == table.n_rows or has_cells(table) else place


def _number_rows(table: Table) -> tuple[Numbers, Numbers]:
    """Return where each distinct row first occurs, and each row's number among them."""
    _, first, place = np.unique(number_units(table.X), return_index=True, return_inverse=True)
    return first, place.reshape(-1)
