"""Near copies: rows that look like rows of groups which the user did not name."""

from __future__ import annotations

import math

import numpy as np

from cavity.common.types import Floats, Ints
from cavity.tables.repeats import in_spreads
from cavity.tables.splitting import number_units
from cavity.tables.table import Table

ROWS = 400  # random rows whose neighbours are looked at
CELLS = 1_000_000  # of the random rows that the neighbours are among,
LEAST_AMONG, MOST_AMONG = 2000, 6000  # and how many rows that makes
DIRECTIONS = 25  # random projections of wider rows, which keep what is near
LEAST_ROWS = 40  # fewer distinct rows are not searched
NEIGHBOURS = 25  # of each row, at most; larger sets of near copies are not looked for
LEAST_SETS = 20  # fewer sets of near copies are clusters, as classes form them
LARGEST = 5.0  # limit of a normalised gap: a few rows decide nothing
# Gaps are this many standard errors above their expectation, or more. Of 490 tables of
# independent rows (clusters, heavy tails, whole numbers, curves) 1 % reach 6.
ERRORS = 8.0
TINY = 1e-12  # error of a squared distance


def has_near_copies(table: Table) -> bool:
    r"""Return whether most rows are near copies of others.

    Let d_j be the distance of a row's j-th neighbour. Independent rows of a smooth
    density in D dimensions have normalised gaps

        E_j = j D log(d_{j+1} / d_j)

    that are independent draws of an exponential distribution of mean 1. In sets of m
    near copies E_{m−1} is larger. D follows from the median of all gaps, log 2.
    """
    rng = np.random.default_rng(0)
    rows, X = _draw(table, rng)
    if len(rows) < LEAST_ROWS:
        return False

    label = table.y[rows]
    n = min(ROWS, len(rows))
    log_distance, near = _find_neighbours(_scale(X, rng), n)
    j = np.arange(1, log_distance.shape[1])
    gap = j * np.diff(log_distance, axis=1)
    # Only where most rows of the label are farther: classes may be tight clusters.
    is_same = label[near] == label[:n, None]
    others = np.bincount(label)[label[:n]] - 1
    counted = 2 * np.cumsum(is_same, axis=1)[:, :-1] < others[:, None]
    middle = np.median(gap[counted]) if counted.any() else 0.0
    if middle <= 0:
        return False

    E = np.minimum(gap * math.log(2) / middle, LARGEST)
    E[~counted] = 0.0
    return bool((E.mean(0).max() - 1) * math.sqrt(n) > ERRORS)


def _draw(table: Table, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Return the numbers of random distinct rows, and their columns or projections."""
    most = max(LEAST_AMONG, min(MOST_AMONG, CELLS // table.X.shape[1]))
    rows = rng.permutation(table.n_rows)[:most]
    few = table.X[rows[:ROWS]]
    varied = np.flatnonzero(few.max(0) > few.min(0))
    X = table.X[rows[:, None], varied]
    if len(varied) > DIRECTIONS:
        project = rng.standard_normal((len(varied), DIRECTIONS))
        X = in_spreads(X, few[:, varied]) @ project

    place = rng.permutation(np.unique(number_units(X), return_index=True)[1])
    return rows[place], X[place]


def _scale(X: Floats, rng: np.random.Generator) -> Floats:
    """Return columns in units of their spread; equal values are drawn apart.

    A repeated value moves by a random part of the way to the next one. Otherwise rows
    of whole numbers would stand in shells around each other.
    """
    columns = []
    for column in in_spreads(X).T:
        values, place, count = np.unique(
            column, return_inverse=True, return_counts=True
        )
        if len(values) == 1:
            continue

        step = np.diff(values, append=2 * values[-1] - values[-2])
        step[count == 1] = 0.0
        columns.append(column + step[place.reshape(-1)] * rng.random(len(column)))

    return np.column_stack(columns)


def _find_neighbours(U: Floats, n: int) -> tuple[Floats, Ints]:
    """Return log distances of the first n rows to their neighbours, and these."""
    square = np.square(U).sum(1)
    own = square[:n, None]
    distance = np.maximum(own + square - 2 * U[:n] @ U.T, TINY * own + 1e-300)
    distance[np.arange(n), np.arange(n)] = np.inf
    most = 1 + min(NEIGHBOURS, max(2, len(U) // LEAST_SETS))
    near = np.argpartition(distance, most, axis=1)[:, :most]
    found = np.take_along_axis(distance, near, 1)
    order = np.argsort(found, axis=1)
    found = np.take_along_axis(found, order, 1)
    return 0.5 * np.log(found), np.take_along_axis(near, order, 1)
