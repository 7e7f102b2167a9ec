"""Tables in files: CSV, Parquet and Arrow, read in chunks.

A damaged file raises `BadInput`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Flags, Floats
from cavity.errors import BadInput
from cavity.tables.arrow_tables import Chunk, import_pyarrow
from cavity.tables.columns.encoder import ColumnEncoder
from cavity.tables.files.arrow_source import (
    FORMATS,
    open_dataset,
    read_group,
    read_weights,
)
from cavity.tables.files.fragments import Fragments
from cavity.tables.files.stores import locate
from cavity.tables.files.text_files import Csv, check_names, explain_errors
from cavity.tables.files.text_files import TableFile as TableFile
from cavity.tables.pieces import Piece, rows_per_piece

PACKED = (".gz", ".bz2", ".zst")
SHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")


def open_table(path: str | Path, strict: bool = False) -> TableFile:
    """Open a file, a folder of Parquet or Arrow files, or a URI, and check its columns.

    With `strict`, text that is not UTF-8 is an error.
    """
    path = str(path)
    place = locate(path)
    kind = _find_kind(place.path)
    with explain_errors(path):
        about = place.filesystem.get_file_info(place.path)
        if about.type.name == "NotFound":
            raise BadInput(f"file or folder {path!r} does not exist.")
        if about.type.name == "Unknown":
            raise BadInput(
                f"{path!r} is a pipe or a device, but tables are read several times: "
                "save the rows in a file."
            )

        folder = about.type.name == "Directory"
        if folder and kind in FILE_KINDS and kind not in FORMATS:
            raise BadInput(
                f"{path!r} is a folder, not a {kind} file: name the file in it."
            )
        if kind in SHEETS:
            raise BadInput(f"{path!r} is a spreadsheet: save its sheet as CSV.")
        if not folder and kind not in FILE_KINDS:
            raise BadInput(
                f"{path!r} has an unknown file type: give {', '.join(FILE_KINDS)}, or "
                "a folder of Parquet or Arrow files."
            )
        if not folder and about.size == 0:
            raise BadInput(f"{path} is empty.")

        table = Columnar(path) if folder else FILE_KINDS[kind](path)
        if strict and table.notes:
            raise BadInput(f"{table.notes[0]}; save it as UTF-8.")

        check_names(table.names, path)

    return table


def _find_kind(path: str) -> str:
    """Return the suffix that tells the kind of file: ".csv" for table.csv.gz."""
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    if len(suffixes) > 1 and suffixes[-1] in PACKED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


class Columnar(TableFile):
    """Parquet or Arrow file, or a folder of such files."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.names: list[str] = open_dataset(path).schema.names

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        if columns is None:
            columns = self.names
        wanted = [name for name in columns if name]
        with explain_errors(self.path):
            fragments = Fragments(open_dataset(self.path), wanted)
            yield from fragments.chunks(rows_per_piece(len(wanted)))


# What opens a file, by suffix. A new kind of file is a class and an entry here.
FILE_KINDS: dict[str, Callable[[str], TableFile]] = {
    ".csv": Csv,
    ".txt": Csv,
    ".tsv": lambda path: Csv(path, "\t"),
    **dict.fromkeys(FORMATS, Columnar),
}


class LabelledRows(NamedTuple):
    """Rows of a file that have a label."""

    X: Floats
    y: NDArray[Any]
    weight: Floats | None
    group: NDArray[Any] | None  # labels of groups


class TableRows:
    """Rows of a file as a source of prepared features, labels and weights.

    Rows without a label are dropped.
    """

    def __init__(
        self, table: TableFile, prepare: ColumnEncoder, weight: Any, group: Any = None
    ) -> None:
        assert prepare.target_ is not None
        self.table = table
        self.prepare = prepare
        self.names = prepare.names
        self.target = prepare.target_.name
        self.weight = weight
        self.group = group
        self.columns = [*prepare.inputs, self.target, *filter(None, (weight, group))]

    def read(self, chunk: Chunk) -> LabelledRows:
        keep, kept = self._filter(chunk)
        weight = None
        if self.weight is not None:
            weight = read_weights(chunk, self.weight)[keep]
        group = None
        if self.group is not None:
            group = read_group(kept, self.group)
        X = self.prepare.encode(chunk)[keep]
        return LabelledRows(X, self.prepare.labels(kept), weight, group)

    def _filter(self, chunk: Chunk) -> tuple[Flags, Chunk]:
        """Return which rows have a label, and these rows."""
        keep = self.prepare.find_labelled(chunk)
        table = chunk.table.filter(import_pyarrow().array(keep))
        return keep, chunk._replace(table=table)

    def read_groups(self) -> Iterator[tuple[Any, Any]]:
        for chunk in self.table.chunks([self.target, self.group]):
            _, kept = self._filter(chunk)
            yield self.prepare.labels(kept), read_group(kept, self.group)

    def pieces(self, size: int) -> Iterator[Piece]:
        first = 0
        for whole in self.table.chunks(self.columns):
            for start in range(0, whole.table.num_rows, size):
                table = whole.table.slice(start, size)
                rows = self.read(Chunk(table, whole.first + start, whole.where))
                index = np.arange(first, first + len(rows.y))
                yield Piece(index, rows.X, rows.y, rows.weight, whole.where)
                first += len(index)
