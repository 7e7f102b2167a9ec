"""Read text files with a header row, in any of the usual encodings."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

from cavity.errors import BadInput, CavityError
from cavity.tables.arrow_tables import Chunk, find_twice, import_pyarrow, release_memory
from cavity.tables.files.stores import locate

CLOSE_QUOTE = "close the open quote in the header"
ADVICE = {  # by a part of the library's message
    "columns, got": (
        "every row must have as many cells as the header, and a cell with a delimiter "
        "or a quote in it must be quoted; the header must be the first line"
    ),
    "include_columns": CLOSE_QUOTE,
    "infer number": CLOSE_QUOTE,
    "field larger": CLOSE_QUOTE,
}
MAX_COLUMNS = 50_000
MAX_HEADER = 64 << 20  # characters
CONTROL = re.compile("[\0-\x08\x0e-\x1f]")  # characters that no text has
BINARY = re.compile("[\0-\x08\x0e-\x1f\x7f-\x9f]")  # nor an error message about a text
QUOTED = re.compile('"[^"]*"')
LINE_END = re.compile(r"[\r\n]")
BLOCK_BYTES = 4 << 20  # bytes of a CSV file to read at a time; a row must fit
SCAN_LETTERS = 1 << 20


@contextmanager
def explain_errors(
    path: object, errors: Any = Exception, remedy: str = ""
) -> Iterator[None]:
    """Turn errors of the libraries that read a file into a BadInput that names it."""
    try:
        yield
    except CavityError:
        raise
    except errors as error:
        said = getattr(error, "strerror", None) or " ".join(str(error).split())
        reason = said or type(error).__name__
        if BINARY.search(reason) and "parquet" not in str(path):  # it quotes cells
            raise BadInput(
                f"{path} is not a text file: save the rows as CSV in UTF-8."
            ) from error
        if "straddling" in reason:  # a row that is longer than a block
            raise BadInput(
                f"{path} has a row longer than 4 MB: close its quote, or shorten the "
                "cell."
            ) from error

        advice = ""
        for sign, words in ADVICE.items():
            if sign in reason:
                advice = f": {words}"
                break

        raise BadInput(
            f"{path} cannot be read: {reason.rstrip('.'):.300}{advice}.{remedy}"
        ) from error


def check_names(names: list[str], path: str) -> None:
    if len(names) > MAX_COLUMNS:
        raise BadInput(
            f"{path} has {len(names):,} columns, but the limit is {MAX_COLUMNS:,}: is "
            "it the wrong file, or are rows and columns swapped?"
        )

    twice = find_twice(names)
    if twice is not None:
        raise BadInput(
            f"{path} has two columns with the name {twice!r}: rename one of them."
        )


class TableFile:
    """File with named columns, which can be read many times in chunks of rows."""

    path: str
    names: list[str]
    notes: Sequence[str] = ()  # remarks on how the file is read

    def chunks(self, columns: Sequence[str] | None = None) -> Iterator[Chunk]:
        """Read all rows in order; `columns` are the wanted ones (default all)."""
        raise NotImplementedError


class Csv(TableFile):
    """Text file with a header row and commas, semicolons, tabs or bars.

    All cells are read as text. A file that is not UTF-8 is read as UTF-16 if it begins
    with its mark, else as Windows-1252 or Latin-1.
    """

    encoding = "UTF-8"

    def __init__(self, path: str, delimiter: str | None = None) -> None:
        self.path = path
        self.encoding = self._find_encoding()
        if self.encoding != "UTF-8":
            self.notes = [f"{path} is not UTF-8: read as {self.encoding}"]
        with self._open() as stream:
            lines = io.TextIOWrapper(stream, "utf-8-sig", newline="")
            read = iter(partial(lines.readline, MAX_HEADER), "")
            line = next((line for line in read if line.strip("\r\n")), "")
            if CONTROL.search(line):
                raise BadInput(
                    f"{path} is not a text file: save the rows as CSV in UTF-8."
                )
            if not line.strip():
                raise BadInput(
                    f"{path} is empty: the first line must contain the names of the "
                    "columns."
                )

            # the first one wins a tie
            self.delimiter = delimiter or max(",;\t|", key=QUOTED.sub("", line).count)
            header = csv.reader(chain([line], lines), delimiter=self.delimiter)
            self.names = next(header)

        self.block = max(BLOCK_BYTES, 4 * len(line))

    def _find_encoding(self) -> str:
        with self._open() as stream:
            if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                return "UTF-16"
        for encoding in ("UTF-8", "Windows-1252"):
            try:
                with io.TextIOWrapper(self._open(), encoding, newline="") as text:
                    while text.read(SCAN_LETTERS):
                        pass
                return encoding
            except UnicodeDecodeError:
                pass

        return "Latin-1"

    def _open(self) -> Any:
        """Open the file as a pyarrow stream in UTF-8; unpacks .gz, .bz2 and .zst."""
        filesystem, path = locate(self.path)
        stream = filesystem.open_input_stream(path)
        if self.encoding == "UTF-8":
            return stream

        return import_pyarrow().transcoding_input_stream(stream, self.encoding, "UTF-8")

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
            first = 0
            final = ""
            try:
                for batch in reader:
                    found = arrow.Table.from_batches([batch])
                    if batch.num_rows:
                        final = found.column(last)[-1].as_py()
                    yield Chunk(found.select(wanted), first, self.path)
                    first += batch.num_rows
            finally:
                release_memory()

            if LINE_END.search(final or "") and not self._read_tail().endswith(b'"'):
                raise BadInput(
                    f"a quote in row {first} of {self.path} is never closed, so the "
                    "rest of the file is one cell: close or remove the quote."
                )

    def _read_tail(self) -> bytes:
        tail = b""
        with self._open() as stream:
            while more := stream.read(1 << 20):
                tail = (tail + more)[-(1 << 16) :]
        return tail.rstrip()
