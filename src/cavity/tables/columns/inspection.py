"""Inspect a table in one pass: the kind of each column, and whether it can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cavity.errors import BadInput, BadOption
from cavity.tables.arrow_tables import get_column, import_pyarrow
from cavity.tables.columns.column_kinds import Column, Ignored, Target
from cavity.tables.columns.column_summary import ColumnSummary
from cavity.tables.columns.encoder import suggest_column
from cavity.tables.columns.target_labels import TargetSummary
from cavity.tables.columns.text_columns import Sample

KINDS = ("number", "category", "ignore")
MOST_COLUMNS = 10_000  # the limit of a model file
MOST_ERRORS = 5  # columns that one error describes


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
        self.seen: dict[str, ColumnSummary] = {}
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
            self.seen[name] = ColumnSummary(
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
        if self.names == []:
            raise BadInput("the table has no columns: check how they were selected.")
        if not self.rows:
            raise BadInput("the table has no rows: check how they were selected.")

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
