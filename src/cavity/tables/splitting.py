"""How rows are split: into folds, or into rows to fit and rows held out.

Every split of the package is made here.

- Equal rows stay together, or the rows of a group if there are groups. Such a set of
  rows is a unit; its class is that of its first row.
- Folds are drawn whatever the labels: equal shares of the classes in all of them would
  tell what the class frequencies of new rows are. `stratified` folds, and rows held
  out, have their share of the units of each class.
- Every class keeps a unit in every training part. A class with a single one is never
  held out, so no estimate from held-out rows contains it.
- A unit counts once, however many rows it has and whatever they weigh, so a row of
  weight 2 is split as two equal rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cavity.common.column_statistics import arrange_columns, hash_rows
from cavity.common.types import Flags, Floats, Ints


def choose_folds(
    X: Floats,
    y: Ints,
    k: int,
    seed: Any,
    group: Ints | None = None,
    *,
    stratified: bool = False,
) -> Ints:
    """Return the fold of each row, 0 to k − 1, or −1 for a row that every fit needs."""
    rng = np.random.default_rng(seed)
    return _split(
        X, y, rng, lambda n: (np.arange(n) + rng.integers(k)) % k, group, stratified
    )


def hold_out(
    X: Floats, y: Ints, share: float, seed: Any, group: Ints | None = None
) -> Flags:
    """Return which rows are held out: a share of the units of each class, as near as
    its number allows.
    """
    rng = np.random.default_rng(seed)
    return (
        _split(
            X,
            y,
            rng,
            lambda n: np.where(np.arange(n) < round(share * n), 0, -1),
            group,
            True,
        )
        == 0
    )


def _split(
    X: Floats,
    y: Ints,
    rng: np.random.Generator,
    choose: Callable[[int], Ints],
    group: Ints | None,
    stratified: bool,
) -> Ints:
    """Return the part of each row; `choose` returns those of n units in random order,
    of a class if `stratified`.
    """
    if not len(X):
        return np.full(0, -1)
    if group is None:
        unit = number_units(X)
    else:
        unit = np.unique(group, return_inverse=True)[1].reshape(-1)
    classes = y[np.unique(unit, return_index=True)[1]]
    part = np.full(len(classes), -1)
    n_classes = int(y.max()) + 1
    if not stratified:
        classes = np.zeros_like(classes)
    labels, seen = np.unique(classes, return_index=True)
    for label in labels[np.argsort(seen)]:  # names of classes decide nothing
        rows = rng.permutation(np.flatnonzero(classes == label))
        if len(rows) > 1:
            part[rows] = choose(len(rows))
    # rows of a class may share units with those of others: where one part has all of
    # them, a unit goes back to every fit
    most = max(len(y), int(part.max()) + 1)
    low, high, first = (np.full(n_classes, fill) for fill in (most, -1, len(y)))
    np.minimum.at(low, y, part[unit])
    np.maximum.at(high, y, part[unit])
    np.minimum.at(first, y, unit)
    part[first[low == high]] = -1
    return part[unit]


def number_units(X: Floats) -> Ints:
    """Return the number of each row's unit: equal rows have the same, whatever their
    order, and order and signs of columns.
    """
    return np.unique(hash_rows(arrange_columns(X)), return_inverse=True)[1].reshape(-1)
