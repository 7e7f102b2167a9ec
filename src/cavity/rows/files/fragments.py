"""Files of an Arrow dataset, read by row group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.errors import BadInput
from cavity.rows.arrow_tables import Chunk, import_pyarrow, release_memory
from cavity.rows.batches.source import Visit, intersect
from cavity.rows.files.iceberg import IcebergFile

LANES = 16  # row groups that a shuffled pass reads in parallel
LANE_COLUMNS = 1024  # maximum of lanes × columns; each lane keeps one page per column in memory
PAGE_BYTES = 1 << 16  # read at a time from a column of a local file
REMOTE_PAGE_BYTES = 1 << 20  # and from one in an object store, where every read is a request
MIN_PART_ROWS = 4096  # a lane gets at least this many rows


class File(NamedTuple):
    """Fragment as it was when the source was opened."""

    fragment: Any
    name: str
    schema: Any
    kinds: dict[str, str]  # type of each column to read
    groups: tuple[int, ...]  # number of rows of each row group


class Part(NamedTuple):
    """Consecutive rows of one row group."""

    file: int
    group: int
    first: int  # number of the first row, in file order
    skip: int  # rows of the group before it
    rows: int

    def within(self, keep: range) -> Part:
        both = intersect(range(self.first, self.first + self.rows), keep)
        return self._replace(first=both.start, skip=self.skip + both.start - self.first, rows=len(both))


class Fragments:
    """Some columns of a dataset's files. The files must not change while this object is in use."""

    def __init__(self, dataset: Any, columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self.files = [self._describe_file(fragment, i) for i, fragment in enumerate(dataset.get_fragments())]

    @property
    def n_rows(self) -> int:
        return sum(sum(file.groups) for file in self.files)

    def _describe_file(self, fragment: Any, number: int) -> File:
        name = getattr(fragment, "path", f"part {number}")
        schema, groups = _read_footer(fragment, name)
        kinds = {field.name: str(field.type) for field in schema if field.name in self.columns}
        kinds |= {key: "partition" for key in _read_partition(fragment) if key in self.columns}
        absent = [c for c in self.columns if c not in kinds]
        if absent:
            raise BadInput(
                f"{name} has no column{'s' if len(absent) > 1 else ''} {', '.join(map(repr, absent))}, "
                "which other files have. Write all files with the same columns."
            )
        return File(fragment, name, schema, kinds, groups)

    def parts(self, least: int = 1) -> list[Part]:
        """Return the row groups in file order; cuts large ones to get at least about `least` parts."""
        groups = sum(len(f.groups) for f in self.files)
        cuts = max(1, -(-least // max(1, groups)))
        first, parts = 0, []
        for i, file in enumerate(self.files):
            for g, rows in enumerate(file.groups):
                size = max(1, min(rows, MIN_PART_ROWS), -(-rows // cuts))
                parts += [Part(i, g, first + s, s, min(size, rows - s)) for s in range(0, rows, size)]
                first += rows
        return parts

    def chunks(self, size: int, rows: range | None = None) -> Iterator[Chunk]:
        """Read these rows (default all) in order, at most `size` at a time; opens only row groups with such rows."""
        try:
            for part in self.parts():
                yield from self.read(part if rows is None else part.within(rows), size)
        finally:
            release_memory()

    def shuffled(self, rng: np.random.Generator, visit: Callable[[Part], Iterator[Visit]]) -> Iterator[Visit]:
        """Visit parts in random order: several are open at a time, and each visit goes to a random one of them.

        The order depends only on row counts, not on which rows of a part are read.
        """
        lanes = max(2, min(LANES, LANE_COLUMNS // max(1, len(self.columns))))
        parts = self.parts(lanes)
        queue = [parts[i] for i in rng.permutation(len(parts))[::-1]]
        running: list[Iterator[Visit]] = []
        left: list[int] = []
        try:
            while queue or running:
                while queue and len(running) < lanes:
                    left.append(queue[-1].rows)
                    running.append(visit(queue.pop()))
                lane = int(rng.choice(len(running), p=np.array(left) / sum(left)))
                come = next(running[lane])
                yield come
                left[lane] -= len(come.numbers)
                if not left[lane]:
                    del running[lane], left[lane]
        finally:  # else the memory pool keeps the pages of open row groups while the next pass allocates its own
            running.clear()
            release_memory()

    def read(self, part: Part, size: int) -> Iterator[Chunk]:
        if not part.rows:
            return
        file = self.files[part.file]
        skip, left, number = part.skip, part.rows, part.first
        for table in self._tables(file, part.group, size):
            start = min(skip, table.num_rows)
            skip -= start
            rows = min(table.num_rows - start, left)
            if rows:
                yield Chunk(_add_partition(table.slice(start, rows), file), number, file.name)
                number, left = number + rows, left - rows
            if not left:
                return
        raise BadInput(
            f"{file.name} ended {left} rows early: it changed while it was read. Start again with the new file."
        )

    def _tables(self, file: File, group: int, size: int) -> Iterator[Any]:
        fragment = _reopen(file.fragment)
        self._check_unchanged(file, fragment)
        physical = [c for c in self.columns if file.kinds[c] != "partition"]
        try:
            for batch in self._batches(fragment, group, size, physical):
                _check_valid(batch, file.name)
                yield batch
        except BadInput:
            raise
        except (OSError, ValueError) as error:  # pyarrow's errors derive from these
            raise BadInput(
                f"{file.name} cannot be read: {' '.join(str(error).split()):.300}. Restore the file."
            ) from error

    def _batches(self, fragment: Any, group: int, size: int, columns: list[str]) -> Iterator[Any]:
        if isinstance(fragment, IcebergFile):
            return fragment.read_group(group, size, columns)
        if _is_parquet(fragment):
            return _open_parquet(fragment).iter_batches(size, [group], columns, use_threads=False)
        return fragment.to_batches(
            columns=columns, batch_size=size, batch_readahead=1, fragment_readahead=1, use_threads=False
        )

    def _check_unchanged(self, file: File, fragment: Any) -> None:
        schema, groups = _read_footer(fragment, file.name)
        now = {field.name: str(field.type) for field in schema}
        for name, kind in file.kinds.items():
            if kind != "partition" and now.get(name) != kind:
                what = f"was {kind} and is now {now[name]}" if name in now else "is missing"
                raise BadInput(f"{file.name} changed since it was opened: column {name!r} {what}.")
        if groups != file.groups:
            raise BadInput(
                f"{file.name} changed since it was opened: it had {sum(file.groups)} rows in {len(file.groups)} row groups and "
                f"now has {sum(groups)} in {len(groups)}."
            )


def _add_partition(batch: Any, file: File) -> Any:
    """Return the rows as a table, with the columns that are encoded in the path."""
    arrow = import_pyarrow()
    table = arrow.Table.from_batches([batch])
    for name, value in _read_partition(file.fragment).items():
        if name in file.kinds and name not in table.column_names:
            table = table.append_column(name, arrow.repeat(arrow.scalar(value), batch.num_rows))
    return table


def _check_valid(batch: Any, name: str) -> None:
    """Validate a batch: in a damaged file, offsets may point outside the file and text may not be UTF-8."""
    try:
        batch.validate(full=True)
    except ValueError as error:
        raise BadInput(f"{name} is damaged: {error}. Write it again.") from error


def _is_parquet(fragment: Any) -> bool:
    return type(fragment).__name__ == "ParquetFileFragment"


def _open_parquet(fragment: Any) -> Any:
    """Open a reader that decodes batch by batch; the scanner of a dataset would decode whole row groups."""
    import pyarrow.parquet as parquet

    size = PAGE_BYTES if fragment.filesystem.type_name == "local" else REMOTE_PAGE_BYTES
    return parquet.ParquetFile(fragment.open(), pre_buffer=False, buffer_size=size)


def _reopen(fragment: Any) -> Any:
    """Return a new fragment of the same file, without cached metadata; files of Iceberg never change."""
    if isinstance(fragment, IcebergFile) or not hasattr(fragment, "path"):
        return fragment
    return fragment.format.make_fragment(fragment.path, fragment.filesystem, fragment.partition_expression)


def has_missing(dataset: Any, columns: Sequence[str]) -> bool:
    """Return whether columns have missing cells, as far as the files' statistics say; NaN does not count."""
    return any(_count_missing(fragment, set(columns)) for fragment in dataset.get_fragments())


def _count_missing(fragment: Any, columns: set[str]) -> int:
    if isinstance(fragment, IcebergFile):
        return fragment.count_missing(columns)
    if not _is_parquet(fragment):
        in_memory = not getattr(fragment, "path", "")
        return sum(b.column(n).null_count for b in fragment.to_batches() for n in columns) if in_memory else 0
    metadata = _open_parquet(fragment).metadata
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    cells = (group.column(j) for group in groups for j in range(group.num_columns))
    known = (c.statistics for c in cells if c.path_in_schema in columns and c.statistics is not None)
    return sum(s.null_count or 0 for s in known)


def _read_footer(fragment: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """Read the schema and the number of rows of each row group."""
    try:
        if isinstance(fragment, IcebergFile):
            return fragment.physical_schema, fragment.count_groups()
        if _is_parquet(fragment):
            metadata = _open_parquet(fragment).metadata
            groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
            return metadata.schema.to_arrow_schema(), groups
        return fragment.physical_schema, (fragment.count_rows(),)
    except FileNotFoundError:
        raise BadInput(f"{name} was deleted after the source was opened.") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{name} cannot be read: {error}") from error


def _read_partition(fragment: Any) -> dict[str, Any]:
    """Read the columns that are encoded in the path, as in label=a/part.parquet."""
    keys: dict[str, Any] = import_pyarrow(".dataset").get_partition_keys(fragment.partition_expression)
    return keys
