"""Parquet and Arrow files: one file, a folder of files, or a dataset of pyarrow. Read by row group, never whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.source import Array, Piece, Visit, common, regroup
from cavity.errors import BadInput, BadOption

FORMATS = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
LANES = 16  # row groups that a shuffled pass reads side by side
LANE_COLUMNS = 1024  # lanes × columns at most: every column of a lane has a page of its file in memory
LEAST_PART = 4096  # rows that are worth a lane of their own


class File(NamedTuple):
    """A fragment as it was when the source was opened."""

    fragment: Any
    name: str
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


class Arrow:
    """The rows of a dataset, numbered in file order; `target` names the labels' column, `weight` that of the weights.

    With `features`, only these columns are read, and without a target every label is 0.
    """

    numbered = True

    def __init__(
        self,
        data: Any,
        target: Any = None,
        weight: str | None = None,
        features: Sequence[str] | None = None,
    ) -> None:
        files = dataset(data)
        self.target, self.weight = target, weight
        self.names: tuple[str, ...] = _features(files.schema, target, weight, features)
        fragments = list(files.get_fragments())
        self.columns = [*self.names, *(name for name in (target, weight) if name is not None)]
        self.files = [self._file(fragment, i) for i, fragment in enumerate(fragments)]

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
        _refuse_types(schema, self.names, name)
        return File(fragment, name, kinds, groups)

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

    @property
    def n_rows(self) -> int:
        return sum(sum(f.groups) for f in self.files)

    def pieces(self, size: int) -> Iterator[Piece]:
        return self.section(range(self.n_rows), size)

    def section(self, rows: range, size: int) -> Iterator[Piece]:
        """Only row groups that have some of these rows are opened."""
        for part in self.parts():
            yield from self._read(part.within(rows), size)

    def scattered(self, size: int, rng: np.random.Generator) -> Iterator[Piece]:
        return (visit.piece for visit in self.visits(size, rng, range(self.n_rows)))

    def visits(self, size: int, rng: np.random.Generator, keep: range) -> Iterator[Visit]:
        """Parts of row groups in random order, several at a time, a piece from a random one of them next.

        The order is a matter of row counts alone: a part without a row in `keep` has its turns and is not opened.
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
                    running.append(self._turns(queue.pop(), size, keep))
                lane = int(rng.choice(len(running), p=np.array(left) / sum(left)))
                visit = next(running[lane])
                yield visit
                left[lane] -= len(visit.numbers)
                if not left[lane]:
                    del running[lane], left[lane]
        finally:  # pages of the open row groups, which the pool would keep while the next pass takes its own
            running.clear()
            _pyarrow().default_memory_pool().release_unused()

    def _turns(self, part: Part, size: int, keep: range) -> Iterator[Visit]:
        """A part cut at multiples of `size`, with the rows of each cut that are in `keep`."""
        end = part.first + part.rows
        cuts = [range(start, min(start + size, end)) for start in range(part.first, end, size)]
        counts = [len(common(cut, keep)) for cut in cuts]
        pieces = regroup(self._read(part.within(keep), size), (n for n in counts if n))
        for cut, count in zip(cuts, counts, strict=True):
            yield Visit(np.arange(cut.start, cut.stop), next(pieces) if count else self._nothing())

    def _nothing(self) -> Piece:
        return Piece(np.empty(0, dtype=np.int64), np.empty((0, len(self.names))), np.empty(0), None)

    def _read(self, part: Part, size: int) -> Iterator[Piece]:
        """The rows of a part, in pieces of at most `size`."""
        if not part.rows:
            return
        file = self.files[part.file]
        skip, left, number = part.skip, part.rows, part.first
        for table in self._tables(file, part.group, size):
            start = min(skip, table.num_rows)
            skip -= start
            rows = min(table.num_rows - start, left)
            if rows:
                yield self._piece(table.slice(start, rows), number, file)
                number, left = number + rows, left - rows
            if not left:
                return
        raise BadInput(f"{file.name} ended {left} rows early: it changed while it was read.")

    def _tables(self, file: File, group: int, size: int) -> Iterator[Any]:
        """Record batches of a row group."""
        fragment = _again(file.fragment)
        self._check_unchanged(file, fragment)
        physical = [c for c in self.columns if file.kinds[c] != "partition"]
        if _is_parquet(fragment):
            reader = _parquet(fragment)
            yield from reader.iter_batches(size, [group], physical, use_threads=False)
            return
        yield from fragment.to_batches(
            columns=physical, batch_size=size, batch_readahead=1, fragment_readahead=1, use_threads=False
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

    def _piece(self, table: Any, first: int, file: File) -> Piece:
        constant = _partition(file.fragment)
        rows = table.num_rows

        def column(name: str) -> Any:
            return constant[name] if file.kinds[name] == "partition" else table.column(name)

        X = np.empty((rows, len(self.names)))
        for j, name in enumerate(self.names):
            X[:, j] = _numbers(column(name))
        weight = None if self.weight is None else np.broadcast_to(_numbers(column(self.weight)), rows)
        y = 0 if self.target is None else column(self.target)
        labels = _labels(y) if hasattr(y, "type") else np.full(rows, y)
        return Piece(np.arange(first, first + rows), X, labels, weight, file.name)


def _pyarrow() -> Any:
    try:
        import pyarrow.dataset
    except ImportError as error:
        raise BadOption(
            "Parquet and Arrow files are read with pyarrow, which is not installed: pip install 'cavity[arrow]'."
        ) from error
    return pyarrow


def dataset(data: Any) -> Any:
    """A dataset of pyarrow: files by path, tables and datasets as they are."""
    ds = _pyarrow().dataset
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
    files = sorted(str(p) for p in found if p.suffix in FORMATS)
    kinds = {FORMATS[Path(f).suffix] for f in files}
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


def _features(
    schema: Any, target: Any, weight: str | None, features: Sequence[str] | None
) -> tuple[str, ...]:
    known = ", ".join(map(repr, schema.names))
    if target is None and features is None:
        raise BadOption(f"say which column holds the labels: target= one of {known}.")
    for argument, name in (("target", target), ("weight", weight)):
        if name is not None and name not in schema.names:
            raise BadInput(f"{argument}={name!r} is not among the columns: {known}.")
    if features is not None:
        return tuple(features)
    names = tuple(n for n in schema.names if n not in (target, weight))
    if not names:
        raise BadInput(f"there is no column besides {known}: nothing to learn from.")
    return names


def _refuse_types(schema: Any, names: tuple[str, ...], file: str) -> None:
    types = _pyarrow().types
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    bad = [f for f in schema if f.name in names and not any(is_kind(f.type) for is_kind in numeric)]
    if bad:
        named = ", ".join(f"{f.name!r} ({f.type})" for f in bad)
        raise BadInput(
            f"column{'s' if len(bad) > 1 else ''} {named} of {file}: categories, dates or text, not numbers; encode before the "
            "files are written, for example with a ColumnTransformer of a OneHotEncoder, or leave them out."
        )


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
    keys: dict[str, Any] = _pyarrow().dataset.get_partition_keys(fragment.partition_expression)
    return keys


def _numbers(column: Any) -> Array:
    """Float64, NaN where a value is missing."""
    if not hasattr(column, "cast"):
        return np.asarray(column, dtype=np.float64)
    values: Array = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return values


def _labels(column: Any) -> NDArray[Any]:
    """Labels as NumPy has them; text by way of its few different values."""
    types = _pyarrow().types
    if column.null_count:
        return np.array(column.to_pylist(), dtype=object)
    if types.is_dictionary(column.type) or not (
        types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type)
    ):
        coded = column if types.is_dictionary(column.type) else column.dictionary_encode()
        values = np.array(coded.dictionary.to_pylist())
        return np.asarray(values[coded.indices.to_numpy(zero_copy_only=False)])
    labels: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return labels
