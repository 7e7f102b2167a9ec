"""How rows are split: into folds, or into rows to fit and rows held out. Every split of the package is made here.

- Equal rows stay together, or the rows of a group if there are groups. Such a set of rows is a unit; its class is that of its first
  row.
- Splits are stratified: each part has its share of the units of each class.
- Every class keeps a unit in every training part. A class with a single one is never held out, so no estimate from held-out rows
  contains it.
- A unit counts once, however many rows it has and whatever they weigh, so a row of weight 2 is split as two equal rows are.
  Rows of weight 0 are never held out, and the other rows are split as without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import arrange_columns, hash_rows

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def choose_folds(
    X: Array,
    y: Labels | None,
    k: int,
    seed: Any,
    *,
    weight: Array | None = None,
    group: Labels | None = None,
) -> Labels:
    """Return the fold of each row, 0 to k − 1, or −1 for a row that every fit needs. `y` is None without classes."""
    rng = np.random.default_rng(seed)
    return _split(X, y, rng, lambda n: (np.arange(n) + rng.integers(k)) % k, weight, group)


def hold_out(
    X: Array,
    y: Labels | None,
    share: float,
    seed: Any,
    *,
    weight: Array | None = None,
    group: Labels | None = None,
) -> NDArray[np.bool_]:
    """Return which rows are held out: a share of the units of each class, as near as its number allows."""
    rng = np.random.default_rng(seed)
    part = _split(X, y, rng, lambda n: np.where(np.arange(n) < round(share * n), 0, -1), weight, group)
    return np.asarray(part == 0)


def _split(
    X: Array,
    y: Labels | None,
    rng: np.random.Generator,
    choose: Callable[[int], Labels],
    weight: Array | None,
    group: Labels | None,
) -> Labels:
    """Return the part of each row; `choose` returns those of the n units of a class, which are in random order."""
    found = np.full(len(X), -1)
    kept = np.arange(len(X)) if weight is None else np.flatnonzero(weight > 0)
    if not len(kept):
        return found
    if group is None:
        unit = number_units(X if len(kept) == len(X) else X[kept])
    else:
        unit = np.unique(group[kept], return_inverse=True)[1].reshape(-1)
    codes = np.zeros(len(kept), dtype=np.int64) if y is None else np.asarray(y)[kept]
    classes = codes[np.unique(unit, return_index=True)[1]]
    part, n_classes = np.full(len(classes), -1), int(codes.max()) + 1
    labels, seen = np.unique(classes, return_index=True)
    for label in labels[np.argsort(seen)]:  # names of classes decide nothing
        rows = rng.permutation(np.flatnonzero(classes == label))
        if len(rows) > 1:
            part[rows] = choose(len(rows))
    # rows of a class may share units with those of others: where one part has all of them, a unit goes back to every fit
    low, high, first = (np.full(n_classes, fill) for fill in (len(codes), -1, len(codes)))
    np.minimum.at(low, codes, part[unit])
    np.maximum.at(high, codes, part[unit])
    np.minimum.at(first, codes, unit)
    part[first[low == high]] = -1
    found[kept] = part[unit]
    return found


def number_units(X: Array) -> Labels:
    """Return the number of each row's unit: equal rows have the same, whatever their order, and order and signs of columns."""
    return np.unique(hash_rows(arrange_columns(X)), return_inverse=True)[1].reshape(-1)
