"""Kinds of columns, and how each encodes its cells as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import BadInput
from cavity.rows.arrow_tables import import_pyarrow
from cavity.rows.batches.source import Array
from cavity.rows.columns.arrow_buffers import find_present, to_places
from cavity.rows.columns.cells import to_numbers, to_text
from cavity.rows.columns.dates import (
    DAY,
    check_days,
    find_season,
    find_weekdays,
    find_years,
    format_day,
    to_circle,
    to_days,
)
from cavity.rows.columns.encoding_context import (
    MEAN_IS_USED,
    EncodingContext,
    describe_missing,
    list_indicator,
)
from cavity.rows.columns.text_kind import Text, shorten


class Number(NamedTuple):
    """Numeric column, encoded as (value − mean)/scale, with 0 for missing cells.

    With `missing`, a second column indicates which cells are missing.
    """

    name: str
    mean: float
    scale: float
    missing: bool
    style: str | None = None  # what separates the decimals of formatted numbers
    low: float | None = None  # range of the training rows; files before 0.3 do not have it
    high: float | None = None

    @property
    def features(self) -> list[str]:
        return [self.name, *list_indicator(self)]

    def describe(self) -> str:
        """Describe the column in one line."""
        style = {None: "", ".": ", written as 1,250.5", ",": ", written as 1.250,5"}[self.style]
        return f"number, mean {self.mean:.4g}, std {self.scale:.4g}{describe_missing(self)}{style}"

    def encode(self, column: Any, context: EncodingContext) -> Array:
        """Encode cells as [n, len(features)]."""
        value, lacks = to_numbers(column, self.name, context.first, self.style)
        X = np.where(lacks, 0.0, (value - self.mean) / self.scale)[:, None]
        return context.mark_missing(self, X, lacks, MEAN_IS_USED)

    def simplify(self, column: Any, first: int) -> Any:
        """Return the cells as numbers."""
        value, lacks = to_numbers(column, self.name, first, self.style)
        return import_pyarrow().array(value, mask=lacks)


class Group(NamedTuple):
    """Whole numbers that name groups of rows: encoded as a number, and by the shares of the classes in each group.

    A share is the class's frequency in the group minus that in the table; it is 0 in groups that the training rows did not have.
    """

    name: str
    mean: float
    scale: float
    missing: bool
    style: str | None
    values: tuple[float, ...]  # ascending
    shares: tuple[tuple[float, ...], ...]  # [values, classes]
    classes: tuple[str, ...]

    @property
    def number(self) -> Number:
        """The column as a number."""
        return Number(*self[:5])

    @property
    def features(self) -> list[str]:
        return [*self.number.features, *(f"{self.name} share of {label}" for label in self.classes)]

    def describe(self) -> str:
        return f"group of rows, {len(self.values)} groups, as a number and by the classes in each{describe_missing(self)}"

    def encode(self, column: Any, context: EncodingContext) -> Array:
        value, lacks = to_numbers(column, self.name, context.first, self.style)
        value = np.where(lacks, np.nan, value)
        new = int((~np.isin(value, self.values) & ~lacks).sum())
        if new:
            context.notes[f"column {self.name!r} has groups that the training rows did not have"] += new
        return np.concatenate([self.number.encode(column, context), self.find_shares(value)], axis=1)

    def find_shares(self, value: Array) -> Array:
        """Return the shares of the classes in each cell's group, [n C]."""
        known, shares = np.array(self.values), np.array(self.shares)
        place = np.minimum(np.searchsorted(known, value), len(known) - 1)
        return np.where((known[place] == value)[:, None], shares[place], 0.0)

    def simplify(self, column: Any, first: int) -> Any:
        return self.number.simplify(column, first)


class Category(NamedTuple):
    """Categorical column, encoded one-hot: one column per level of the training rows.

    With `missing`, one more column indicates which cells are missing.
    """

    name: str
    levels: tuple[str, ...]
    missing: bool

    @property
    def features(self) -> list[str]:
        return [*(f"{self.name}={level}" for level in self.levels), *list_indicator(self)]

    def describe(self) -> str:
        """Describe the column in one line."""
        few = ", ".join(map(shorten, self.levels[:4])) + (", ..." if len(self.levels) > 4 else "")
        return f"category, {len(self.levels)} levels ({few}){describe_missing(self)}"

    def encode(self, column: Any, context: EncodingContext) -> Array:
        """Encode cells as [n, len(features)]."""
        text = to_text(column)
        lacks = ~find_present(text)
        X = np.zeros((len(text), len(self.levels)))
        code = np.where(lacks, -1, self._find_levels(text, column.type))
        X[np.flatnonzero(code >= 0), code[code >= 0]] = 1.0
        unseen = np.flatnonzero((code < 0) & ~lacks)
        if len(unseen):
            self._handle_unseen(text[int(unseen[0])].as_py(), int(unseen[0]), len(unseen), context)
        return context.mark_missing(self, X, lacks, "no category is set")

    def simplify(self, column: Any, first: int) -> Any:
        """Return the cells as they are."""
        return column

    def _find_levels(self, text: Any, kind: Any) -> Any:
        """Return the number of each cell's level, [n]; −1 for unknown levels."""
        arrow = import_pyarrow()
        coded = text.dictionary_encode()
        if not len(coded.dictionary):
            return np.full(len(text), -1)
        boolean = arrow.types.is_boolean(kind)  # Arrow writes true, but a text file may have had True
        known = {level.lower() if boolean else level: i for i, level in enumerate(self.levels)}
        numbers = np.array([known.get(value, -1) for value in coded.dictionary.to_pylist()])
        return numbers[to_places(coded.indices)]

    def _handle_unseen(self, example: str, row: int, count: int, context: EncodingContext) -> None:
        if context.unseen == "error":
            known = ", ".join(map(repr, self.levels[:8])) + (", ..." if len(self.levels) > 8 else "")
            raise BadInput(
                f"column {self.name!r} has the category {example!r:.60} in row {context.first + row + 1}, which the training "
                f"rows did not have ({known}): correct the cell, or allow new categories with unseen='ignore'."
            )
        note = f"column {self.name!r} has categories that the training rows did not have; no category is set"
        context.notes[note] += count


class Unchanged(NamedTuple):
    """Numeric column that is used unchanged; missing cells are NaN."""

    name: str

    @property
    def features(self) -> list[str]:
        return [self.name]

    def describe(self) -> str:
        return "number, unchanged"

    def encode(self, column: Any, context: EncodingContext) -> Array:
        return to_numbers(column, self.name, context.first)[0][:, None]

    def simplify(self, column: Any, first: int) -> Any:
        value, lacks = to_numbers(column, self.name, first)
        return import_pyarrow().array(value, mask=lacks)


class Date(NamedTuple):
    """Column of dates or times, encoded by what matters in them; missing cells are 0.

    `parts` are some of "days" (since the first date) and "year", in units of their spread; "season", "weekday" and "clock"
    (time of day) are pairs of sine and cosine. With `missing`, one more column indicates which cells are missing.
    """

    name: str
    order: str  # "day" or "month": which comes first in 03/04/2020
    parts: tuple[str, ...]
    low: float  # first date, in days since 1970
    high: float
    days: tuple[float, float]  # mean and spread of the days since 1970
    years: tuple[float, float]  # mean and spread of the years
    missing: bool

    @property
    def features(self) -> list[str]:
        pairs = [[p] if p in ("days", "year") else [f"{p} sin", f"{p} cos"] for p in self.parts]
        return [*(f"{self.name} {name}" for pair in pairs for name in pair), *list_indicator(self)]

    def describe(self) -> str:
        parts = ", ".join(self.parts)
        if self.parts == ("clock",):
            return f"time of day{describe_missing(self)}"
        return f"date, {format_day(self.low)} to {format_day(self.high)}, as {parts}{describe_missing(self)}"

    def encode(self, column: Any, context: EncodingContext) -> Array:
        days = to_days(column, self.order)
        check_days(days, self.name, context.first)
        value = np.where(days.lacks, self.low, days.value)
        found = [part for name in self.parts for part in self._encode_part(name, value)]
        X = np.where(days.lacks[:, None], 0.0, np.column_stack(found))
        return context.mark_missing(self, X, days.lacks, "no date is set")

    def simplify(self, column: Any, first: int) -> Any:
        """Return the cells as time stamps."""
        days = to_days(column, self.order)
        check_days(days, self.name, first)
        micros = np.round(np.where(days.lacks, 0.0, days.value) * DAY * 1e6).astype(np.int64)
        return import_pyarrow().array(micros, mask=days.lacks).cast(import_pyarrow().timestamp("us"))

    def _encode_part(self, part: str, days: Array) -> Sequence[Array]:
        if part == "days":
            return [(days - self.days[0]) / self.days[1]]
        if part == "year":
            return [(find_years(days) - self.years[0]) / self.years[1]]
        if part == "season":
            return to_circle(find_season(days))
        return to_circle(find_weekdays(days) / 7 if part == "weekday" else days % 1)


class Ignored(NamedTuple):
    """Column that is not used, and the reason."""

    name: str
    why: str
    informs: bool = False  # it has information that the model does not get

    def describe(self) -> str:
        return f"ignored ({self.why})"


class Target(NamedTuple):
    """Column of the labels: whole numbers or text, or any numbers for regression. `missing` rows without a label are not used."""

    name: str
    whole: bool
    missing: int = 0
    number: bool = False  # for regression


Column = Number | Group | Category | Text | Date | Unchanged


def suggest_column(name: str, names: Sequence[str], most: int = 12) -> str:
    """Suggest the column that a wrong name may mean, or list the columns."""
    folded = {known.casefold(): known for known in reversed(names)}
    near = get_close_matches(name.casefold(), folded, 1)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"the columns are {', '.join(map(repr, names[:most]))}{more}."
