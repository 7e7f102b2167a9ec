"""The summary of one column, which decides how to use it."""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import numpy as np

from cavity.common.types import Flags
from cavity.errors import BadInput
from cavity.tables.arrow_tables import classify_type
from cavity.tables.columns.arrow_buffers import find_present
from cavity.tables.columns.cells import (
    find_infinite,
    match_numbers,
    parse_numbers,
    raise_infinite,
    to_numbers,
    to_text,
)
from cavity.tables.columns.column_kinds import Category, Column, Ignored, Number
from cavity.tables.columns.dates import ORDERS, format_day
from cavity.tables.columns.row_numbers import PANDAS_INDEX, ROW_NUMBER, RowNumbers
from cavity.tables.columns.running_moments import (
    DateMoments,
    RunningMoments,
    StyleMoments,
)
from cavity.tables.columns.text_columns import Sample

MAX_LEVELS = 1000
# With more than SOME_LEVELS and a share of numbers above MOSTLY, texts are errors.
SOME_LEVELS = 20
MOSTLY = 0.9
UNIQUE_ROWS = 20  # in more rows than this, texts that all differ are identifiers
FEW_LEVELS = 50  # a category may have this many levels, however few rows there are
ADVICE = "ignore the column (--ignore, in Python ignore=)"
CORRECT = "correct such cells or leave them empty"
DECLARE = "declare it a category ([columns] in the file of --config, in Python kinds=)"


class _OddCell(NamedTuple):
    """A cell that is not a number."""

    text: str
    row: int

    def __str__(self) -> str:
        return f"{self.text!r:.60} in row {self.row}"


class ColumnSummary:
    """Running summary of one column."""

    def __init__(
        self, name: str, wanted: str | None, *, strict: bool, asked: bool
    ) -> None:
        self.name = name
        self.wanted = wanted
        self.strict = strict
        self.asked = asked
        self.rows = 0
        self.missing = 0
        self.row_numbers = None
        if ROW_NUMBER.fullmatch(name) and wanted is None:
            self.row_numbers = RowNumbers()
        self.numbers = RunningMoments()
        self.styles = StyleMoments()
        self.dates = [DateMoments(order) for order in ORDERS]
        self.levels: set[str] | None = set()  # None: more than MAX_LEVELS
        self.odd: _OddCell | None = None  # the first cell that is not a number
        self.large: int | None = (
            None  # first row with inf or a number beyond float64 (7e4193)
        )
        # "date", "number" or "other" if the cells are not texts
        self.typed: str | None = None
        self.type_name = "text"

    def add(self, column: Any, first: int) -> None:
        """Add cells; `first` is the number of rows before them."""
        kind = classify_type(column.type)
        is_category = self.wanted == "category"
        self.rows += len(column)
        if kind == "nothing":
            self.missing += len(column)
        elif kind == "text" or (is_category and kind != "other"):
            self._add_text(to_text(column), first)
        elif kind in ("date", "other") or (kind == "duration" and self.strict):
            self.typed = "other" if kind == "other" else "date"
            self.type_name = str(column.type)
            self.missing += column.null_count
            if kind == "date":
                self._add_dates(column)
        else:  # a number or a duration
            value, lacks = to_numbers(column, self.name, first)
            if self.typed is None:
                self.levels = None
            self.typed = "number"
            self._add_numbers(value[~lacks])
            self.missing += int(lacks.sum())

    def _add_text(self, text: Any, first: int) -> None:
        lacks = ~find_present(text)
        self.missing += int(lacks.sum())
        if self.wanted != "category":
            self._add_values(text, lacks, first)
        if self.levels is not None:
            self.levels.update(text.drop_null().unique().to_pylist())
            if len(self.levels) > MAX_LEVELS:
                self.levels = None

    def _add_values(self, text: Any, lacks: Flags, first: int) -> None:
        """Add texts that may be numbers or dates."""
        good = match_numbers(text)
        value = parse_numbers(text, chosen=good)
        finite = np.isfinite(value)
        wrong = np.flatnonzero(~good & ~lacks)
        large = np.append(np.flatnonzero(good)[~finite], find_infinite(text, wrong))
        if len(large) and self.large is None:
            self.large = first + int(large.min()) + 1
        self._add_numbers(value[finite])
        if len(wrong) and self.odd is None:
            place = int(wrong[0])
            self.odd = _OddCell(text[place].as_py(), first + place + 1)
        self.styles.add(text, good, lacks)
        if self.odd is not None:
            self._add_dates(text)

    def _add_dates(self, column: Any) -> None:
        self.dates = [date for date in self.dates if date.add(column)]

    def _add_numbers(self, value: Any) -> None:
        if self.row_numbers is not None:
            self.row_numbers.add(value)
        self.numbers.add(value)

    @property
    def has_texts(self) -> bool:
        """Whether the column may contain categories or texts."""
        return self.odd is not None or self.wanted == "category"

    def decide(self, sample: Sample) -> Column | Ignored:
        """Decide how to use the column, or raise BadInput.

        The sample decides whether many texts are encoded by their n-grams.
        """
        if self.wanted is None and PANDAS_INDEX.fullmatch(self.name):
            return Ignored(self.name, "index of a data frame")

        present = self.rows - self.missing
        if self.typed == "other":
            return self._set_aside(
                f"has the type {self.type_name}, neither numbers nor categories"
            )
        if not present:
            return Ignored(self.name, "no values")

        mostly_numbers = self.odd is None or self.numbers.n > present / 2
        if self.large is not None and mostly_numbers:
            raise_infinite(self.name, self.large)
        if self.wanted != "category":
            found = self._decide_date() or self._decide_style()
            if found is not None:
                return found
            if self.odd is None:
                return self._decide_number(self.numbers)

            if self.wanted == "number":
                self._raise(f"must be numeric, but has {self.odd}", CORRECT)
            self._check_mostly_numbers(self.odd, present)

        usual = self._decide_category(present)
        few = self.levels is not None and len(self.levels) <= FEW_LEVELS
        if few or self.asked or self.strict:
            return usual

        return sample.choose(self.name, usual, self.missing > 0)

    def _decide_date(self) -> Column | Ignored | None:
        """Return the column if all its cells are dates or times."""
        if self.typed != "date" and self.odd is None:
            return None

        date = None
        if self.dates and not self.numbers.n:
            date = self.dates[0].decide(self.name, self.missing > 0)
        if date is None and self.typed != "date":
            return None

        if self.strict or date is None or self.wanted == "number":
            kind = self.type_name if self.typed == "date" else "text"
            advice = (
                "replace them by numbers (the year, the month, the weekday, days since "
                "an event)"
            )
            self._raise(f"has dates or times ({kind})", advice)

        if date.low == date.high and not self.missing:
            return Ignored(self.name, f"always {format_day(date.low)}")

        return date

    def _decide_style(self) -> Column | Ignored | None:
        """Return the column if all its cells are numbers, some of them formatted."""
        if self.odd is None or self.typed == "number" or self.strict:
            return None

        found = self.styles.decide(self.numbers)
        if found is None:
            return None

        if self.large is not None:
            raise_infinite(self.name, self.large)
        style, moments = found
        return self._decide_number(moments, style)

    def _check_mostly_numbers(self, odd: _OddCell, present: int) -> None:
        """Refuse contradictory formats of numbers, and a few texts among numbers."""
        formatted = self.styles.formatted
        if formatted and self.numbers.n + formatted == present:
            if self.numbers.n > formatted:
                self._raise_odd_cells()
            self._raise(
                f"has formatted numbers such as {odd}",
                f"write them with a decimal point and nothing else (1250.5), {DECLARE}",
            )

        many = self.levels is None or len(self.levels) > SOME_LEVELS
        if many and self.numbers.n > MOSTLY * present:
            self._raise_odd_cells()

    def _decide_number(
        self, found: RunningMoments, style: str | None = None
    ) -> Column | Ignored:
        numbers = self.row_numbers
        if numbers is not None and not self.missing and numbers.decide():
            return Ignored(self.name, "row number", informs=True)
        if found.low == found.high and not self.missing:
            return Ignored(self.name, f"always {found.low:g}")

        if not np.isfinite([found.mean, found.scale]).all() or found.scale == 0:
            self._raise(
                "cannot be standardised: its numbers are too large, or too close to "
                "each other",
                "use other units",
            )

        return Number(
            self.name,
            found.mean,
            found.scale,
            self.missing > 0,
            found.low,
            found.high,
            style,
        )

    def _decide_category(self, present: int) -> Category | Ignored:
        if self.levels is None:
            return self._refuse_texts(f"more than {MAX_LEVELS}", present)

        n = len(self.levels)
        scattered = n > FEW_LEVELS and n > present / 2
        unique = present == n > UNIQUE_ROWS and not self.strict and not self.asked
        if scattered or unique:
            return self._refuse_texts(str(n), present)

        levels = tuple(sorted(self.levels))
        if n == 1 and not self.missing:
            return Ignored(self.name, f"always {levels[0]!r:.40}")

        return Category(self.name, levels, self.missing > 0)

    def _refuse_texts(self, many: str, present: int) -> Ignored:
        if self.wanted != "category" and self.numbers.n > present / 2:
            self._raise_odd_cells()
        found = f"{many} different texts in {present} rows"
        return self._set_aside(
            f"has {found}, and a model cannot learn from names, identifiers or free "
            "text",
            f"{found}: names, identifiers or free text",
        )

    def _set_aside(self, why: str, short: str | None = None) -> Ignored:
        """Ignore the column; raise BadInput if it was asked for, or if `strict`."""
        if self.strict or self.asked:
            self._raise(why)
        return Ignored(self.name, short or why, informs=True)

    def _raise_odd_cells(self) -> NoReturn:
        why = f"has numbers in most rows, but {self.odd}"
        self._raise(why, f"{CORRECT}, {DECLARE}")

    def _raise(self, why: str, advice: str = "") -> NoReturn:
        if advice:
            advice += ", or "
        raise BadInput(f"column {self.name!r} {why}: {advice}{ADVICE}.")
