"""The table of `cavity fit`: a first pass learns the preparation of its columns, a second reads its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.cli.settings import Settings
from cavity.cli.terminal import Terminal, Text
from cavity.common.text_tables import format_pairs, name_column
from cavity.errors import BadInput, name_in_errors
from cavity.rows.columns.encoder import check_columns
from cavity.rows.columns.preparation import Preparation
from cavity.rows.columns.target_labels import advise_classes
from cavity.rows.files.table_files import LabelledRows, TableFile, TableRows, open_table

IN_MEMORY = 256 << 20  # bytes of features; larger tables are read again in every pass


class InspectedTable(NamedTuple):
    """Table after the first pass, which made its preparation."""

    file: TableFile
    prepare: Preparation
    rows: int

    @property
    def is_regression(self) -> bool:
        return self.prepare.target_ is not None and self.prepare.target_.number

    @property
    def fits_memory(self) -> bool:
        return 8 * self.rows * len(self.prepare.names) <= IN_MEMORY


def inspect_table(data: str | Path, settings: Settings, terminal: Terminal) -> InspectedTable:
    """Make the first pass: learn the preparation of the columns and print it."""
    file = open_table(data, settings.strict)
    count = 0

    def count_rows() -> Iterator[Any]:
        nonlocal count
        for chunk in terminal.show_progress(file.chunks(), "columns"):
            count += chunk.table.num_rows
            yield chunk

    ignore = [*settings.ignore, *filter(None, (settings.weight, settings.group))]
    with name_in_errors(file.path):
        prepare = Preparation(
            target=settings.target,
            ignore=ignore,
            kinds={settings.target: "number" if settings.regression else "auto", **settings.columns},
            strict=settings.strict,
        ).fit_batches(count_rows())
    terminal.say(f"{data}: {count} rows, {len(file.names)} columns, target {settings.target!r}")
    terminal.say(format_pairs([(name_column(name), what) for name, what in prepare.describe()]))
    for note in file.notes:
        terminal.note(note)
    assert prepare.target_ is not None
    if prepare.target_.number and not settings.regression:
        terminal.note(
            "the target has many values, so this is a regression; if its whole numbers are classes, "
            f"{advise_classes(settings.target)}"
        )
    if prepare.target_.missing:
        terminal.note(f"{prepare.target_.missing} rows without a label are not used")
        count -= prepare.target_.missing
    return InspectedTable(file, prepare, count)


def read_rows(
    file: TableFile, prepare: Preparation, terminal: Terminal, weight: Text = None, group: Text = None
) -> LabelledRows:
    """Read the rows with a label."""
    rows = TableRows(file, prepare, weight, group)
    check_columns(prepare, file.names, file.path)
    absent = next((name for name in rows.columns if name not in file.names), None)
    if absent is not None:
        raise BadInput(f"{file.path} has no column {absent!r}.")
    parts = [rows.read(chunk) for chunk in terminal.show_progress(file.chunks(rows.columns), "rows")]
    if not any(len(part.y) for part in parts):
        raise BadInput(f"{file.path} has no rows.")
    joined: Any = (
        None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return LabelledRows(*joined)
