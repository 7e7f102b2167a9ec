"""Ranges of the arrays in a model file, and kinds of JSON values; without torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import BadFile
from cavity.prediction.novelty import QUANTILES

Array = Any  # of NumPy
Sizes = dict[str, int]  # by symbol, such as C, M, D
# takes a JSON value and its name; raises BadFile
Check = Callable[[Any, str, Sizes], None]

LARGE = 1e15  # far beyond any whitened value, weight or factor of a fit
# pivots of a posterior's factor: Λ = I + P, and P is not negative
LEAST_PIVOT = 1e-6
LOG_LARGEST = {8: 709.0, 4: 88.0}  # logarithm of the largest number, by bytes
MOST_TEXT = 100_000


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

    def holds(a: Array, _: Sizes) -> Any:
        is_high = a > low if above else a >= low
        return (is_high & (a <= high)).all()

    return Range(words, holds)


def index(symbol: str) -> Range:
    """Return the range of whole numbers below a size."""

    def holds(a: Array, sizes: Sizes) -> Any:
        return ((a >= 0) & (a < sizes[symbol])).all()

    return Range(f"a number below {symbol}", holds)


def _has_pivots(least: float, most: float) -> Callable[[Array, Sizes], Any]:
    return lambda a, _: (a.diagonal(0, -2, -1) > least).all() and (abs(a) <= most).all()


def _has_shares(a: Array, _: Sizes) -> Any:
    close = 1e-6 if a.itemsize == 8 else 1e-3
    return (a >= 0).all() and (abs(a.sum(-1, dtype="f8") - 1) <= close).all()


FINITE = Range("finite", lambda a, _: True)
BOUNDED = within(-LARGE, LARGE, f"within ±{LARGE:g}")
WIDE = within(-1e50, 1e50, "within ±1e50")
POSITIVE = within(0, math.inf, "positive", above=True)
# a fit takes weights up to 2⁵³
WEIGHT = within(0, 1e16, "positive, at most 1e16", above=True)
NOT_NEGATIVE = within(0, LARGE, f"between 0 and {LARGE:g}")
SHARE = within(0, 1 - 1e-15, "a share in [0, 1)")
SHARES = Range("shares that sum to one", _has_shares)
LOG = Range(
    "the logarithm of a number of its type",
    lambda a, _: (abs(a) < LOG_LARGEST[a.itemsize]).all(),
)
FACTOR = Range("a Cholesky factor", _has_pivots(0.0, 1e150))
PRECISION_FACTOR = Range(
    "a Cholesky factor of a precision", _has_pivots(LEAST_PIVOT, LARGE)
)
LINEAR = "linear"  # logistic regression as a member of a pool; null: networks
QUANTILE = Range(
    f"a list of {QUANTILES} ascending values",
    lambda a, _: (
        len(a) == QUANTILES and (np.diff(a, prepend=0) >= 0).all() and a[-1] <= LARGE
    ),
)
LEAVES = Range(
    "scores, or shares that sum to one",
    lambda a, of: of["boosted"] or _has_shares(a, of),
)


def check_that(words: str, holds: Callable[[Any], bool]) -> Check:
    """Return a check for the values that the words describe."""

    def check(value: Any, name: str, _: Sizes) -> None:
        if not holds(value):
            raise BadFile(f"{name}: {value!r:.40} is not {words}.")

    return check


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(
    low: float = -math.inf, high: float = math.inf, above: bool = False
) -> Check:
    """Return a check for finite numbers from `low`, or `above` it, to `high`."""

    def holds(v: Any) -> bool:
        if not _is_number(v) or not math.isfinite(v):
            return False

        return low < v <= high if above else low <= v <= high

    return check_that(f"a finite number from {low:g} to {high:g}", holds)


def whole(low: int, high: int) -> Check:
    """Return a check for whole numbers from `low` to `high`."""
    words = f"a whole number from {low} to {high}"
    return check_that(words, lambda v: type(v) is int and low <= v <= high)


any_number = check_that("a number", _is_number)
flag = check_that("true or false", lambda v: isinstance(v, bool))
text = check_that("a text", lambda v: isinstance(v, str) and len(v) <= MOST_TEXT)
scalar = check_that(
    "a number, a text or null", lambda v: v is None or isinstance(v, str | int | float)
)
kind_of_member = check_that(
    f"true, false, null or {LINEAR!r}",
    lambda v: isinstance(v, bool | None) or v == LINEAR,
)


def many(each: Check, size: str | None = None, most: int | None = None) -> Check:
    """Return a check for lists: of the length that `size` names, or at most `most`."""

    def check(values: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(values, list):
            raise BadFile(f"{name} is not a list.")
        if size is not None and len(values) != sizes[size]:
            raise BadFile(f"{name} is not a list of {sizes[size]} values.")
        if most is not None and len(values) > most:
            raise BadFile(f"{name} has more than {most} values.")

        for value in values:
            each(value, name, sizes)

    return check


def anything(value: Any, name: str, sizes: Sizes) -> None: ...


def number_or_list(value: Any, name: str, sizes: Sizes) -> None:
    check = many(number()) if isinstance(value, list) else number()
    check(value, name, sizes)


def row(*checks: Check) -> Check:
    """Return a check for lists with one value per check."""

    def check(values: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(values, list) or len(values) != len(checks):
            raise BadFile(f"{name} is not a list of {len(checks)} values.")

        for each, value in zip(checks, values, strict=True):
            each(value, name, sizes)

    return check


def column_shares(value: Any, name: str, sizes: Sizes) -> None:
    """Check how the cells of one column are spread."""
    mapping(value, name, sizes)
    checks = {
        "name": text,
        "rows": number(0, 1e300, above=True),
        "missing": number(0, 1.001),
        "shares": many(number(0, 1.001)),
        "edges": many(number()),
    }
    for key, check in checks.items():
        if key not in value:
            raise BadFile(f"the file lacks {name}.{key}.")

        check(value[key], f"{name}.{key}", sizes)
    if not (np.diff(value["edges"]) > 0).all():
        raise BadFile(f"{name}.edges do not ascend.")


def by_name(each: Check, *needed: str) -> Check:
    """Return a check for JSON objects whose values pass `each`.

    The names `needed` must be there, with numbers as values.
    """

    def check(value: Any, name: str, sizes: Sizes) -> None:
        if not isinstance(value, dict):
            raise BadFile(f"{name} is not a JSON object.")

        for key, inner in value.items():
            each(inner, f"{name}.{key:.40}", sizes)
        if not all(isinstance(value.get(key), int | float) for key in needed):
            raise BadFile(f"{name} is not a list of numbers by name.")

    return check


mapping = by_name(anything)


def numbers(within: Range, size: str | None = None) -> Check:
    """Return a check for lists of numbers in a range, of the length that `size` names."""

    def check(values: Any, name: str, sizes: Sizes) -> None:
        many(number(), size)(values, name, sizes)
        within.check(name, np.array(values, dtype=np.float64), sizes)

    return check
