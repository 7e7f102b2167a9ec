"""Files of an Arrow dataset, read by row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from cavity.errors import BadInput
from cavity.rows.arrow_tables import Chunk, classify_type, import_pyarrow, release_memory
from cavity.rows.batches.source import intersect
from cavity.rows.files.text_files import explain_errors

ERRORS = (OSError, ValueError, IndexError)  # pyarrow's derive from these


class File(NamedTuple):
    """Fragment as it was when the source was opened."""

    fragment: Any
    name: str
    partition: dict[str, Any]  # columns that are encoded in the path, as in label=a/part.parquet
    groups: tuple[int, ...]  # number of rows of each row group; one for other files than Parquet


class Fragments:
    """Some columns of a dataset's files; some must be numeric. The files must not change while this object is in use."""

    def __init__(self, dataset: Any, columns: Sequence[str], numbers: Sequence[str] = ()) -> None:
        self.columns, self.numbers = list(columns), frozenset(numbers)
        self.files = [self._describe_file(fragment, i) for i, fragment in enumerate(dataset.get_fragments())]

    @property
    def n_rows(self) -> int:
        return sum(sum(file.groups) for file in self.files)

    def _describe_file(self, fragment: Any, number: int) -> File:
        name = getattr(fragment, "path", f"part {number}")
        with explain_errors(name, ERRORS):
            schema = fragment.physical_schema
            groups = (
                [g.num_rows for g in fragment.row_groups]
                if _is_parquet(fragment)
                else [fragment.count_rows()]
            )
        partition = import_pyarrow(".dataset").get_partition_keys(fragment.partition_expression)
        kinds = {*schema.names, *partition}
        absent = [c for c in self.columns if c not in kinds]
        if absent:
            raise BadInput(
                f"{name} has no column{'s' if len(absent) > 1 else ''} {', '.join(map(repr, absent))}, "
                "which other files have. Write all files with the same columns."
            )
        odd = [f for f in schema if f.name in self.numbers and classify_type(f.type) != "number"]
        if odd:
            named = ", ".join(f"{f.name!r} ({f.type})" for f in odd)
            raise BadInput(
                f"column{'s' if len(odd) > 1 else ''} {named} of {name}: not numeric. Encode the columns before you "
                "write the files (e.g. with a OneHotEncoder), or remove them."
            )
        return File(fragment, name, {c: partition[c] for c in partition if c in self.columns}, tuple(groups))

    def _groups(self) -> Iterator[tuple[File, int, range]]:
        """Yield file, number and rows of each row group."""
        first = 0
        for file in self.files:
            for group, rows in enumerate(file.groups):
                yield file, group, range(first, first + rows)
                first += rows

    def chunks(self, size: int, rows: range | None = None) -> Iterator[Chunk]:
        """Read these rows (default all) in order, at most `size` at a time; opens only row groups with such rows."""
        try:
            for file, group, own in self._groups():
                wanted = own if rows is None else intersect(own, rows)
                if wanted:
                    yield from self._read(file, group, wanted, wanted.start - own.start, size)
        finally:
            release_memory()

    def _read(self, file: File, group: int, rows: range, skip: int, size: int) -> Iterator[Chunk]:
        """Read these rows of a row group, which follow `skip` others."""
        number, left = rows.start, len(rows)
        for table in self._tables(file, group, size):
            start = min(skip, table.num_rows)
            skip -= start
            count = min(table.num_rows - start, left)
            if count:
                yield Chunk(_add_partition(table.slice(start, count), file), number, file.name)
                number, left = number + count, left - count
            if not left:
                return
        raise BadInput(f"{file.name} ended {left} rows early: it changed while it was read. Start again.")

    def _tables(self, file: File, group: int, size: int) -> Iterator[Any]:
        with explain_errors(file.name, ERRORS, " Restore the file."):
            found = _reopen(file.fragment)
            found = found.subset(row_group_ids=[group]) if _is_parquet(found) else found
            physical = [c for c in self.columns if c not in file.partition]
            for batch in found.to_batches(
                columns=physical, batch_size=size, batch_readahead=1, use_threads=False
            ):
                batch.validate(full=True)  # in a damaged file, offsets and text may be wrong
                yield batch


def _add_partition(batch: Any, file: File) -> Any:
    """Return the rows as a table, with the columns that are encoded in the path."""
    arrow = import_pyarrow()
    table = arrow.Table.from_batches([batch])
    for name, value in file.partition.items():
        table = table.append_column(name, arrow.repeat(arrow.scalar(value), batch.num_rows))
    return table


def _is_parquet(fragment: Any) -> bool:
    return type(fragment).__name__ == "ParquetFileFragment"


def _reopen(fragment: Any) -> Any:
    """Return a new fragment of the same file, without cached metadata."""
    if not hasattr(fragment, "path"):
        return fragment
    return fragment.format.make_fragment(fragment.path, fragment.filesystem, fragment.partition_expression)


def has_missing(dataset: Any, columns: Sequence[str]) -> bool:
    """Return whether columns have missing cells, as far as the files' statistics say; NaN does not count."""
    return any(_count_missing(fragment, set(columns)) for fragment in dataset.get_fragments())


def _count_missing(fragment: Any, columns: set[str]) -> int:
    if not _is_parquet(fragment):
        in_memory = not getattr(fragment, "path", "")
        return sum(b.column(n).null_count for b in fragment.to_batches() for n in columns) if in_memory else 0
    metadata = fragment.metadata
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    cells = (group.column(j) for group in groups for j in range(group.num_columns))
    known = (c.statistics for c in cells if c.path_in_schema in columns and c.statistics is not None)
    return sum(s.null_count or 0 for s in known)
