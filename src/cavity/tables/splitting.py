"""Split rows into folds, or into rows to fit and rows held out.

Every split of the package is made here.

- Equal rows stay together, or the rows of a group if there are groups. Such a set of
  rows is a unit; its class is the class of its first row.
- Folds ignore labels: equal shares of the classes in all folds would reveal the class
  frequencies of new rows. `stratified` folds, and rows held out, have their share of
  the units of each class.
- Every class keeps a unit in every training part. A class with a single unit is never
  held out, so no estimate from held-out rows contains it.
- A unit counts once, whatever the number and the weights of its rows. So a row of
  weight 2 is split like two equal rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import hash_arranged
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

    def deal(n: int) -> Ints:
        return (np.arange(n) + rng.integers(k)) % k

    return _split(X, y, rng, deal, group, stratified)


def hold_out(
    X: Floats, y: Ints, share: float, seed: Any, group: Ints | None = None
) -> Flags:
    """Return which rows are held out: a share of the units of each class."""

    def draw(n: int) -> Ints:
        return np.where(np.arange(n) < round(share * n), 0, -1)

    return _split(X, y, np.random.default_rng(seed), draw, group, True) == 0


def _split(
    X: Floats,
    y: Ints,
    rng: np.random.Generator,
    choose: Callable[[int], Ints],
    group: Ints | None,
    stratified: bool,
) -> Ints:
    """Return the part of each row, −1 for rows that every fit needs.

    `choose` returns the parts of n units in random order: of all units, or of the units
    of one class if `stratified`.
    """
    if not len(X):
        return np.full(0, -1)

    if group is None:
        unit = number_units(X)
    else:
        unit = _number(group)

    classes = y[np.unique(unit, return_index=True)[1]]
    part = np.full(len(classes), -1)
    n_classes = int(y.max()) + 1
    if not stratified:
        classes = np.zeros_like(classes)
    labels, seen = np.unique(classes, return_index=True)
    for label in labels[np.argsort(seen)]:  # independent of class names
        units = rng.permutation(np.flatnonzero(classes == label))
        if len(units) > 1:
            part[units] = choose(len(units))

    # Units may have rows of several classes. If one part has all rows of a class, the
    # first unit with this class goes back to every fit.
    low = np.full(n_classes, max(len(y), int(part.max()) + 1))
    high = np.full(n_classes, -1)
    first = np.full(n_classes, len(y))
    np.minimum.at(low, y, part[unit])
    np.maximum.at(high, y, part[unit])
    np.minimum.at(first, y, unit)
    part[first[low == high]] = -1
    return part[unit]


def number_units(X: Floats) -> Ints:
    """Return the number of each row's unit; equal rows have the same number.

    The order of rows and the order and signs of columns do not matter.
    """
    return _number(hash_arranged(X))


def _number(values: NDArray[Any]) -> Ints:
    """Return the number of each value among the sorted distinct values."""
    return np.unique(values, return_inverse=True)[1]
