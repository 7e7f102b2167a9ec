"""Inspect a table in one pass: the kind of each column, and whether it can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cavity.common.types import Flags
from cavity.errors import BadInput, BadOption
from cavity.tables.arrow_tables import classify_type, get_column, import_pyarrow
from cavity.tables.columns.cells import (
    match_numbers,
    parse_numbers,
    raise_infinite,
    to_numbers,
    to_text,
)
from cavity.tables.columns.column_kinds import Category, Column, Ignored, Number, Target
from cavity.tables.columns.dates import ORDERS, format_day
from cavity.tables.columns.encoder import suggest_column
from cavity.tables.columns.row_numbers import PANDAS_INDEX, ROW_NUMBER, RowNumbers
from cavity.tables.columns.running_moments import (
    DateMoments,
    RunningMoments,
    StyleMoments,
)
from cavity.tables.columns.target_labels import TargetSummary
from cavity.tables.columns.text_columns import Sample

KINDS = ("number", "category", "ignore")
MAX_LEVELS = 1000
MOST_COLUMNS = 10_000  # the limit of a model file
# With more than SOME_LEVELS and a share of numbers above MOSTLY, texts are errors.
SOME_LEVELS = 20
MOSTLY = 0.9
UNIQUE_ROWS = 20  # in more rows than this, texts that all differ are identifiers
FEW_LEVELS = 50  # a category may have this many levels, however few rows there are
MOST_ERRORS = 5  # columns that one error describes
ADVICE = "ignore the column (--ignore, in Python ignore=)"
CORRECT = "correct such cells or leave them empty"
DECLARE = "declare it a category ([columns] in the file of --config, in Python kinds=)"


class Inspection:
    """Counts and moments of every column, updated batch by batch."""

    def __init__(
        self,
        target: str | None,
        ignore: Sequence[str],
        kinds: Mapping[str, str],
        strict: bool = False,
    ) -> None:
        self.target = target
        self.strict = strict
        kinds = dict(kinds)
        self.labels = None
        if target is not None:
            kind = kinds.pop(target, "category")
            if kind != "auto":
                _check_kind(kind)
            self.labels = TargetSummary(target, strict, kind)

        for kind in kinds.values():
            _check_kind(kind)
        self.kinds = {**kinds, **dict.fromkeys(ignore, "ignore")}
        self.names: list[str] | None = None
        self.unnamed = 0
        self.seen: dict[str, _ColumnSummary] = {}
        self.rows = 0
        self.sample = Sample()

    @property
    def ignored(self) -> list[str]:
        """Names of the columns that the user wants to ignore."""
        return [name for name, kind in self.kinds.items() if kind == "ignore"]

    def add(self, table: Any, labels: Any = None) -> None:
        """Add rows, with their labels if these are not a column."""
        if self.names is None:
            self._begin(table)
        if table.column_names != self.names:
            raise BadInput(
                "the columns differ between batches: give every batch the same columns "
                "in the same order."
            )

        for name, seen in self.seen.items():
            seen.add(get_column(table, name), self.rows)
        if self.labels is not None:
            self.labels.add(get_column(table, self.labels.name), self.rows)
        self._add_sample(table, labels)
        self.rows += table.num_rows

    def _begin(self, table: Any) -> None:
        """Begin a summary of each column that may be used."""
        names = table.column_names
        self._check(names)
        self.names = names
        self.unnamed = names.count("")
        is_dictionary = import_pyarrow().types.is_dictionary
        skip = {"", self.target, *self.ignored}
        for name in names:
            if name in skip:
                continue

            wanted = self.kinds.get(name)
            if wanted is None and is_dictionary(table.schema.field(name).type):
                wanted = "category"  # even one of numbers
            self.seen[name] = _ColumnSummary(
                name, wanted, strict=self.strict, asked=name in self.kinds
            )

    def _add_sample(self, table: Any, labels: Any) -> None:
        """Keep some texts and labels, to decide about columns of many texts."""
        if self.target is not None:
            labels = get_column(table, self.target)
        if labels is None:
            return

        with_texts = [name for name, seen in self.seen.items() if seen.has_texts]
        texts = {name: get_column(table, name) for name in with_texts}
        self.sample.add(texts, labels, self.rows)

    def _check(self, names: list[str]) -> None:
        used = len({*names} - {*self.ignored, self.target})
        if used > MOST_COLUMNS:
            raise BadInput(
                f"the table has {used} columns, but a model of a table takes at most "
                f"{MOST_COLUMNS}: keep those that vary most and ignore the others "
                "(--ignore, in Python ignore=), or fit on an array of numbers."
            )
        if self.target is not None and self.target not in names:
            raise BadInput(
                f"the target column {self.target!r} does not exist; "
                f"{suggest_column(self.target, names)}"
            )

        for name in self.kinds:
            if name not in names:
                raise BadInput(
                    f"column {name!r} does not exist; {suggest_column(name, names)}"
                )

    def decide(self) -> tuple[list[Column], Target | None, list[Ignored]]:
        """Decide how to use each column.

        One error names all columns that cannot be used.
        """
        if not self.rows:
            raise BadInput("the table has no rows.")

        columns = list[Column]()
        ignored = list[Ignored]()
        wrong = list[str]()
        for seen in self.seen.values():
            try:
                column = seen.decide(self.sample)
            except BadInput as error:
                wrong.append(str(error))
                continue

            if isinstance(column, Ignored):
                ignored.append(column)
            else:
                columns.append(column)

        if wrong:
            more = ""
            if len(wrong) > MOST_ERRORS:
                more = f" And {len(wrong) - MOST_ERRORS} more columns."
            raise BadInput(" ".join(wrong[:MOST_ERRORS]) + more)

        ignored += [Ignored(name, "--ignore") for name in self.ignored]
        unnamed = Ignored("", "the header has no name for it", informs=True)
        ignored += [unnamed] * self.unnamed
        if not columns:
            why = ", ".join(f"{c.name!r} is {c.describe()}" for c in ignored[:8])
            raise BadInput(
                f"the table has no features: {why or 'the target is its only column'}."
            )

        target = None
        if self.labels is not None:
            target = self.labels.decide()
        return columns, target, ignored


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        known = ", ".join(map(repr, KINDS))
        raise BadOption(f"kind {kind!r} of a column is unknown; use {known}.")


class _OddCell(NamedTuple):
    """A cell that is not a number."""

    text: str
    row: int

    def __str__(self) -> str:
        return f"{self.text!r:.60} in row {self.row}"


class _ColumnSummary:
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
        self.large: int | None = None  # first row with a number beyond float64 (7e4193)
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
        lacks = np.asarray(text.is_null())
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
        large = np.flatnonzero(good)[~finite]
        if len(large) and self.large is None:
            self.large = first + int(large[0]) + 1
        self._add_numbers(value[finite])
        wrong = np.flatnonzero(~good & ~lacks)
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
