"""What the numbers of a model file may be: ranges of arrays, and kinds of JSON values.

Nothing here loads torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import BadFile

Array = Any  # of NumPy
Sizes = dict[str, int]  # numbers by symbol, such as C, M, D
Check = Callable[[Any, str, Sizes], None]  # of a JSON value and its name; raises BadFile

LARGE = 1e15  # far beyond any whitened value, weight or factor of a fit
LEAST_PIVOT = 1e-6  # of a posterior's factor: Λ is about I + (something positive)
LOG_LARGEST = {8: 709.0, 4: 88.0}  # logarithm of the largest number, by bytes
MOST_TEXT = 100_000
QUANTILES = 101  # of variances at training rows


class Range(NamedTuple):
    """A range of values; all of them are finite."""

    words: str
    holds: Callable[[Array, Sizes], Any]

    def check(self, name: str, array: Array, sizes: Sizes) -> None:
        """Raise BadFile if an array has values outside."""
        if array.dtype.kind == "f" and not (abs(array) < math.inf).all():
            raise BadFile(f"{name!r:.100} holds NaN or infinity.")
        with np.errstate(over="ignore"):  # a limit beyond float32 always holds
            inside = self.holds(array, sizes)
        if not inside:
            raise BadFile(f"{name:.100} is not {self.words}.")


def within(low: float, high: float, words: str, above: bool = False) -> Range:
    """Return the range of numbers from `low`, or `above` it, to `high`."""
    return Range(words, lambda a, _: ((a > low) if above else (a >= low)).all() and (a <= high).all())


def index(symbol: str) -> Range:
    """Return the range of whole numbers below a size."""
    return Range(f"a number below {symbol}", lambda a, sizes: (a >= 0).all() and (a < sizes[symbol]).all())


def _has_pivots(least: float, most: float) -> Callable[[Array, Sizes], Any]:
    return lambda a, _: (a.diagonal(0, -2, -1) > least).all() and (abs(a) <= most).all()


def _has_shares(a: Array, _: Sizes) -> Any:
    close = 1e-6 if a.itemsize == 8 else 1e-3
    return (a >= 0).all() and (abs(a.sum(-1, dtype="f8") - 1) <= close).all()


def _is_child(a: Array, sizes: Sizes) -> Any:
    return (a >= np.arange(len(a))).all() and (a < sizes["nodes"]).all()


def _is_pair(a: Array, sizes: Sizes) -> Any:
    return _is_child(a + (a != np.arange(len(a))), sizes) and _is_child(a, sizes)


FINITE = Range("finite", lambda a, _: True)
BOUNDED = within(-LARGE, LARGE, f"within ±{LARGE:g}")
WIDE = within(-1e50, 1e50, "within ±1e50")
POSITIVE = within(0, math.inf, "positive", above=True)
NOT_NEGATIVE = within(0, LARGE, f"between 0 and {LARGE:g}")
SHARE = within(0, 1 - 1e-15, "a share in [0, 1)")
SHARES = Range("shares that sum to one", _has_shares)
LOG = Range("the logarithm of a number of its type", lambda a, _: (abs(a) < LOG_LARGEST[a.itemsize]).all())
FACTOR = Range("a Cholesky factor", _has_pivots(0.0, 1e150))
PRECISION_FACTOR = Range("a Cholesky factor of a precision", _has_pivots(LEAST_PIVOT, LARGE))
LINEAR = "linear"  # a member of a pool that has no trees; null: networks
LEAVES = Range("scores, or shares that sum to one", lambda a, of: of["boosted"] or _has_shares(a, of))
PAIR = Range("two nodes after their parent", _is_pair)


def number(low: float = -math.inf, high: float = math.inf, above: bool = False, finite: bool = True) -> Check:
    """Return the check of a number from `low`, or `above` it, to `high`."""

    def check(value: Any, name: str, _: Sizes) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadFile(f"{name}: {value!r:.40} is not a number.")
        inside = not finite or (math.isfinite(value) and low <= value <= high and (value > low or not above))
        if not inside:
            raise BadFile(f"{name}: {value!r:.40} is not a finite number from {low:g} to {high:g}.")

    return check


def whole(low: int, high: int, symbol: str | None = None) -> Check:
    """Return the check of a whole number from `low` to `high`, or to `high` times a size."""

    def check(value: Any, name: str, sizes: Sizes) -> None:
        most = high * (1 if symbol is None else sizes[symbol])
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= most:
            raise BadFile(f"{name}: {value!r:.40} is not a small whole number, {low} to {most}.")

    return check


def many(each: Check, size: str | None = None, most: int | None = None) -> Check:
    """Return the check of a list of values, as many as a size has or `most`."""

    def check(values: Any, name: str, sizes: Sizes) -> None:
        wanted = None if size is None else sizes[size]
        if not isinstance(values, list) or (wanted is not None and len(values) != wanted):
            raise BadFile(f"{name} is not a list{'' if wanted is None else f' of {wanted} values'}.")
        if most is not None and len(values) > most:
            raise BadFile(f"{name} has more than {most} values.")
        for value in values:
            each(value, name, sizes)

    return check


def flag(value: Any, name: str, _: Sizes) -> None:
    if not isinstance(value, bool):
        raise BadFile(f"{name}: {value!r:.40} is neither true nor false.")


def kind_of_member(value: Any, name: str, _: Sizes) -> None:
    if value is not None and not isinstance(value, bool) and value != LINEAR:
        raise BadFile(f"{name}: {value!r:.40} is none of true, false, null and {LINEAR!r}.")


def text(value: Any, name: str, _: Sizes) -> None:
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise BadFile(f"{name} is not a text.")


def scalar(value: Any, name: str, _: Sizes) -> None:
    if value is not None and not isinstance(value, str | int | float):
        raise BadFile(f"{name}: {value!r:.40} is neither a number nor a text.")


def anything(value: Any, name: str, sizes: Sizes) -> None: ...


def number_or_list(value: Any, name: str, sizes: Sizes) -> None:
    (many(number()) if isinstance(value, list) else number())(value, name, sizes)


def row(*checks: Check) -> Check:
    """Return the check of a list with one value for each check."""

    def check(values: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(values, list) or len(values) != len(checks):
            raise BadFile(f"{name} is not a list of {len(checks)} values.")
        for each, value in zip(checks, values, strict=True):
            each(value, name, sizes)

    return check


def by_name(each: Check, *needed: str) -> Check:
    """Return the check of an object of JSON whose values pass a check; it has the names `needed`, and numbers there."""

    def check(value: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(value, dict):
            raise BadFile(f"{name} is not a JSON object.")
        for key, inner in value.items():
            each(inner, f"{name}.{key:.40}", sizes)
        if not all(isinstance(value.get(key), int | float) for key in needed):
            raise BadFile(f"{name} is not a list of numbers by name.")

    return check


mapping = by_name(anything)


def quantiles(values: Any, name: str, sizes: Sizes) -> None:
    """Check that there are 101 variances in ascending order."""
    many(number(0, LARGE))(values, name, sizes)
    if len(values) != QUANTILES or any(a > b for a, b in pairwise(values)):
        raise BadFile(f"{name} is not a list of {QUANTILES} ascending values.")


def shares(values: Any, name: str, sizes: Sizes) -> None:
    """Check that there is a share per class, which sum to one."""
    many(number(0, 1.001), "classes")(values, name, sizes)
    if not abs(sum(values) - 1) < 1e-6:
        raise BadFile(f"{name} does not sum to one.")
