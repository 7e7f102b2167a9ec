r"""Numbers that name groups of rows, such as a person in several years: the classes of a group's other rows are features.

A group with n_c rows of class c, out of n, has the shares

    s_c = (n_c + α p_c) / (n + α) − p_c        p: class frequencies of the table

so that a small group stays near 0, as does a new one. Training rows get shares that do not count their own fold. Equal rows are
in the same fold: the label of a copy is not what a group tells.

A number is taken for a group only if that pays: without a row's own fold, the shares of its own value must predict its class
better than those of the neighbouring values do. For a quantity (an age, a year, a count) neighbours tell as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.rows.batches.source import Array
from cavity.rows.columns.column_kinds import Column, Number, count_shares
from cavity.rows.splitting import choose_folds

Places = NDArray[np.int64]

PRIOR_ROWS = 2.0  # α
FOLDS = 10
LEAST_GROUPS = 50  # with fewer values, a number is a quantity or a short list
LEAST_REPEATS = 3.0  # rows per value
MOST_CLASSES = 50
MOST_ROWS = 1_000_000
ROUNDING = 1e-14  # relative error of numbers that were standardised
MOST_VALUE = 1e12  # larger numbers are not told apart
REACH = 2  # neighbouring values on each side
LEAST_GAIN = 0.05  # share of the loss by which a value must be better than its neighbours
LEAST_ERRORS = 5.0  # standard errors of that gain, by groups


class Labels(NamedTuple):
    y: NDArray[np.int64]  # [N]
    weight: Array  # [N]
    names: tuple[str, ...]  # of the classes

    @property
    def prior(self) -> Array:
        total = np.bincount(self.y, weights=self.weight, minlength=len(self.names))
        return np.asarray(total / total.sum())

    def select(self, rows: NDArray[Any]) -> Labels:
        return Labels(self.y[rows], self.weight[rows], self.names)


def find_groups(X: Array, columns: Sequence[Column], labels: Labels) -> tuple[Array, tuple[Column, ...]]:
    """Return features and columns with the shares of all numbers that name groups; the same objects if there are none."""
    if len(labels.names) > MOST_CLASSES or len(X) > MOST_ROWS:
        return X, tuple(columns)
    folds = cache(lambda: choose_folds(X, None, FOLDS, 0))
    made = tuple(_find_group(block, column, labels, folds) for column, block in _cut(X, columns))
    if not any(map(count_shares, made)):
        return X, tuple(columns)
    return _insert(X, made, lambda value, _: _training_shares(value, labels, folds())), made


def insert_shares(X: Array, columns: Sequence[Column]) -> Array:
    return _insert(X, columns, lambda value, column: column.find_shares(value))


def replace_shares(X: Array, columns: Sequence[Column], labels: Labels) -> Array:
    """Return the features of training rows, given their features as new rows."""
    if not any(map(count_shares, columns)):
        return X
    shares = [[i >= len(c.features) - count_shares(c) for i in range(len(c.features))] for c in columns]
    X = X[:, ~np.concatenate(shares)]
    folds = choose_folds(X, None, FOLDS, 0)
    return _insert(X, columns, lambda value, _: _training_shares(value, labels, folds))


def _cut(X: Array, columns: Sequence[Column]) -> Iterator[tuple[Column, Array]]:
    """Yield each column with its features, without shares."""
    first = 0
    for column in columns:
        stop = first + len(column.features) - count_shares(column)
        yield column, X[:, first:stop]
        first = stop


def _insert(X: Array, columns: Sequence[Column], find: Callable[[Array, Number], Array]) -> Array:
    """Return features with those that `find` returns behind the number of each group."""
    parts = []
    for column, block in _cut(X, columns):
        parts.append(block)
        if isinstance(column, Number) and column.values:
            parts.append(find(np.round(_original(block, column)), column))
    return np.ascontiguousarray(np.concatenate(parts, axis=1))


def _original(block: Array, number: Number) -> Array:
    """Return a column in its own units; NaN for missing cells."""
    value = block[:, 0] * number.scale + number.mean
    return np.where(block[:, 1] > 0, np.nan, value) if number.missing else value


def _find_group(block: Array, column: Column, labels: Labels, folds: Callable[[], Places]) -> Column:
    """Return the column as a group if it is a number whose values tell more than their neighbours; else as it is."""
    if not isinstance(column, Number):
        return column
    value = _original(block, column)
    present = ~np.isnan(value)
    value, labels = value[present], labels.select(present)
    whole, largest = np.round(value), float(np.abs(value).max(initial=0.0))
    if largest > MOST_VALUE or np.abs(value - whole).max(initial=0.0) > ROUNDING * (1 + largest):
        return column
    values, place = np.unique(whole, return_inverse=True)
    if not LEAST_GROUPS < len(values) <= len(whole) / LEAST_REPEATS:
        return column
    if not _tells_more(place.reshape(-1), len(values), labels, folds()[present]):
        return column
    shares = _shares(_count(place.reshape(-1), len(values), labels), labels.prior)
    found = tuple(values.tolist()), tuple(map(tuple, shares.tolist())), labels.names
    return Number(*column[:7], *found)


def _tells_more(place: Places, n_values: int, labels: Labels, folds: Places) -> bool:
    """Return whether the other rows of a row's value predict its class better than rows of the neighbouring values."""
    prior = labels.prior
    own, near = np.zeros(len(place)), np.zeros(len(place))
    for fold, counts in _count_without_folds(place, n_values, labels, folds):
        padded = np.pad(counts, ((REACH, REACH), (0, 0)))
        around = np.sum([padded[i : i + n_values] for i in range(2 * REACH + 1) if i != REACH], axis=0)
        for loss, found in ((own, counts), (near, around)):
            p = _shares(found, prior)[place[fold]] + prior
            loss[fold] = -np.log(p[np.arange(len(fold)), labels.y[fold]])
    gain = labels.weight * (near - own)
    of_group = np.bincount(place, weights=gain, minlength=n_values)
    error = np.sqrt(((of_group - of_group.mean()) ** 2).sum())
    return bool(of_group.sum() > max(LEAST_GAIN * (labels.weight @ near), LEAST_ERRORS * error))


def _count(place: Places, n_values: int, labels: Labels) -> Array:
    """Return the weight of each class in each group, [G C]."""
    C = len(labels.names)
    flat = np.bincount(place * C + labels.y, weights=labels.weight, minlength=n_values * C)
    return np.asarray(flat.reshape(n_values, C))


def _count_without_folds(
    place: Places, n_values: int, labels: Labels, fold: Places
) -> Iterator[tuple[Places, Array]]:
    """Yield the rows of each fold, with the counts of all other rows."""
    total = _count(place, n_values, labels)
    for rows in (np.flatnonzero(fold == i) for i in range(FOLDS)):
        yield rows, total - _count(place[rows], n_values, labels.select(rows))


def _training_shares(value: Array, labels: Labels, fold: Places) -> Array:
    """Return the shares of each row's group without its own fold, [N C]."""
    values, place = np.unique(value, return_inverse=True)  # all missing cells are one value
    shares = np.zeros((len(value), len(labels.names)))  # a row that is alone has no fold
    for rows, counts in _count_without_folds(place.reshape(-1), len(values), labels, fold):
        shares[rows] = _shares(counts, labels.prior)[place.reshape(-1)[rows]]
    return np.where(np.isnan(value)[:, None], 0.0, shares)


def _shares(counts: Array, prior: Array) -> Array:
    total = counts.sum(1, keepdims=True)
    return np.asarray((counts + PRIOR_ROWS * prior) / (total + PRIOR_ROWS) - prior)
