"""Rows that belong together: groups, copies of one case, or different cases in one cell
of a table of categories. [METHOD 17]

A copy says nothing new, so copies leave together: out of folds, leave-one-out and
standard errors. In a table of cells a new row meets its cell again, so there every row
is a case of its own. If the user names groups of rows, a group is a case.
"""

from __future__ import annotations

import numpy as np

from cavity.common.types import Floats, Ints
from cavity.tables.table import Table

MOST_COUNTS = 10**7  # distinct rows × classes: larger tables are not searched for cells
# rows per distinct row with its label, from which a table may be one of cells
MOST_REPEATS = 2.0
# share of the repeated rows whose twins have other labels, from which it is
MIXED = 0.25
# random rows that are compared, and those with which they are
NEAR_ROWS = 500
NEAR_AMONG = 2000
LEAST_ROWS = 40  # distinct rows that are searched for near copies
GAP = 10.0  # how many times farther than near copies all other rows are
MOST_NEAR = 0.1  # share of the rows that may be near copies of one
FARTHEST = 30.0  # cell, in interquartile ranges from the median
TINY = 1e-14  # error of a squared distance


def has_cells(table: Table) -> bool:
    """Return whether equal rows are different cases: their labels differ, or their
    columns are those of categories.

    If every row occurs a multiple of g times, the table is g copies of a smaller one,
    which is judged.
    """
    if table.group is not None:
        return False
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
    rows = count.sum(1)
    labels = np.count_nonzero(count, axis=1)
    if rows[labels > 1].sum() > MIXED * rows[rows > 1].sum():
        return True
    values = max(len(np.unique(column)) for column in distinct.T)
    return 2 * values <= len(distinct)


def _is_grid(distinct: Floats) -> bool:
    """Return whether every combination of the columns' values occurs, and these are
    equally spaced, as codes of categories are.
    """
    columns = [np.unique(column) for column in distinct.T]
    if np.prod([float(len(values)) for values in columns]) != len(distinct):
        return False
    return all(
        np.allclose(np.diff(values), values[1] - values[0])
        for values in columns
        if len(values) > 2
    )


def find_units(table: Table) -> Ints | None:
    """Return a number for each row, the same for rows that leave together; None if
    every row leaves alone.
    """
    if table.group is not None:
        return table.group
    first, place = _number_rows(table)
    if len(first) == table.n_rows:
        return None
    if has_cells(table):
        return _number_copies(place * table.n_classes + table.y)
    return place


def _number_copies(kind: Ints) -> Ints | None:
    """Return the same number for every g rows of one kind, a cell and a label, if all
    occur a multiple of g times.

    Not if all occur g times: these are the rows of a full grid, and without its whole
    cell a row would look hopeless.
    """
    count = np.unique(kind, return_counts=True)[1]
    g = np.gcd.reduce(count)
    unit = np.empty_like(kind)
    unit[np.argsort(kind, kind="stable")] = np.arange(len(kind)) // g
    if g in (1, count.max()):
        return None
    return unit


def _number_rows(table: Table) -> tuple[Ints, Ints]:
    """Return where each distinct row first occurs, and each row's number among them."""
    kind = table.kind
    first = np.empty(kind.max() + 1, np.int64)
    first[kind[::-1]] = np.arange(len(kind))[::-1]  # the last of several counts
    return first, kind


def has_near_copies(table: Table) -> bool:
    """Return whether most rows are near copies of others, as those of groups that the
    user did not name are.

    The near copies of a row have its label, and all other rows, some of its label among
    them, are GAP times farther away. In continuous columns, a row has such a gap by
    chance with a probability of at most Σ_j GAP^−j = 1/(GAP − 1).
    """
    order = np.random.default_rng(0).permutation(table.n_rows)[:NEAR_AMONG]
    X, first = np.unique(table.X[order], axis=0, return_index=True)
    y = table.y[order][first]
    if len(X) < LEAST_ROWS:
        return False
    low, centre, high = np.percentile(X, [25, 50, 75], axis=0)
    scale = np.where(high > low, high - low, X.std(0))
    X = np.clip((X - centre) / np.where(scale > 0, scale, 1.0), -FARTHEST, FARTHEST)
    rows = np.random.default_rng(1).permutation(len(X))[:NEAR_ROWS]
    square = np.square(X).sum(1)
    distance = np.sqrt(
        np.maximum(
            square[rows, None] + square - 2 * X[rows] @ X.T, TINY * square[rows, None]
        )
    )
    distance[np.arange(len(rows)), rows] = -1.0  # a row is before its neighbours
    most = 1 + max(1, int(MOST_NEAR * len(X)))
    near = np.argsort(distance, axis=1)[:, : most + 1]
    far = np.take_along_axis(distance, near, 1)
    has_gap = far[:, 2:] > GAP * far[:, 1:-1]  # behind the neighbours 1, 2, ...
    same = np.logical_and.accumulate(y[near] == y[rows, None], axis=1)
    alone = np.cumsum(y[near] == y[rows, None], axis=1) == np.bincount(y)[y[rows], None]
    return bool((has_gap & same[:, 1:-1] & ~alone[:, 1:-1]).any(1).mean() > 0.5)
