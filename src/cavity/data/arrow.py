"""Parquet and Arrow files as a source of rows: columns of numbers, or of anything with a preparation that makes numbers of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cavity.data.fragments import PANDAS_INDEX, Chunk, File, Fragments, Part, import_pyarrow, open_dataset
from cavity.data.source import Array, Piece, Visit, common, regroup
from cavity.errors import BadInput, BadOption


class Named(Protocol):
    """Something with a name."""

    @property
    def name(self) -> str: ...


class Preparing(Protocol):
    """What `Arrow` needs of a `cavity.Preparation`."""

    @property
    def target(self) -> Named | None: ...

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    def transform(self, data: Any) -> Array: ...

    def labels(self, data: Any) -> NDArray[Any]: ...


class Arrow:
    """The rows of a dataset, numbered in file order; `target` names the labels' column, `weight` that of the weights.

    Without `prepare` every other column, or each of `features`, must be of numbers; with it, its columns and its target are read
    and prepared. Not `labelled`: to predict, every label is 0.
    """

    numbered = True

    def __init__(
        self,
        data: Any,
        target: Any = None,
        weight: str | None = None,
        prepare: Preparing | None = None,
        *,
        features: Sequence[str] | None = None,
        labelled: bool = True,
    ) -> None:
        files = open_dataset(data)
        if prepare is not None and prepare.target is not None:
            target = prepare.target.name
        self.prepare, self.weight, self.target = prepare, weight, target if labelled else None
        if labelled:
            _check_named(files.schema, target, weight)
        if features is None:
            features = _others(files.schema, target, weight)
        self.names: tuple[str, ...] = tuple(features) if prepare is None else prepare.names
        inputs = features if prepare is None else prepare.inputs
        more = [name for name in (self.target, weight) if name is not None]
        self.fragments = Fragments(files, [*inputs, *more])
        for file in self.fragments.files if prepare is None else ():
            _refuse_types(file, self.names)

    @property
    def n_rows(self) -> int:
        return self.fragments.n_rows

    def pieces(self, size: int) -> Iterator[Piece]:
        return self.section(range(self.n_rows), size)

    def section(self, rows: range, size: int) -> Iterator[Piece]:
        """Only row groups that have some of these rows are opened."""
        yield from map(self._piece, self.fragments.chunks(size, rows))

    def scattered(self, size: int, rng: np.random.Generator) -> Iterator[Piece]:
        return (visit.piece for visit in self.visits(size, rng, range(self.n_rows)))

    def visits(self, size: int, rng: np.random.Generator, keep: range) -> Iterator[Visit]:
        """A part without a row in `keep` has its turns and is not opened."""
        return self.fragments.shuffled(rng, lambda part: self._turns(part, size, keep))

    def _turns(self, part: Part, size: int, keep: range) -> Iterator[Visit]:
        """A part cut at multiples of `size`, with the rows of each cut that are in `keep`."""
        end = part.first + part.rows
        cuts = [range(start, min(start + size, end)) for start in range(part.first, end, size)]
        counts = [len(common(cut, keep)) for cut in cuts]
        read = map(self._piece, self.fragments.read(part.within(keep), size))
        pieces = regroup(read, (n for n in counts if n))
        for cut, count in zip(cuts, counts, strict=True):
            yield Visit(np.arange(cut.start, cut.stop), next(pieces) if count else self._nothing())

    def _nothing(self) -> Piece:
        return Piece(np.empty(0, dtype=np.int64), np.empty((0, len(self.names))), np.empty(0), None)

    def _piece(self, chunk: Chunk) -> Piece:
        table, rows = chunk.table, chunk.table.num_rows
        weight = None if self.weight is None else numbers(table.column(self.weight))
        if self.prepare is None:
            X = np.empty((rows, len(self.names)))
            for j, name in enumerate(self.names):
                X[:, j] = numbers(table.column(name))
        else:
            X = self.prepare.transform(chunk)
        return Piece(np.arange(chunk.first, chunk.first + rows), X, self._labels(chunk), weight, chunk.where)

    def _labels(self, chunk: Chunk) -> NDArray[Any]:
        if self.target is None:
            return np.zeros(chunk.table.num_rows, dtype=np.int64)
        if self.prepare is None or self.prepare.target is None:
            return labels(chunk.table.column(self.target))
        return self.prepare.labels(chunk)


def _check_named(schema: Any, target: Any, weight: str | None) -> None:
    known = ", ".join(map(repr, schema.names))
    if target is None:
        raise BadOption(f"say which column holds the labels: target= one of {known}.")
    for argument, name in (("target", target), ("weight", weight)):
        if name is not None and name not in schema.names:
            raise BadInput(f"{argument}={name!r} is not among the columns: {known}.")


def _others(schema: Any, target: Any, weight: str | None) -> tuple[str, ...]:
    names = tuple(n for n in schema.names if n not in (target, weight) and not PANDAS_INDEX.fullmatch(n))
    if not names:
        known = ", ".join(map(repr, schema.names))
        raise BadInput(f"there is no column besides {known}: nothing to learn from.")
    return names


def _refuse_types(file: File, names: tuple[str, ...]) -> None:
    types = import_pyarrow().types
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    bad = [f for f in file.schema if f.name in names and not any(is_kind(f.type) for is_kind in numeric)]
    if bad:
        named = ", ".join(f"{f.name!r} ({f.type})" for f in bad)
        raise BadInput(
            f"column{'s' if len(bad) > 1 else ''} {named} of {file.name}: categories, dates or text, not numbers; encode before "
            "the files are written, for example with a ColumnTransformer of a OneHotEncoder, or leave them out."
        )


def numbers(column: Any) -> Array:
    """Float64, NaN where a value is missing."""
    values: Array = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return values


def labels(column: Any) -> NDArray[Any]:
    """Labels as NumPy has them; text by way of its few different values."""
    types = import_pyarrow().types
    if column.null_count:
        return np.array(column.to_pylist(), dtype=object)
    if types.is_integer(column.type) or types.is_floating(column.type) or types.is_boolean(column.type):
        plain: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return plain
    coded = _one(column if types.is_dictionary(column.type) else column.dictionary_encode())
    values = np.array(coded.dictionary.to_pylist())
    return np.asarray(values[coded.indices.to_numpy(zero_copy_only=False)])


def _one(column: Any) -> Any:
    """A chunked column as one array."""
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column
