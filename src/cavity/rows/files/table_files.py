"""Tables in files: CSV, Parquet and Arrow, read in chunks. A damaged file raises `BadInput`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any

from cavity.common import object_stores
from cavity.common.object_stores import Location, as_path
from cavity.errors import BadInput
from cavity.rows.arrow_tables import Chunk, copy_columns, import_pyarrow
from cavity.rows.columns.column_kinds import simplify
from cavity.rows.columns.encoder import ColumnEncoder
from cavity.rows.files.arrow_source import FORMATS, open_dataset
from cavity.rows.files.fragments import Fragments
from cavity.rows.files.text_files import Csv, check_names, explain_errors
from cavity.rows.files.text_files import TableFile as TableFile

PACKED = (".gz", ".bz2", ".zst")
SHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
CHUNK_BYTES = 32 << 20
CHUNK_ROWS = 65_536
SPOOL_PAGE = 32 << 10  # bytes


def open_table(path: str | Path, strict: bool = False) -> TableFile:
    """Open a file, a folder of Parquet or Arrow files, or a URI, and check its columns. `strict`: refuse text that is not UTF-8."""
    path = as_path(path)
    suffixes = [s.lower() for s in PurePath(object_stores.get_name(path)).suffixes]
    kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in PACKED else suffixes[-1] if suffixes else ""
    with explain_errors(path):
        if not object_stores.exists(path):
            raise BadInput(f"file or folder {str(path)!r} does not exist.")
        folder = object_stores.is_folder(path)
        if not folder and isinstance(path, Path) and not path.is_file():
            raise BadInput(
                f"{str(path)!r} is a pipe or a device: tables are read several times, so write it to a file."
            )
        if folder and kind in FILE_KINDS and kind not in FORMATS:
            raise BadInput(f"{str(path)!r} is a folder, not a {kind} file: name the file in it.")
        if kind in SHEETS:
            raise BadInput(f"{str(path)!r} is a spreadsheet: save its sheet as CSV.")
        if not folder and kind not in FILE_KINDS:
            raise BadInput(
                f"{str(path)!r} has an unknown file type: the name must end in {', '.join(FILE_KINDS)}, or be that of a folder of "
                "Parquet or Arrow files."
            )
        table = Columnar(path) if folder else FILE_KINDS[kind](path, strict)
        check_names(table.names, path)
    return table


class Columnar(TableFile):
    """Parquet or Arrow file, or a folder of such files."""

    def __init__(self, path: Location) -> None:
        self.path = path
        if isinstance(path, Path) and path.is_file():
            path.open("rb").close()  # raises a clearer error than pyarrow if the file cannot be opened
            if not path.stat().st_size:
                raise BadInput(f"{path} is empty.")
        self.names: list[str] = open_dataset(path).schema.names

    def types(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return a common type for each column over all files: the widest numeric type, or text."""
        arrow, found = import_pyarrow(), {}
        schemas = [fragment.physical_schema for fragment in open_dataset(self.path).get_fragments()]
        for name in columns:
            parts = [arrow.schema([schema.field(name)]) for schema in schemas if name in schema.names]
            try:
                found[name] = arrow.unify_schemas(parts, promote_options="permissive").field(name).type
            except (arrow.ArrowException, ValueError):
                found[name] = arrow.string()
        return found

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        with explain_errors(self.path):
            wanted = [name for name in (self.names if columns is None else columns) if name]
            yield from Fragments(open_dataset(self.path), wanted).chunks(_rows_per_chunk(len(wanted)))


# By suffix: what opens a file, given its path and `strict`. A new kind of file is a class and an entry here.
FILE_KINDS: dict[str, Callable[[Location, bool], TableFile]] = {
    ".csv": lambda path, strict: Csv(path, None, strict),  # guesses the delimiter
    ".tsv": lambda path, strict: Csv(path, "\t", strict),
    ".txt": lambda path, strict: Csv(path, None, strict),
    **dict.fromkeys(FORMATS, lambda path, strict: Columnar(path)),
}


def _rows_per_chunk(n_columns: int) -> int:
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // (8 * max(1, n_columns))))


@contextmanager
def spool_table(table: TableFile, prepare: ColumnEncoder, more: Sequence[str]) -> Iterator[Location]:
    """Give the path of a file that can be read in any order: the table itself, or a temporary copy in Parquet.

    The copy has the columns that `prepare` reads, and `more`, of the rows with a label.
    """
    if isinstance(table, Columnar) and not (prepare.target_ and prepare.target_.missing):
        yield table.path
        return
    with tempfile.TemporaryDirectory(prefix="cavity-") as folder:
        path = Path(folder) / "rows.parquet"
        try:
            _write_copy(table, prepare, more, path)
        except (OSError, import_pyarrow().ArrowException) as error:
            raise BadInput(
                f"a copy of {table.path} could not be written to {folder} ({error}): free disk space there, or set TMPDIR."
            ) from error
        yield path


def _write_copy(table: TableFile, prepare: ColumnEncoder, more: Sequence[str], path: Path) -> None:
    """Write a copy in Parquet with numeric columns as numbers.

    Pages are small, because a shuffled pass keeps one page per column and lane in memory. Row groups are large, because
    each open row group keeps the list of all row groups in memory.
    """
    import pyarrow.parquet as parquet

    columns = [*prepare.inputs, *more]
    types = table.types(columns)
    parts = (
        _labelled(prepare, chunk, copy_columns(chunk.table, columns, types))
        for chunk in table.chunks(columns)
    )
    writer = None
    try:
        for group in _join_tables(parts, _rows_per_chunk(len(columns))):
            writer = writer or parquet.ParquetWriter(path, group.schema, data_page_size=SPOOL_PAGE)
            writer.write_table(group)
    finally:
        if writer is not None:
            writer.close()


def _labelled(prepare: ColumnEncoder, chunk: Chunk, cells: dict[str, Any]) -> Any:
    cells |= {c.name: simplify(c, cells[c.name], chunk.first) for c in prepare.columns_}
    part = import_pyarrow().table(cells)
    if not (prepare.target_ and prepare.target_.missing):
        return part
    return part.filter(import_pyarrow().array(prepare.find_labelled(chunk)))


def _join_tables(tables: Iterable[Any], least: int) -> Iterator[Any]:
    """Concatenate consecutive tables until each has at least `least` rows."""
    waiting: list[Any] = []
    for table in tables:
        waiting.append(table)
        if sum(part.num_rows for part in waiting) >= least:
            yield import_pyarrow().concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield import_pyarrow().concat_tables(waiting)
