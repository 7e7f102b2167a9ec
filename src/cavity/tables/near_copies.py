"""Near copies: rows that look like rows of groups which the user did not name."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.spatial import cKDTree

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
# In sets of near copies one gap is so many standard errors larger than later ones.
ERRORS = 5.5
TINY = 1e-12  # distance of equal rows


def has_near_copies(table: Table, texts: Sequence[slice] = ()) -> bool:
    """Return whether most rows are near copies of others.

    Features of `texts` are left out: few parts make many texts, which have no density.
    """
    return find_excess(table.X, table.y, texts) > ERRORS


def find_excess(X: Floats, y: Ints, texts: Sequence[slice] = ()) -> float:
    r"""Return by how many standard errors one gap between neighbours exceeds later ones.

    Let d_j be the distance of a row's j-th neighbour. Independent rows of a smooth
    density in D dimensions have gaps

        E_j = j D log(d_{j+1} / d_j)

    that are independent draws of an exponential distribution of mean 1. In sets of m
    near copies E_{m−1} is larger than later gaps: its mean over rows is compared with
    that of E_{j+1} to E_{2j+1}. In clusters all gaps grow slowly. D follows from the
    median of all gaps, log 2. Rows whose neighbours are half of their class, y, do not
    count: classes may be tight clusters.
    """
    rng = np.random.default_rng(0)
    rows, X = _draw(X, texts, rng)
    if len(rows) < LEAST_ROWS or not X.size:
        return 0.0

    U = _scale(X, rng)
    most = 2 + min(NEIGHBOURS, max(2, len(U) // LEAST_SETS))
    distance, near = cKDTree(U).query(U[:ROWS], most)
    label = y[rows]
    own = label[: len(near)]
    is_same = label[near[:, 1:]] == own[:, None]  # the nearest is the row itself
    counted = 2 * is_same.sum(1) < np.bincount(label)[own] - 1
    n = counted.sum()
    if n < LEAST_ROWS:
        return 0.0

    log_distance = np.log(np.maximum(distance[counted, 1:], TINY))
    gap = np.diff(log_distance, axis=1) * np.arange(1, most - 1)
    middle = float(np.median(gap))
    if middle <= 0:
        return 0.0

    E = np.minimum(gap * math.log(2) / middle, LARGEST).mean(0)
    later = [E[k + 1 : 2 * k + 3] for k in range(len(E) - 1)]
    excess = [
        (E[k] - after.mean()) / math.sqrt(1 + 1 / len(after))
        for k, after in enumerate(later)
    ]
    return max(excess) * math.sqrt(n)


def _draw(
    X: Floats, texts: Sequence[slice], rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Return the numbers of random distinct rows, and their columns or projections.

    A column of two values, such as a category's, has no density and is left out.
    """
    most = max(LEAST_AMONG, min(MOST_AMONG, CELLS // X.shape[1]))
    rows = rng.permutation(len(X))[:most]
    rows = rows[np.unique(number_units(X[rows]), return_index=True)[1]]
    rows = rng.permutation(rows)
    few = X[rows[:ROWS]]
    dense = ((few > few.min(0)) & (few < few.max(0))).any(0)
    for block in texts:
        dense[block] = False
    varied = np.flatnonzero(dense)
    X = X[rows[:, None], varied]
    if len(varied) > DIRECTIONS:
        project = rng.standard_normal((len(varied), DIRECTIONS))
        X = in_spreads(X, few[:, varied]) @ project
    return rows, X


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
        columns.append(column + step[place] * rng.random(len(column)))

    return np.column_stack(columns)
