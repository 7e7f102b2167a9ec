"""Column statistics for the starting values, and equal rows.

The statistics take one pass over (weighted) rows in the user's units.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.slices import slices
from cavity.common.types import Flags, Floats, Ints
from cavity.errors import BadOption

Words = NDArray[np.uint64]
# weight, mean and Σ weight · deviation²: numbers, or arrays that broadcast
Triple = tuple[Any, Any, Any]
MEDIAN_ROWS = 1000  # rows used for the median distance
PIECE = 512  # rows per piece of a pass that makes intermediate arrays
PIECE_CELLS = (
    1 << 15
)  # the same in cells: they stay in the cache, however wide rows are
ORDER_ROWS = 10_000  # rows used for the order of columns
MOST_NAMES = 20  # of columns in an error
RANGE = 4.0  # a column's spread is at least its range divided by this
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, with well mixed bits
# rows reach BEYOND times the quantile USUAL of their squared distances from the centre
USUAL = 0.99
BEYOND = 2.0


class Columns(NamedTuple):
    """Centre and spread of each column, and distances in units of the spread.

    The spread is the standard deviation, or a quarter of the range if that is larger.
    Otherwise a column that is nearly constant (a pixel at the border) would place the
    few rows that differ too far from all other rows.

    Every statistic scales exactly with its column (by a power of two, to the last bit),
    so that training does not depend on the user's units.
    """

    center: Floats  # [D]
    spread: Floats  # [D], positive
    distance: float  # median distance between rows
    # [D], number of each column's lengthscale; None: each has its own
    group: Ints | None = None
    constant: Flags | None = None  # [D], columns that share another's lengthscale
    # squared distance from the centre that rows hardly ever exceed
    square_reach: float = 1.0
    # features of each column of the user's table, by name and by number; None: columns
    # are features, without names
    places: Mapping[Any, tuple[int, ...]] | None = None

    def find(self, wanted: Any, what: str) -> Ints:
        """Return the features of columns that are named or numbered."""
        places = self.places
        if places is None:
            places = {j: (j,) for j in range(len(self.center))}
        single = isinstance(wanted, str) or not isinstance(wanted, Iterable)
        names = [wanted] if single else list(wanted)
        found = list[int]()
        for name in names:
            if isinstance(name, bool) or name not in places:
                named = [place for place in places if isinstance(place, str)]
                known = ", ".join(map(repr, (named or list(places))[:MOST_NAMES]))
                raise BadOption(
                    f"{what} has {name!r}, which the table lacks: use names or numbers "
                    f"of its columns, {known}."
                )
            found += places[name]

        if not found:
            raise BadOption(f"{what} is empty: leave it out for all columns.")
        if len(set(found)) < len(found):
            raise BadOption(f"{what} has a column twice: {names!r:.200}.")

        return np.array(found, dtype=np.int64)

    def select(self, index: Ints) -> Columns:
        """Return the statistics of some columns, whose distance is a share."""
        share = len(index) / len(self.center)
        group = constant = None
        if self.group is not None:
            _, group = np.unique(self.group[index], return_inverse=True)
            share = (group.max() + 1) / (self.group.max() + 1)
        if self.constant is not None:
            constant = self.constant[index]
        return Columns(
            self.center[index],
            self.spread[index],
            self.distance * math.sqrt(share),
            group,
            constant,
            self.square_reach * share,
        )


class Sharing(NamedTuple):
    """What columns that encode one quantity share."""

    group: Ints  # [D], number of each column's lengthscale
    blocks: Sequence[slice]  # the one-hot columns of a category
    # columns that mark missing cells of the column before them
    indicators: Sequence[int]


def share_units(
    columns: Columns,
    sharing: Sharing,
    U: Floats,
    weight: Floats,
    rng: np.random.Generator,
) -> tuple[Columns, Floats]:
    """Return columns with shared lengthscales and units, and the rows in these units.

    U are the rows in the old units. A category counts as one standardised column, and
    its levels are equally far from each other: s² of its block is the sum of squared
    spreads. An indicator has the unit of its column: a missing cell, set to the mean,
    is then as far from the other cells as they are from each other.
    """
    spread = columns.spread.copy()
    for block in sharing.blocks:
        spread[block] = np.sqrt((spread[block] ** 2).sum())
    for j in sharing.indicators:
        spread[j] = spread[j - 1]
    U = U * (columns.spread / spread)
    return _measure(columns.center, spread, U, weight, rng, sharing.group), U


def summarize(X: Floats, weight: Floats, rng: np.random.Generator) -> Columns:
    """Return the statistics of weighted rows; a row of weight w counts as w rows."""
    low = X.min(axis=0)
    high = X.max(axis=0)
    center = weight @ X / weight.sum()
    # exact for a constant column, so that it has neither distance nor gradient
    center = np.where(low == high, low, center)
    _, unit = _find_units(center, low, high)
    square = np.zeros(len(unit))
    for piece in slices(len(X), PIECE):  # small enough for the cache
        square += weight[piece] @ ((X[piece] - center) / unit) ** 2
    deviation = unit * np.sqrt(square / weight.sum())
    return from_moments(low, high, center, deviation, X, weight, rng=rng)


def from_moments(
    low: Floats,
    high: Floats,
    center: Floats,
    deviation: Floats,
    X: Floats,
    weight: Floats,
    *,
    rng: np.random.Generator,
) -> Columns:
    """Return the same from exact moments of all rows, and a weighted sample X.

    The sample gives the median distance.
    """
    constant = low == high
    center = np.where(constant, low, center)
    nearly, unit = _find_units(center, low, high)
    spread = np.where(nearly, unit, np.maximum(deviation, (high - low) / RANGE))
    X, weight = _sample(X, weight, rng)
    found = _measure(center, spread, (X - center) / spread, weight, rng)
    if not constant.any() or constant.all():
        return found

    # constant columns share the lengthscale of another: a model is then the same with
    # and without them
    group = np.maximum(np.cumsum(~constant) - 1, 0)
    return found._replace(group=group, constant=constant)


def _find_units(center: Floats, low: Floats, high: Floats) -> tuple[Flags, Floats]:
    """Return which columns are constant, and the unit of each column.

    The unit is the largest deviation, or the size of a constant. A constant column has
    only rounding errors around its mean; it adds no distance, so any unit will do.
    """
    size = np.abs(center)
    largest = np.maximum(high - center, center - low)
    constant = largest <= 1e-12 * size
    size[size == 0] = 1.0
    return constant, np.where(constant, size, largest)


def _measure(
    center: Floats,
    spread: Floats,
    U: Floats,
    weight: Floats,
    rng: np.random.Generator,
    group: Ints | None = None,
) -> Columns:
    """Return the statistics of columns, given rows U in spreads from the centre."""
    square = (U**2).sum(1)
    order = np.argsort(square, kind="stable")
    cumulative = np.cumsum(weight[order])
    usual = order[np.searchsorted(cumulative, USUAL * cumulative[-1])]
    reach = BEYOND * float(square[usual])
    if not reach > 0:
        reach = 1.0
    distance = median_distance(U, weight, rng)
    return Columns(center, spread, distance, group, square_reach=reach)


def _sample(
    X: Floats, weight: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    if len(X) <= MEDIAN_ROWS:
        return X, weight

    chosen = rng.choice(len(X), MEDIAN_ROWS, replace=False, p=weight / weight.sum())
    return X[chosen], np.ones(MEDIAN_ROWS)


def distinct_rows(X: Floats) -> tuple[Floats, Ints]:
    """Return the distinct rows and each row's index in them.

    Distinct rows ascend by the columns in the order of `order_columns`, so that the
    order of rows and of columns does not change theirs.
    """
    words = hash_rows(X)
    _, first, place = np.unique(words, return_index=True, return_inverse=True)
    found = X[first]
    order = np.zeros(1, np.int64)
    if len(first) > 1:
        order = sort_rows(np.take(found, order_columns(found), 1))
    rank = np.empty(len(first), np.int64)
    rank[order] = np.arange(len(first))
    return found[order], rank[place]


def sort_rows(X: Floats) -> Ints:
    """Return the order of distinct rows, as np.lexsort does.

    Columns are compared only as far as rows are equal.
    """
    bits = (X + 0.0).view(np.int64)  # minus zero is zero
    # bytes that ascend as the numbers do
    text = (bits ^ (bits >> 63 | np.int64(-(2**63)))).astype(">i8")
    return np.argsort(text.view(f"V{8 * X.shape[1]}").reshape(-1))


def order_columns(X: Floats, sign: Floats | float = 1.0) -> Ints:
    r"""Return the columns that are not constant, in an order set by their values alone.

        key_d = mean_n r_nd s_n        s_n = Σ_d r_nd + r_nd²

    r are cells as shares of their column's range; s is the same in any order of
    columns. Keys are rounded, so that the last bits do not decide. Columns with equal
    keys keep their order.
    """
    sample = X[:: _find_step(len(X))]
    return _order_columns(sample, sign, X.min(0), X.max(0))


def _find_step(n: int) -> int:
    return -(-n // ORDER_ROWS)


def _order_columns(
    sample: Floats, sign: Floats | float, low: Floats, high: Floats
) -> Ints:
    ends = low * sign, high * sign
    low = np.minimum(*ends)
    high = np.maximum(*ends)
    varying = np.flatnonzero(low < high)
    # ranges beyond float64: any order will do
    with np.errstate(over="ignore", invalid="ignore"):
        r = np.take(sample * sign, varying, 1)
        r -= low[varying]
        r /= (high - low)[varying]
        s = (r + r**2).sum(1)
        keys = [np.nan_to_num(r.T @ s**power / len(s)).round(9) for power in (2, 1)]

    return np.asarray(varying[np.lexsort(keys)])


def arrange_columns(X: Floats) -> Floats:
    """Return the columns that are not constant, with their own order and signs.

    X and −X give the same.
    """
    sign, order = find_arrangement(X)
    return np.asarray(np.take(X, order, 1) * sign[order] + 0.0)  # minus zero is zero


def find_arrangement(X: Floats, first: Ints | None = None) -> tuple[Floats, Ints]:
    """Return the columns' signs, and those that vary in the order of `order_columns`.

    `first`: the distinct rows, which are read in this order; None: all rows.
    """
    low = X.min(0)
    high = X.max(0)
    sign = _find_signs(X, low, high, first)
    if first is None:
        sample = X[:: _find_step(len(X))]
    else:
        sample = X[first[:: _find_step(len(first))]]
    return sign, _order_columns(sample, sign, low, high)


def find_signs(X: Floats) -> Floats:
    """Return −1 for columns whose mean is above the middle of their range, else 1."""
    return _find_signs(X, X.min(0), X.max(0), None)


def _find_signs(X: Floats, low: Floats, high: Floats, first: Ints | None) -> Floats:
    n = len(X) if first is None else len(first)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.zeros(X.shape[1])
        for piece in slices(n, PIECE):
            rows = X[piece] if first is None else X[first[piece]]
            total += (rows - low).sum(0)
        mean = total / n
        share = mean / np.where(low < high, high - low, np.nan)

    above = np.nan_to_num(share - 0.5).round(9) > 0
    return np.where(above, -1.0, 1.0)


def median_distance(U: Floats, weight: Floats, rng: np.random.Generator) -> float:
    """Return the weighted median distance between rows of U.

    Many rows are sampled.
    """
    U, weight = _sample(U, weight, rng)
    square = (U**2).sum(1)
    d2 = np.maximum(square[:, None] + square[None, :] - 2 * U @ U.T, 0.0)
    pair = np.triu(np.ones(d2.shape, bool), k=1)
    distance = np.sqrt(d2[pair])
    if not len(distance):
        return 1.0

    middle = (len(distance) - 1) // 2
    if weight.min() == weight.max():
        median = np.partition(distance, middle)[middle]
    else:
        order = np.argsort(distance)
        cumulative = np.cumsum(np.outer(weight, weight)[pair][order])
        median = distance[order][np.searchsorted(cumulative, 0.5 * cumulative[-1])]

    return float(median) if median > 0 else 1.0


def merge_spread(a: Triple, b: Triple) -> Triple:
    r"""Merge weight, mean and S = Σ weight · deviation² of two groups (Chan's rule).

    w = w_a + w_b                      m = m_a + w_b/w (m_b − m_a)
    S = S_a + S_b + w_a w_b/w (m_b − m_a)²
    """
    w_a, m_a, S_a = a
    w_b, m_b, S_b = b
    w = np.asarray(w_a + w_b, dtype=np.float64)
    share = np.divide(w_b, w, out=np.zeros_like(w), where=w > 0)
    with np.errstate(over="ignore", invalid="ignore"):
        gap = m_b - m_a
        # ** of a float raises on overflow
        return w, m_a + share * gap, S_a + S_b + w_a * share * (gap * gap)


def hash_rows(X: Floats, first: int = 0) -> Words:
    """Return one word per row, which depends on its numbers alone; minus zero is zero.

    `first` is the number of the first column.
    """
    return _sum_words(X, _draw_factors(first, X.shape[1]), 1.0)


def hash_arranged(X: Floats, first: Ints | None = None) -> Words:
    """Return `hash_rows(arrange_columns(X))` without arranging the columns.

    A word is a sum over columns, so the factors are arranged instead. `first`: the
    distinct rows, in the order in which they decide the arrangement; None: all rows.
    """
    sign, order = find_arrangement(X, first)
    factors = np.zeros(X.shape[1], np.uint64)
    factors[order] = _draw_factors(0, len(order))
    return _sum_words(X, factors, sign)


def _draw_factors(first: int, count: int) -> Words:
    """Return an odd factor per column, by its number."""
    steps = np.arange(first + 1, first + count + 1, dtype=np.uint64) * GOLDEN
    return mix_bits(steps) | np.uint64(1)


def _sum_words(X: Floats, factors: Words, sign: Floats | float) -> Words:
    words = np.empty(len(X), np.uint64)
    for piece in slices(len(X), max(1, PIECE_CELLS // max(1, X.shape[1]))):
        cells = np.multiply(X[piece], sign, dtype=np.float64, order="C")
        cells += 0.0  # minus zero is zero
        words[piece] = fold_bits(cells.view(np.uint64)) @ factors

    return words


def mix_bits(x: Words) -> Words:
    """Mix the bits of every word (the last steps of splitmix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fold_bits(bits: Words) -> Words:
    """Bring the upper bits down: the lower ones of whole numbers are zero."""
    return bits ^ (bits >> np.uint64(32))


def hash_column(values: Any) -> Words:
    """Return one word per value; equal numbers of different types have equal words."""
    distinct, place = np.unique(values, return_inverse=True)
    words = np.array([_hash_value(v) for v in distinct.tolist()], dtype=np.uint64)
    return words[place.reshape(-1)]


def _hash_value(value: Any) -> int:
    if isinstance(value, bool | int | float) and value == int(value):
        value = int(value)
    kind = "text" if isinstance(value, str) else "number"
    digest = hashlib.blake2b(f"{kind} {value!s}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
