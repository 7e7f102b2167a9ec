"""Rows that belong together: groups, copies of a case, or cells of a table of categories.

A copy carries no new information, so copies are left out together: of folds, of
leave-one-out and of standard errors. In a table of cells, a new row falls into a known
cell, so every row is a case of its own. If the user names groups of rows, each group is
a case. [METHOD 17]
"""

from __future__ import annotations

import numpy as np

from cavity.common.column_statistics import hash_rows
from cavity.common.types import Floats, Ints
from cavity.tables.table import Table

MOST_COUNTS = 10**7  # distinct rows × classes: larger tables are not searched for cells
# With more rows per distinct pair of row and label, a table may consist of cells.
MOST_REPEATS = 2.0
# It does if the labels within more than this share of the repeated rows differ.
MIXED = 0.25
NEAR_ROWS = 500  # random rows that are compared
NEAR_AMONG = 2000  # with these random rows
LEAST_ROWS = 40  # fewer distinct rows are not searched for near copies
GAP = 10.0  # all other rows are farther than near copies by this factor
MOST_NEAR = 0.1  # largest share of the rows that are near copies of one row
FARTHEST = 30.0  # limit of a cell, in interquartile ranges from the median
TINY = 1e-14  # error of a squared distance


def has_cells(table: Table) -> bool:
    """Return whether equal rows are different cases.

    They are if their labels differ, or if the columns look like categories. If every
    row occurs a multiple of g times, the table is g copies of a smaller table, which is
    judged instead.
    """
    if table.group is not None:
        return False

    if len(np.unique(hash_rows(table.X))) == table.n_rows:
        return False

    first, cell = _number_rows(table)
    if len(first) * table.n_classes > MOST_COUNTS:
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
    """Return whether all combinations of equally spaced values occur.

    Codes of categories are equally spaced.
    """
    columns = [np.unique(column) for column in distinct.T]
    combinations = np.prod([float(len(values)) for values in columns])
    if combinations != len(distinct):
        return False

    steps = [np.diff(values) for values in columns if len(values) > 2]
    return all(np.allclose(step, step[0]) for step in steps)


def find_units(table: Table) -> Ints | None:
    """Return the number of each row's case; rows of a case are left out together.

    None: every row is a case of its own.
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
    """Number sets of g rows of one kind (cell and label) that all occur k·g times.

    None if g = 1, or if all kinds occur exactly g times: these are the rows of a full
    grid, and without its whole cell a row would look hopeless.
    """
    _, count = np.unique(kind, return_counts=True)
    g = np.gcd.reduce(count)
    if g in (1, count.max()):
        return None

    unit = np.empty_like(kind)
    unit[np.argsort(kind, kind="stable")] = np.arange(len(kind)) // g
    return unit


def _number_rows(table: Table) -> tuple[Ints, Ints]:
    """Return where each distinct row first occurs, and each row's number among them."""
    kind = table.kind
    first = np.empty(kind.max() + 1, np.int64)
    first[kind[::-1]] = np.arange(len(kind))[::-1]  # the last assignment wins
    return first, kind


def has_near_copies(table: Table) -> bool:
    """Return whether most rows are near copies of others.

    This suggests groups of rows that the user did not name. The near copies of a row
    have its label. All other rows, including some with its label, are GAP times farther
    away. In continuous columns, a row has such a gap by chance with a probability of at
    most Σ_j GAP^−j = 1/(GAP − 1).
    """
    order = np.random.default_rng(0).permutation(table.n_rows)[:NEAR_AMONG]
    X, first = np.unique(table.X[order], axis=0, return_index=True)
    y = table.y[order][first]
    if len(X) < LEAST_ROWS:
        return False

    low, centre, high = np.percentile(X, [25, 50, 75], axis=0)
    scale = np.where(high > low, high - low, X.std(0))
    scale = np.where(scale > 0, scale, 1.0)
    X = np.clip((X - centre) / scale, -FARTHEST, FARTHEST)

    rows = np.random.default_rng(1).permutation(len(X))[:NEAR_ROWS]
    square = np.square(X).sum(1)
    own = square[rows, None]
    distance = np.sqrt(np.maximum(own + square - 2 * X[rows] @ X.T, TINY * own))
    distance[np.arange(len(rows)), rows] = -1.0  # a row comes before its neighbours
    most = 1 + max(1, int(MOST_NEAR * len(X)))
    near = np.argsort(distance, axis=1)[:, : most + 1]
    far = np.take_along_axis(distance, near, 1)
    has_gap = far[:, 2:] > GAP * far[:, 1:-1]  # after the neighbours 1, 2, ...

    label = y[rows, None]
    is_same = y[near] == label
    all_same = np.logical_and.accumulate(is_same, axis=1)
    has_others = np.cumsum(is_same, axis=1) < np.bincount(y)[label]
    found = has_gap & all_same[:, 1:-1] & has_others[:, 1:-1]
    return bool(found.any(1).mean() > 0.5)
