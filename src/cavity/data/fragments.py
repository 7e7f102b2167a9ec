"""The files of an Arrow dataset, read by row group, never whole: one file, a folder of files, or a dataset of pyarrow."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.data.source import Visit, common
from cavity.errors import BadInput, BadOption

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives the index of a frame in a file
LANES = 16  # row groups that a shuffled pass reads side by side
LANE_COLUMNS = 1024  # lanes × columns at most: every column of a lane has a page of its file in memory
LEAST_PART = 4096  # rows that are worth a lane of their own


class File(NamedTuple):
    """A fragment as it was when the source was opened."""

    fragment: Any
    name: str
    schema: Any
    kinds: dict[str, str]  # type of each column that is read
    groups: tuple[int, ...]  # rows of its row groups


class Part(NamedTuple):
    """Consecutive rows of a row group."""

    file: int
    group: int
    first: int  # number of the first row, in file order
    skip: int  # rows of the group before it
    rows: int

    def within(self, keep: range) -> Part:
        """Its rows that are in `keep`."""
        both = common(range(self.first, self.first + self.rows), keep)
        return self._replace(first=both.start, skip=self.skip + both.start - self.first, rows=len(both))


class Chunk(NamedTuple):
    """Rows of some columns, as Arrow has them."""

    table: Any  # pyarrow.Table
    first: int  # number of the first row, in file order
    where: str  # the file


class Fragments:
    """Some columns of a dataset's files; the files must stay as they were when this was made."""

    def __init__(self, dataset: Any, columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self.files = [self._file(fragment, i) for i, fragment in enumerate(dataset.get_fragments())]

    @property
    def n_rows(self) -> int:
        return sum(sum(file.groups) for file in self.files)

    def _file(self, fragment: Any, number: int) -> File:
        name = getattr(fragment, "path", f"part {number}")
        schema, groups = _look(fragment, name)
        kinds = {field.name: str(field.type) for field in schema if field.name in self.columns}
        kinds |= {key: "partition" for key in _partition(fragment) if key in self.columns}
        absent = [c for c in self.columns if c not in kinds]
        if absent:
            raise BadInput(
                f"{name} has no column{'s' if len(absent) > 1 else ''} {', '.join(map(repr, absent))}, which other files have."
            )
        return File(fragment, name, schema, kinds, groups)

    def parts(self, least: int = 1) -> list[Part]:
        """Row groups in file order; with `least`, large ones are cut so that there are about that many parts."""
        groups = sum(len(f.groups) for f in self.files)
        cuts = max(1, -(-least // max(1, groups)))
        first, parts = 0, []
        for i, file in enumerate(self.files):
            for g, rows in enumerate(file.groups):
                size = max(1, min(rows, LEAST_PART), -(-rows // cuts))
                parts += [Part(i, g, first + s, s, min(size, rows - s)) for s in range(0, rows, size)]
                first += rows
        return parts

    def chunks(self, size: int, rows: range | None = None) -> Iterator[Chunk]:
        """These rows (or all) in order, at most `size` at a time; only row groups that have some of them are opened."""
        try:
            for part in self.parts():
                yield from self.read(part if rows is None else part.within(rows), size)
        finally:
            give_back()

    def shuffled(self, rng: np.random.Generator, visit: Callable[[Part], Iterator[Visit]]) -> Iterator[Visit]:
        """Parts of row groups in random order, several at a time, a visit to a random one of them next.

        The order is a matter of row counts alone, whatever of a part is read.
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
        finally:  # pages of the open row groups, which the pool would keep while the next pass takes its own
            running.clear()
            give_back()

    def read(self, part: Part, size: int) -> Iterator[Chunk]:
        """The rows of a part, at most `size` at a time."""
        if not part.rows:
            return
        file = self.files[part.file]
        skip, left, number = part.skip, part.rows, part.first
        for table in self._tables(file, part.group, size):
            start = min(skip, table.num_rows)
            skip -= start
            rows = min(table.num_rows - start, left)
            if rows:
                yield Chunk(_with_partition(table.slice(start, rows), file), number, file.name)
                number, left = number + rows, left - rows
            if not left:
                return
        raise BadInput(f"{file.name} ended {left} rows early: it changed while it was read.")

    def _tables(self, file: File, group: int, size: int) -> Iterator[Any]:
        """Record batches of a row group."""
        fragment = _again(file.fragment)
        self._check_unchanged(file, fragment)
        physical = [c for c in self.columns if file.kinds[c] != "partition"]
        for batch in self._batches(fragment, group, size, physical):
            _check_sound(batch, file.name)
            yield batch

    def _batches(self, fragment: Any, group: int, size: int, columns: list[str]) -> Iterator[Any]:
        if _is_parquet(fragment):
            return _parquet(fragment).iter_batches(size, [group], columns, use_threads=False)  # type: ignore[no-any-return]
        return fragment.to_batches(  # type: ignore[no-any-return]
            columns=columns, batch_size=size, batch_readahead=1, fragment_readahead=1, use_threads=False
        )

    def _check_unchanged(self, file: File, fragment: Any) -> None:
        schema, groups = _look(fragment, file.name)
        now = {field.name: str(field.type) for field in schema}
        for name, kind in file.kinds.items():
            if kind != "partition" and now.get(name) != kind:
                what = f"was {kind} and is {now[name]}" if name in now else "is gone"
                raise BadInput(f"{file.name} changed since it was opened: column {name!r} {what}.")
        if groups != file.groups:
            raise BadInput(
                f"{file.name} changed since it was opened: it had {sum(file.groups)} rows in {len(file.groups)} row groups and "
                f"has {sum(groups)} in {len(groups)}."
            )


def import_pyarrow() -> Any:
    """The module, or what to install."""
    try:
        import pyarrow.dataset
    except ImportError as error:
        raise BadOption(
            "Parquet and Arrow files are read with pyarrow, which is not installed: pip install 'cavity[arrow]'."
        ) from error
    return pyarrow


def give_back() -> None:
    """What Arrow's pool keeps of a pass that is over goes back to the system: the next one may be another library's."""
    import_pyarrow().default_memory_pool().release_unused()


def open_dataset(data: Any) -> Any:
    """Files by path, tables and datasets as they are."""
    ds = import_pyarrow().dataset
    if isinstance(data, ds.Dataset):
        return data
    if not isinstance(data, str | os.PathLike):
        try:
            return ds.dataset(data)
        except (TypeError, ValueError) as error:
            raise BadInput(f"a {type(data).__name__} of pyarrow is no table of rows: {error}") from error
    path = Path(data)
    if not path.exists():
        raise BadInput(f"there is no file or folder {str(path)!r}.")
    found = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file() and not _hidden(p, path)]
    files = sorted(str(p) for p in found if p.suffix.lower() in FORMATS)
    kinds = {FORMATS[Path(f).suffix.lower()] for f in files}
    if len(kinds) != 1:
        what = (
            "holds both Parquet and Arrow files"
            if kinds
            else "is or holds no file that can be read in pieces"
        )
        raise BadInput(f"{str(path)!r} {what}; the names end in {', '.join(FORMATS)}, or .npy with y= given.")
    base = str(path if path.is_dir() else path.parent)
    try:
        return ds.dataset(files, format=kinds.pop(), partitioning="hive", partition_base_dir=base)
    except (OSError, ValueError) as error:  # pyarrow's errors derive from these
        raise BadInput(f"{str(path)!r} cannot be read: {error}") from error


def _hidden(path: Path, base: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(base).parts)


def _with_partition(batch: Any, file: File) -> Any:
    """The rows as a table, with the columns that are in the path."""
    arrow = import_pyarrow()
    table = arrow.Table.from_batches([batch])
    for name, value in _partition(file.fragment).items():
        if name in file.kinds and name not in table.column_names:
            table = table.append_column(name, arrow.repeat(arrow.scalar(value), batch.num_rows))
    return table


def _check_sound(batch: Any, name: str) -> None:
    """Arrow takes offsets and texts as files have them: those of a damaged one lead out of the file, or are no text."""
    try:
        batch.validate(full=True)
    except ValueError as error:
        raise BadInput(f"{name} is damaged: {error}") from error


def _is_parquet(fragment: Any) -> bool:
    return type(fragment).__name__ == "ParquetFileFragment"


def _parquet(fragment: Any) -> Any:
    """A reader that decodes batch by batch; a dataset's own scanner would decode whole row groups."""
    import pyarrow.parquet as parquet

    return parquet.ParquetFile(fragment.open(), pre_buffer=False, buffer_size=1 << 16)


def _again(fragment: Any) -> Any:
    """The same file, looked at anew."""
    if not hasattr(fragment, "path"):
        return fragment
    return fragment.format.make_fragment(fragment.path, fragment.filesystem, fragment.partition_expression)


def _look(fragment: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """Schema and rows of each row group, from the file's footer."""
    try:
        if _is_parquet(fragment):
            metadata = _parquet(fragment).metadata
            groups = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
            return metadata.schema.to_arrow_schema(), tuple(groups)
        return fragment.physical_schema, (fragment.count_rows(),)
    except FileNotFoundError:
        raise BadInput(f"{name} is gone: it was there when the source was opened.") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{name} cannot be read: {error}") from error


def _partition(fragment: Any) -> dict[str, Any]:
    """Columns that are in the path, as in label=a/part.parquet."""
    keys: dict[str, Any] = import_pyarrow().dataset.get_partition_keys(fragment.partition_expression)
    return keys
