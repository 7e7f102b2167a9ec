"""The table of `cavity fit`: a first pass learns the preparation of its columns, a second reads its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.cli.settings import Settings
from cavity.cli.terminal import Terminal, Text
from cavity.common.text_tables import format_pairs, name_column
from cavity.errors import BadInput
from cavity.rows.columns.encoder import check_columns
from cavity.rows.columns.preparation import Preparation
from cavity.rows.columns.target_labels import advise_classes
from cavity.rows.files.table_files import CHUNK_ROWS, TableFile, TableRows, open_table

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
    with name_file_in_errors(file):
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


@contextmanager
def name_file_in_errors(file: TableFile) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise error if str(file.path) in str(error) else BadInput(f"{file.path}: {error}") from error


class ReadRows(NamedTuple):
    X: Any
    y: Any
    weight: Any = None
    group: Any = None


def read_rows(file: TableFile, prepare: Preparation, weight: Text = None, group: Text = None) -> ReadRows:
    """Read the rows with a label."""
    check_columns(prepare, file.names, file.path)
    source = TableRows(file, prepare, weight, group)
    absent = next((c for c in (source.target, weight, group) if c not in (None, *file.names)), None)
    if absent is not None:
        raise BadInput(f"{file.path} has no column {absent!r}.")
    pieces = [piece for piece in source.pieces(CHUNK_ROWS) if len(piece.y)]
    if not pieces:
        raise BadInput(f"{file.path} has no rows.")
    return ReadRows(
        np.concatenate([piece.X for piece in pieces]),
        np.concatenate([piece.y for piece in pieces]),
        None if weight is None else np.concatenate([piece.weight for piece in pieces]),
        None if group is None else np.concatenate([labels for _, labels in source.read_groups()]),
    )
