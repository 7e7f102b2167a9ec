"""Read rows of an Arrow dataset by their numbers.

Its parts, row groups of Parquet or other files, are opened when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cavity.errors import BadInput
from cavity.tables.arrow_tables import Chunk, import_pyarrow, release_memory
from cavity.tables.files.text_files import explain_errors
from cavity.tables.pieces import intersect

ERRORS = (OSError, ValueError, IndexError)  # pyarrow's derive from these


class Part(NamedTuple):
    """A row group of a Parquet file, another file, or a table in memory."""

    fragment: Any
    name: str
    rows: range  # numbers in the dataset


class Fragments:
    """Some columns of a dataset, with the types of its schema.

    The files must not change while this object is in use.
    """

    def __init__(self, dataset: Any, columns: Sequence[str]) -> None:
        self.schema = dataset.schema
        self.columns = list(columns)
        self.parts: list[Part] = []
        self.n_rows = 0
        for i, fragment in enumerate(dataset.get_fragments()):
            name = getattr(fragment, "path", f"part {i}")
            with explain_errors(name, ERRORS):
                if not is_parquet(fragment):
                    self._add(fragment, name, fragment.count_rows())
                    continue

                for part in fragment.split_by_row_group():
                    self._add(part, name, part.row_groups[0].num_rows)

    def _add(self, fragment: Any, name: str, n_rows: int) -> None:
        rows = range(self.n_rows, self.n_rows + n_rows)
        self.parts.append(Part(fragment, name, rows))
        self.n_rows += n_rows

    def chunks(self, size: int, rows: range | None = None) -> Iterator[Chunk]:
        """Read these rows (default all) in order, at most `size` at a time.

        Opens only parts that contain some of them.
        """
        if rows is None:
            rows = range(self.n_rows)
        try:
            for part in self.parts:
                wanted = intersect(part.rows, rows)
                if wanted:
                    yield from self._read(part, wanted, size)
        finally:
            release_memory()

    def _read(self, part: Part, wanted: range, size: int) -> Iterator[Chunk]:
        first = part.rows.start
        for batch in self._batches(part, size):
            here = intersect(range(first, first + batch.num_rows), wanted)
            if here:
                table = import_pyarrow().Table.from_batches(
                    [batch.slice(here.start - first, len(here))]
                )
                yield Chunk(table, here.start, part.name)

            first += batch.num_rows
            if first >= wanted.stop:
                return

        raise BadInput(
            f"{part.name} ended {wanted.stop - first} rows early: it changed while it "
            "was read. Start again."
        )

    def _batches(self, part: Part, size: int) -> Iterator[Any]:
        with explain_errors(part.name, ERRORS, " Restore the file."):
            batches = part.fragment.to_batches(
                schema=self.schema,
                columns=self.columns,
                batch_size=size,
                batch_readahead=1,
                use_threads=False,
            )
            for batch in batches:
                # in a damaged file, offsets and text may be wrong
                batch.validate(full=True)
                yield batch


def is_parquet(fragment: Any) -> bool:
    return type(fragment).__name__ == "ParquetFileFragment"


def has_missing(dataset: Any, columns: Sequence[str]) -> bool:
    """Return whether columns have missing cells, as far as is known without reading.

    Parquet files have statistics; other files are not searched. NaN does not count.
    """
    for fragment in dataset.get_fragments():
        if is_parquet(fragment):
            if _has_missing_in_parquet(fragment.metadata, set(columns)):
                return True
        elif not getattr(fragment, "path", ""):  # in memory
            for batch in fragment.to_batches():
                if any(batch.column(name).null_count for name in columns):
                    return True

    return False


def _has_missing_in_parquet(metadata: Any, columns: set[str]) -> bool:
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for j in range(group.num_columns):
            column = group.column(j)
            if column.path_in_schema not in columns or column.statistics is None:
                continue
            if column.statistics.null_count:
                return True

    return False
