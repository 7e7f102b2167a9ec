"""Inspection of a table in one pass: the kind of each column, and whether it can be
used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

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
from cavity.tables.columns.text_columns import Sample, to_label_cells

KINDS = ("number", "category", "ignore")
MAX_LEVELS = 1000
MOST_COLUMNS = 10_000  # a model file describes no more
# with more levels and such a share of numbers, other cells are errors
SOME_LEVELS = 20
MOSTLY = 0.9
UNIQUE_ROWS = 20  # texts that differ in all of more rows than this are identifiers
FEW_LEVELS = 50  # a category may have this many levels, however few rows there are
ADVICE = "ignore the column (--ignore, in Python ignore=)"
CORRECT = "correct such cells or leave them empty"
DECLARE = (
    "declare them categories ([columns] in the file of --config, in Python kinds=)"
)


class Inspection:
    """Counts and moments of every column, updated batch by batch."""

    def __init__(
        self,
        target: str | None,
        ignore: Sequence[str],
        kinds: Mapping[str, str],
        strict: bool = False,
    ) -> None:
        kinds = dict(kinds)
        about = "category"
        if target is not None:
            about = kinds.pop(target, "category")
        for kind in ("number" if about == "auto" else about, *kinds.values()):
            if kind not in KINDS:
                raise BadOption(
                    f"kind {kind!r} of a column is unknown; use "
                    f"{', '.join(map(repr, KINDS))}."
                )
        self.target = target
        self.kinds = {**kinds, **dict.fromkeys(ignore, "ignore")}
        self.unnamed = 0
        self.strict = strict
        self.seen: dict[str, _ColumnSummary] = {}
        self.labels = None
        if target is not None:
            self.labels = TargetSummary(target, strict, about)
        self.rows = 0
        self.names: list[str] | None = None
        self.sample = Sample()

    def add(self, table: Any, y: Any = None) -> None:
        """Add rows, with their labels if these are not a column."""
        names = table.column_names
        if self.names is None:
            self._check(names)
            self.names = names
            skip = {
                self.target,
                *(n for n, kind in self.kinds.items() if kind == "ignore"),
            }
            self.unnamed = names.count("")
            # a category, even one of numbers
            is_dictionary = import_pyarrow().types.is_dictionary
            for name in (n for n in names if n and n not in skip):
                declared = None
                if is_dictionary(table.schema.field(name).type):
                    declared = "category"
                wanted = self.kinds.get(name) or declared
                self.seen[name] = _ColumnSummary(
                    name, wanted, strict=self.strict, asked=name in self.kinds
                )
        if names != self.names:
            raise BadInput(
                "the columns differ between batches: give all the same columns, in one "
                "order."
            )
        for name, seen in self.seen.items():
            seen.add(get_column(table, name), self.rows)
        if self.labels is not None:
            self.labels.add(get_column(table, self.labels.name), self.rows)
        self._add_sample(table, y)
        self.rows += table.num_rows

    def _add_sample(self, table: Any, y: Any) -> None:
        """Keep texts and labels of some rows, to choose how columns of many texts are
        used.
        """
        if self.target is None:
            labels = to_label_cells(y, table.num_rows)
        else:
            labels = get_column(table, self.target)
        if labels is not None:
            texts = {
                n: get_column(table, n)
                for n, seen in self.seen.items()
                if seen.has_texts
            }
            self.sample.add(texts, labels, self.rows)

    def _check(self, names: list[str]) -> None:
        used = len(names) - sum(kind == "ignore" for kind in self.kinds.values())
        if used > MOST_COLUMNS:
            raise BadInput(
                f"the table has {used} columns, and a model of a table has at most "
                f"{MOST_COLUMNS}: keep those that vary most, "
                f"leave others out (--ignore, in Python ignore=), or fit on an array "
                f"of numbers."
            )
        for what, name in (
            ("the target column", self.target),
            *(("column", n) for n in self.kinds),
        ):
            if name is not None and name not in names:
                raise BadInput(
                    f"{what} {name!r} does not exist; {suggest_column(name, names)}"
                )

    def decide(self) -> tuple[list[Column], Target | None, list[Ignored]]:
        """Decide how to use each column.

        One error names all columns that cannot be used.
        """
        if not self.rows:
            raise BadInput("the table has no rows.")
        decided = list[Column | Ignored]()
        wrong = list[str]()
        for seen in self.seen.values():
            try:
                decided.append(seen.decide(self.sample))
            except BadInput as error:
                wrong.append(str(error))
        if wrong:
            more = ""
            if len(wrong) > 5:
                more = f" And {len(wrong) - 5} more columns."
            raise BadInput(" ".join(wrong[:5]) + more)
        unwanted = [
            Ignored(n, "--ignore") for n, kind in self.kinds.items() if kind == "ignore"
        ]
        unwanted += [
            Ignored("", "the header has no name for it", informs=True)
        ] * self.unnamed
        columns = [c for c in decided if not isinstance(c, Ignored)]
        ignored = [c for c in decided if isinstance(c, Ignored)] + unwanted
        if not columns:
            why = ", ".join(f"{c.name!r} is {c.describe()}" for c in ignored[:8])
            raise BadInput(
                f"the table has no features: {why or 'the target is its only column.'}"
            )
        return (
            columns,
            self.labels.decide() if self.labels is not None else None,
            ignored,
        )


class _ColumnSummary:
    """Running summary of one column."""

    def __init__(
        self, name: str, wanted: str | None, *, strict: bool, asked: bool
    ) -> None:
        self.name = name
        self.wanted = wanted
        self.strict = strict
        self.asked = asked
        self.rows = self.missing = 0
        self.row_numbers = None
        if ROW_NUMBER.fullmatch(name) and wanted is None:
            self.row_numbers = RowNumbers()
        self.numbers = RunningMoments()
        self.styles = StyleMoments()
        self.dates = [DateMoments(order) for order in ORDERS]
        self.levels: set[str] | None = set()
        # the first cell that is not a number, and its row
        self.odd: tuple[str, int] | None = None
        # the first row with a number beyond float64, such as 7e4193
        self.large: int | None = None
        # "date", "number" or "other" if the cells are not texts
        self.typed: str | None = None
        self.type_name = "text"

    def add(self, column: Any, first: int) -> None:
        """Add cells, the first of which is in row `first`."""
        kind = classify_type(column.type)
        self.rows += len(column)
        if kind in ("date", "duration") and self.wanted == "category":
            self._add_text(to_text(column), first)
        elif kind in ("date", "other") or (kind == "duration" and self.strict):
            self.typed = kind.replace("duration", "date")
            self.type_name = str(column.type)
            self.missing += column.null_count
            if kind == "date":
                self.dates = [date for date in self.dates if date.add(column)]
        elif kind == "nothing":
            self.missing += len(column)
        elif kind in ("number", "duration") and self.wanted != "category":
            value, lacks = to_numbers(column, self.name, first)
            if self.typed is None:
                self.levels = None
            self.typed = "number"
            self._add_numbers(value[~lacks])
            self.missing += int(lacks.sum())
        else:
            self._add_text(to_text(column), first)

    def _add_text(self, text: Any, first: int) -> None:
        lacks = np.asarray(text.is_null())
        self.missing += int(lacks.sum())
        if self.wanted != "category":
            good = match_numbers(text)
            value = parse_numbers(text, chosen=good)
            large = np.flatnonzero(good)[~np.isfinite(value)]
            if len(large) and self.large is None:
                self.large = first + int(large[0]) + 1
            self._add_numbers(value[np.isfinite(value)])
            wrong = np.flatnonzero(~good & ~lacks)
            if len(wrong) and self.odd is None:
                self.odd = text[int(wrong[0])].as_py(), first + int(wrong[0]) + 1
            self.styles.add(text, good, lacks)
            if self.odd is not None:
                self.dates = [date for date in self.dates if date.add(text)]
        if self.levels is not None:
            self.levels.update(v for v in text.unique().to_pylist() if v is not None)
            if len(self.levels) > MAX_LEVELS:
                self.levels = None

    def _add_numbers(self, value: Any) -> None:
        if self.row_numbers is not None:
            self.row_numbers.add(value)
        self.numbers.add(value)

    @property
    def has_texts(self) -> bool:
        """Whether the column may be one of categories or texts."""
        return self.odd is not None or self.wanted == "category"

    def decide(self, sample: Sample) -> Column | Ignored:
        """Decide how to use the column, or raise BadInput.

        The sample chooses how many texts are used.
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
        if self.large is not None and (
            self.odd is None or self.numbers.n > present / 2
        ):
            raise_infinite(self.name, self.large)
        if self.wanted != "category":
            found = self._decide_date() or self._decide_style()
            if found is not None:
                return found
            if self.wanted == "number" and self.odd is not None:
                cell, row = self.odd
                self._raise(f"must be numeric, but row {row} has {cell!r:.60}", CORRECT)
            if self.odd is None:
                return self._decide_number(self.numbers)
            self._check_mostly_numbers(present)
        usual = self._decide_category(present)
        few = self.levels is not None and len(self.levels) <= FEW_LEVELS
        if few or self.asked or self.strict:
            return usual
        return sample.choose(self.name, usual, self.missing > 0)

    def _decide_date(self) -> Column | Ignored | None:
        """Return the column if all its cells are dates or times."""
        if self.typed != "date" and self.odd is None:
            return None
        is_date = self.dates and not self.numbers.n
        date = None
        if is_date:
            date = self.dates[0].decide(self.name, self.missing > 0)
        if date is None and self.typed != "date":
            return None
        if self.strict or date is None or self.wanted == "number":
            kind = "text"
            if self.typed == "date":
                kind = self.type_name
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
        if found is not None and self.large is not None:
            raise_infinite(self.name, self.large)
        if found is None:
            return None
        return self._decide_number(found[1], found[0])

    def _check_mostly_numbers(self, present: int) -> None:
        """Refuse numbers in formats that contradict each other, and a few texts between
        numbers.
        """
        assert self.odd is not None
        formatted = self.styles.formatted
        if formatted and self.numbers.n + formatted == present:
            if self.numbers.n > formatted:
                self._raise_odd_cells()
            why = (
                f"has formatted numbers such as {self.odd[0]!r:.60} (row {self.odd[1]})"
            )
            self._raise(
                why,
                f"write them with a decimal point and nothing else (1250.5), {DECLARE}",
            )
        many = self.levels is None or len(self.levels) > SOME_LEVELS
        if many and self.numbers.n > MOSTLY * present:
            self._raise_odd_cells()

    def _decide_number(
        self, found: RunningMoments, style: str | None = None
    ) -> Column | Ignored:
        if (
            self.row_numbers is not None
            and not self.missing
            and self.row_numbers.decide()
        ):
            return Ignored(self.name, "row number", informs=True)
        if found.low == found.high and not self.missing:
            return Ignored(self.name, f"always {found.low:g}")
        if (
            not (np.isfinite(found.mean) and np.isfinite(found.scale))
            or found.scale == 0
        ):
            why = "cannot be standardised: its numbers are too large, or too close to each other"
            self._raise(why, "use other units")
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
            n = MAX_LEVELS + 1
        else:
            n = len(self.levels)
        unique = present == n > UNIQUE_ROWS and not self.strict and not self.asked
        if self.levels is None or (n > FEW_LEVELS and n > present / 2) or unique:
            if self.wanted != "category" and self.numbers.n > present / 2:
                self._raise_odd_cells()
            if self.levels is None:
                many = f"more than {MAX_LEVELS}"
            else:
                many = str(n)
            return self._set_aside(
                f"has {many} different texts in {present} rows, and a model cannot "
                f"learn from names, identifiers or free text",
                f"{many} different texts in {present} rows: names, identifiers or free "
                f"text",
            )
        if n == 1 and not self.missing:
            return Ignored(self.name, f"always {next(iter(self.levels))!r:.40}")
        return Category(self.name, tuple(sorted(self.levels)), self.missing > 0)

    def _set_aside(self, why: str, short: str | None = None) -> Ignored:
        """Ignore the column; raise BadInput if the user asked for it, or for
        strictness.
        """
        if self.strict or self.asked:
            self._raise(why)
        return Ignored(self.name, short or why, informs=True)

    def _raise_odd_cells(self) -> NoReturn:
        assert self.odd is not None
        why = f"has numbers in most rows, but {self.odd[0]!r:.60} in row {self.odd[1]}"
        self._raise(why, f"{CORRECT}, {DECLARE}")

    def _raise(self, why: str, advice: str = "") -> NoReturn:
        raise BadInput(
            f"column {self.name!r} {why}: {advice + ', or ' if advice else ''}{ADVICE}."
        )
