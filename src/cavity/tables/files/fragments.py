"""Rows of an Arrow dataset by their numbers: its parts, row groups of Parquet or files,
are opened when they are read.
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
                for part in (
                    fragment.split_by_row_group()
                    if is_parquet(fragment)
                    else [fragment]
                ):
                    if is_parquet(part):
                        n = part.row_groups[0].num_rows
                    else:
                        n = part.count_rows()
                    self.parts.append(
                        Part(part, name, range(self.n_rows, self.n_rows + n))
                    )
                    self.n_rows += n

    def chunks(self, size: int, rows: range | None = None) -> Iterator[Chunk]:
        """Read these rows (default all) in order, at most `size` at a time; opens only
        parts with such rows.
        """
        try:
            for part in self.parts:
                if rows is None:
                    wanted = part.rows
                else:
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
        early = f"{part.name} ended {wanted.stop - first} rows early"
        raise BadInput(f"{early}: it changed while it was read. Start again.")

    def _batches(self, part: Part, size: int) -> Iterator[Any]:
        how = {"batch_size": size, "batch_readahead": 1, "use_threads": False}
        with explain_errors(part.name, ERRORS, " Restore the file."):
            for batch in part.fragment.to_batches(
                schema=self.schema, columns=self.columns, **how
            ):
                # in a damaged file, offsets and text may be wrong
                batch.validate(full=True)
                yield batch


def is_parquet(fragment: Any) -> bool:
    return type(fragment).__name__ == "ParquetFileFragment"


def has_missing(dataset: Any, columns: Sequence[str]) -> bool:
    """Return whether columns have missing cells, as far as the files' statistics say;
    NaN does not count.
    """
    wanted = set(columns)
    for fragment in dataset.get_fragments():
        if is_parquet(fragment):
            groups = map(
                fragment.metadata.row_group, range(fragment.metadata.num_row_groups)
            )
            cells = (
                group.column(j) for group in groups for j in range(group.num_columns)
            )
            known = (
                c.statistics
                for c in cells
                if c.path_in_schema in wanted and c.statistics is not None
            )
            counts = [statistics.null_count for statistics in known]
        elif getattr(fragment, "path", ""):
            continue
        else:  # in memory
            counts = [
                b.column(name).null_count
                for b in fragment.to_batches()
                for name in columns
            ]
        if any(counts):
            return True
    return False
