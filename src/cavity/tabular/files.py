"""Tables in files: CSV, Parquet, Arrow and .npz, read in chunks. A damaged file raises `BadInput`."""

from __future__ import annotations

import codecs
import csv
import io
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cavity.data.fragments import FORMATS, Chunk, Fragments, import_pyarrow, open_dataset, release_memory
from cavity.errors import BadInput, CavityError
from cavity.tabular.preparation import Preparation

TEXTS = {".csv": None, ".tsv": "\t", ".txt": None}  # the delimiter; None: guess it from the header
PACKED = (".gz", ".bz2", ".zst")
SHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
ADVICE = {  # by a part of pyarrow's message
    "UTF8": "save it as UTF-8",
    "UTF-8": "save it as UTF-8",
    "columns, got": "every row must have as many cells as the header, and a cell with a delimiter or a quote in it must be quoted",
}
MAX_COLUMNS = 50_000
MAX_HEADER_BYTES = 64 << 20  # bytes
MAX_QUOTED_BYTES = 1 << 20  # quotes in a header must close within this many bytes
QUOTED = re.compile('"[^"]*"')
BYTE_ORDER_MARK, LINE_END = b"\xef\xbb\xbf", re.compile(rb"[\r\n]")
BLOCK_BYTES = 4 << 20  # bytes of a CSV file to read at a time; a row must fit
SCAN_BYTES = 1 << 20
NOT_CP1252 = bytes([0x81, 0x8D, 0x8F, 0x90, 0x9D])  # that Windows-1252 does not define
CHUNK_BYTES = 32 << 20
CHUNK_ROWS = 65_536
SPOOL_PAGE = 32 << 10  # bytes


class TableFile(Protocol):
    """File with named columns, which can be read many times in chunks of rows."""

    @property
    def path(self) -> Path: ...

    @property
    def names(self) -> list[str]: ...

    @property
    def notes(self) -> list[str]:
        """Remarks on how the file is read."""
        ...

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """Read all rows in order, of all columns or of these."""
        ...

    def types(self, columns: Sequence[str]) -> dict[str, Any]:
        """Return the types of these columns if types may differ between chunks, else an empty dict."""
        ...


def open_table(path: str | Path, strict: bool = False) -> TableFile:
    """Open a table with the reader for its file name, and check its columns.

    Parameters
    ----------
    path : str or Path
        A file (.csv, .tsv, .txt, .parquet, .pq, .arrow, .feather, .ipc, .npz) or a folder of Parquet or Arrow files.
    strict : bool
        Refuse text in other encodings than UTF-8.

    Returns
    -------
    TableFile
        The open table.
    """
    path = Path(path)
    suffixes = [s.lower() for s in path.suffixes]
    kind = suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in PACKED else suffixes[-1] if suffixes else ""
    with explain_errors(path):
        if not path.exists():
            raise BadInput(f"file or folder {str(path)!r} does not exist.")
        if path.is_dir() or kind in FORMATS:
            table: TableFile = Columnar(path)
        elif kind in TEXTS:
            table = Csv(path, TEXTS[kind], strict)
        elif kind == ".npz":
            table = Npz(path)
        elif kind in SHEETS:
            raise BadInput(f"{str(path)!r} is a spreadsheet: save its sheet as CSV.")
        else:
            known = ", ".join([*TEXTS, *FORMATS, ".npz"])
            raise BadInput(
                f"{str(path)!r} has an unknown file type: the name must end in {known}, or be that of a folder of such files."
            )
        _check_names(table.names, path)
    return table


@contextmanager
def explain_errors(path: Path, errors: tuple[type[Exception], ...] = (Exception,)) -> Iterator[None]:
    """Turn errors of the libraries that read a file into a BadInput that names the file."""
    try:
        yield
    except CavityError:
        raise
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path} is not text in UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8."
        ) from error
    except errors as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        advice = next((f": {words}" for sign, words in ADVICE.items() if sign in reason), "")
        raise BadInput(f"{path} cannot be read: {reason:.300}{advice}.") from error


def _check_names(names: list[str], path: Path) -> None:
    if len(names) > MAX_COLUMNS:
        raise BadInput(
            f"{path} has {len(names):,} columns, but the limit is {MAX_COLUMNS:,}: is it the right file? Are rows and "
            "columns swapped?"
        )
    seen: set[str] = set()
    for name in names:
        if name in seen and name:
            raise BadInput(f"{path} has two columns with the name {name!r}: rename one of them.")
        seen.add(name)


class Csv:
    """Text file with a header row and commas, semicolons, tabs or bars; all cells are read as text.

    A file that is not UTF-8 is read as UTF-16 if it begins so, else as Windows-1252 or Latin-1.
    """

    def __init__(self, path: Path, delimiter: str | None, strict: bool = False) -> None:
        self.path = path
        self.encoding = "utf8" if strict else self._find_encoding()
        line = self._read_header()
        self.block = max(BLOCK_BYTES, 4 * len(line))
        if delimiter is None:
            delimiter = max(",;\t|", key=QUOTED.sub("", line).count)  # the first one wins a tie
        self.delimiter = delimiter
        if line.count(delimiter) >= MAX_COLUMNS:  # before a million strings are made
            _check_names([""] * (line.count(delimiter) + 1), path)
        self.names = next(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter), [])

    def _find_encoding(self) -> str:
        """Read the file once to find its encoding."""
        decoder, encoding = codecs.getincrementaldecoder("utf-8")(), "utf8"
        with import_pyarrow().input_stream(str(self.path)) as stream:
            block = stream.read(SCAN_BYTES)
            if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            while block:
                try:
                    if encoding == "utf8":
                        decoder.decode(block)
                except UnicodeDecodeError:
                    encoding = "cp1252"
                if encoding == "cp1252" and block.translate(None, NOT_CP1252) != block:
                    return "latin-1"
                block = stream.read(SCAN_BYTES)
        return encoding

    @property
    def notes(self) -> list[str]:
        """Remarks on how the file is read."""
        names = {"cp1252": "Windows-1252", "latin-1": "Latin-1", "utf-16": "UTF-16"}
        return (
            [] if self.encoding == "utf8" else [f"{self.path} is not UTF-8: read as {names[self.encoding]}"]
        )

    def _open(self) -> Any:
        """Open the file as a stream of UTF-8."""
        arrow = import_pyarrow()
        stream = arrow.input_stream(str(self.path))
        return (
            stream
            if self.encoding == "utf8"
            else arrow.transcoding_input_stream(stream, self.encoding, "utf8")
        )

    def _read_header(self) -> str:
        """Read the header, which may have line ends between quotes; skips empty lines before it."""
        with self._open() as stream:
            content, found = b"", None
            while found is None and (more := stream.read(1 << 20)):
                content = (content + more).removeprefix(BYTE_ORDER_MARK).lstrip(b"\r\n")
                found = _cut_first_record(content)
                if len(content) > MAX_HEADER_BYTES:
                    raise BadInput(f"the first line of {self.path} is longer than 64 MB: is it a CSV file?")
        text = (_cut_first_line(content) if found is None else found).decode("utf-8")
        if "\0" in text:
            raise BadInput(f"{self.path} is not a text file: save the rows as CSV in UTF-8.")
        if not text.strip():
            raise BadInput(f"{self.path} is empty: the first line must contain the names of the columns.")
        return text

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        arrow = import_pyarrow()
        import pyarrow.csv as text

        with explain_errors(self.path):
            wanted = list(self.names if columns is None else columns)
            last = self.names[-1]
            reader = text.open_csv(
                self._open(),
                text.ReadOptions(block_size=self.block, use_threads=False),
                text.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                text.ConvertOptions(
                    column_types=dict.fromkeys(self.names, arrow.string()),
                    include_columns=list(dict.fromkeys([*wanted, last])),
                    strings_can_be_null=False,
                ),
            )
            first, final = 0, ""
            try:
                for batch in reader:
                    found = arrow.Table.from_batches([batch])
                    final = found.column(last)[-1].as_py() if batch.num_rows else final
                    yield Chunk(found.select(wanted), first, str(self.path))
                    first += batch.num_rows
            finally:
                release_memory()
            if LINE_END.search((final or "").encode()) and not self._read_tail().endswith(b'"'):
                raise BadInput(
                    f"a quote in row {first} of {self.path} is never closed, so the rest of the file is one cell: "
                    "close or remove the quote."
                )

    def types(self, columns: Sequence[str]) -> dict[str, Any]:
        return {}

    def _read_tail(self) -> bytes:
        """Read the end of the file, without trailing white space."""
        tail = b""
        with self._open() as stream:
            while more := stream.read(1 << 20):
                tail = (tail + more)[-(1 << 16) :]
        return tail.rstrip()


def _cut_first_record(content: bytes) -> bytes | None:
    """Cut at the first line end that is not between quotes; after MAX_QUOTED_BYTES, at the first line end."""
    quotes = begin = 0
    for end in (found.start() for found in LINE_END.finditer(content)):
        quotes, begin = quotes + content.count(b'"', begin, end), end
        if quotes % 2 == 0:
            return content[:end]
        if end > MAX_QUOTED_BYTES:
            return _cut_first_line(content)
    return None


def _cut_first_line(content: bytes) -> bytes:
    return LINE_END.split(content, 1)[0]


class Columnar:
    """Parquet or Arrow file, or a folder of such files."""

    notes: list[str] = []  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.is_file():
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


class Npz:
    """NumPy archive: uses the arrays with one entry per row (those of maximal length); 2-D arrays give several columns."""

    notes: list[str] = []  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self.path = path
        if not zipfile.is_zipfile(path):
            raise BadInput(f"{path} is damaged, or it is not a NumPy archive: write it with numpy.savez.")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        rows = max((len(a) for a in arrays.values() if a.ndim), default=0)
        titles = arrays.get("feature_names")
        self.columns: dict[str, NDArray[Any]] = {}
        for name, array in arrays.items():
            if array.ndim and len(array) == rows:
                self._add(name, array, titles)
        self.names = list(self.columns)

    def _add(self, name: str, array: NDArray[Any], titles: NDArray[Any] | None) -> None:
        array = array.astype(str) if array.dtype.kind == "S" else array
        if array.ndim == 1:
            self._put(name, array)
            return
        flat = array.reshape(len(array), -1)
        if flat.shape[1] > MAX_COLUMNS:
            _check_names([""] * flat.shape[1], self.path)
        named = titles is not None and titles.shape == flat.shape[1:] and titles.dtype.kind == "U"
        for j in range(flat.shape[1]):
            self._put(str(titles[j]) if titles is not None and named else f"{name}{j}", flat[:, j])

    def types(self, columns: Sequence[str]) -> dict[str, Any]:
        return {}

    def _put(self, name: str, column: NDArray[Any]) -> None:
        if name in self.columns:
            raise BadInput(f"{self.path} has two columns with the name {name!r}: rename one of them.")
        self.columns[name] = column

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        arrow = import_pyarrow()
        with explain_errors(self.path):
            wanted = self.names if columns is None else columns
            size = _rows_per_chunk(len(wanted))
            for start in range(0, len(self.columns[wanted[0]]) if wanted else 0, size):
                cells = {
                    name: arrow.array(self.columns[name][start : start + size].copy()) for name in wanted
                }
                yield Chunk(arrow.table(cells), start, str(self.path))


def _rows_per_chunk(n_columns: int) -> int:
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES // (8 * max(1, n_columns))))


@contextmanager
def spool_table(table: TableFile, prepare: Preparation, more: Sequence[str]) -> Iterator[Path]:
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


def _write_copy(table: TableFile, prepare: Preparation, more: Sequence[str], path: Path) -> None:
    """Write a copy in Parquet with numeric columns as numbers.

    Pages are small, because a shuffled pass keeps one page per column and lane in memory. Row groups are large, because
    each open row group keeps the list of all row groups in memory.
    """
    import pyarrow.parquet as parquet

    columns = [*prepare.inputs, *more]
    parts = (_labelled(prepare, chunk, more) for chunk in table.chunks(columns))
    writer = None
    try:
        for group in _join_tables(parts, _rows_per_chunk(len(columns))):
            writer = writer or parquet.ParquetWriter(path, group.schema, data_page_size=SPOOL_PAGE)
            writer.write_table(group)
    finally:
        if writer is not None:
            writer.close()


def _labelled(prepare: Preparation, chunk: Chunk, more: Sequence[str]) -> Any:
    part = prepare.to_table(chunk, more)
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
