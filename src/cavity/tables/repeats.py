"""Rows that belong together: groups, copies of a case, or cells of a table of categories.

A copy carries no new information, so copies are left out together: of folds, of
leave-one-out and of standard errors. In a table of cells, a new row falls into a known
cell, so every row is a case of its own. If the user names groups of rows, each group is
a case. [METHOD 17]
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from cavity.common.column_statistics import Words, hash_rows
from cavity.common.types import Floats, Ints
from cavity.tables.table import Table

MOST_COPIES = 2**53  # above, whole numbers have no remainder
MOST_COUNTS = 10**7  # distinct rows × classes: larger tables are not searched for cells
LEAST_PAIRS = 5  # of equal rows: with fewer, it hardly matters what they are
# Repeated rows are cells if chance explains at least this share of the coincidences,
GENUINE = 0.5
# or if their labels differ at least this many times as often as those of neighbours.
MIXED = 1 / 3
ROWS = 20_000  # random rows whose coincidences are counted
COLUMNS = 100  # random columns in which they may differ;
COMPARED = 16  # of these, the ones in which most pairs of rows differ alone
REPEATED = 200  # repeated rows that are compared with their neighbours
NEIGHBOURS = 20_000  # distinct rows that the neighbours are among
FARTHEST = 30.0  # limit of a cell, in interquartile ranges from the median
TINY = 1e-14  # error of a squared distance


def has_cells(table: Table) -> bool:
    """Return whether equal rows are different cases, not copies of one.

    They are if their labels differ about as often as those of neighbours, which labels
    of copies never do, or if chance explains that they coincide. If every row occurs a
    multiple of g times, the table is g copies of a smaller table, which is judged
    instead. [70]
    """
    if table.group is not None:
        return False

    if len(np.unique(table.words)) == table.n_rows:
        return False

    first, cell = _number_rows(table)
    if len(first) * table.n_classes > MOST_COUNTS:
        return False

    distinct = table.X[first]
    if _is_grid(distinct):
        return True

    count = np.zeros((len(distinct), table.n_classes), dtype=np.int64)
    np.add.at(count, (cell, table.y), 1)
    count //= np.gcd.reduce(count, axis=None)
    if _count_pairs(count.sum(1)) < LEAST_PAIRS:
        return False

    if _labels_differ(distinct, count):
        return True

    return _coincide_by_chance(distinct.repeat(count.sum(1), axis=0))


def _coincide_by_chance(X: Floats) -> bool:
    r"""Return whether chance makes about as many pairs of equal rows.

    Let n_0 pairs of rows be equal, n_d differ in column d alone, and n_de in the two
    columns d and e alone. If columns vary independently among rows that are near,

        n_0 = Σ_{d<e} n_d n_e / Σ_{d<e} n_de

    and n_0 is larger where the density of rows varies (Cauchy-Schwarz). So columns may
    depend on each other. Copies raise n_0 alone: in continuous columns n_d is 0.
    """
    rng = np.random.default_rng(0)
    marks = _mark_columns(X[rng.permutation(len(X))[:ROWS]], rng)
    kind = marks.sum(0)
    chosen = marks[rng.permutation(len(marks))[:COLUMNS]]
    equal = _count_equal(kind)
    alone = np.array([_count_equal(kind - mark) for mark in chosen]) - equal

    expected = 0.0
    both = 0.0
    for d, e in combinations(np.argsort(-alone)[:COMPARED], 2):
        same = _count_equal(kind - chosen[d] - chosen[e])
        both += same - equal - alone[d] - alone[e]
        expected += alone[d] * alone[e]
    return bool(expected > GENUINE * equal * both)


def _mark_columns(X: Floats, rng: np.random.Generator) -> Words:
    """Return random numbers, [columns, rows]: equal cells of a column have the same.

    The columns of a category, where one is not 0 at a time, count as one column.
    """
    X = X[:, X.min(0) < X.max(0)]
    together = ((X[:, 1:] != 0) & (X[:, :-1] != 0)).any(0)
    marks = []
    for part in np.split(X, np.flatnonzero(together) + 1, axis=1):
        values, place = np.unique(hash_rows(part), return_inverse=True)
        words = rng.integers(2**64, size=len(values), dtype=np.uint64)
        marks.append(words[place])
    return np.array(marks)


def _count_equal(kind: Words) -> float:
    return _count_pairs(np.unique(kind, return_counts=True)[1])


def _count_pairs(rows: Any) -> float:
    return float(np.sum(rows * (rows - 1.0)) / 2)


def _labels_differ(distinct: Floats, count: Ints) -> bool:
    """Return whether labels of equal rows differ about as often as those of neighbours.

    `count`: rows of each class, [distinct rows, C]. The neighbours of a row are the
    nearest other rows, all of them if they are equally near.
    """
    rows = count.sum(1)
    repeated = np.flatnonzero(rows > 1)[:REPEATED]
    own = count[repeated]
    n = rows[repeated]
    differ = (own * (n[:, None] - own)).sum(1) / (n - 1)
    if not differ.any():
        return False

    most = min(NEIGHBOURS, len(distinct))
    U = in_spreads(distinct)
    square = np.square(U).sum(1)
    distance = square[:most] - 2 * U[repeated] @ U[:most].T + square[repeated, None]
    distance[repeated[:, None] == np.arange(most)] = np.inf
    is_near = distance <= distance.min(1, keepdims=True) + TINY * square.max()
    near = is_near @ count[:most]
    agree = (own * near).sum(1) / near.sum(1)
    return bool(differ.sum() >= MIXED * (n - agree).sum())


def in_spreads(X: Floats, among: Floats | None = None) -> Floats:
    """Return columns in interquartile ranges from their medians, limited.

    `among`: rows that say what these are; None: X.
    """
    if among is None:
        among = X
    low, centre, high = np.percentile(among, [25, 50, 75], axis=0)
    with np.errstate(over="ignore"):  # columns of huge numbers
        spread = among.std(0)
    scale = np.where(high > low, high - low, spread)
    scale = np.where(scale > 0, scale, 1.0)
    return np.asarray(np.clip((X - centre) / scale, -FARTHEST, FARTHEST))


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


def divide_copies(weight: Floats) -> Floats:
    """Return the weights of one of g equal tables, if weights are multiples of g."""
    is_whole = (weight % 1 == 0).all() and weight.max() < MOST_COPIES
    if not is_whole:
        return weight

    return weight / np.gcd.reduce(weight.astype(np.int64))


def find_units(table: Table) -> Ints | None:
    """Return the number of each row's case; rows of a case are left out together.

    None: every row is a case of its own.
    """
    if table.group is not None:
        return table.group

    first, place = _number_rows(table)
    if len(first) == table.n_rows:
        return None
    if table.cells:
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
    return np.unique(table.kind, return_index=True)[1], table.kind
