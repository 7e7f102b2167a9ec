"""Datasets as a source of rows: a Parquet or Arrow file, a folder of them, a dataset,
table or stream of Arrow.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Floats
from cavity.errors import BadInput, BadOption
from cavity.tables.arrow_tables import (
    Chunk,
    classify_type,
    get_column,
    import_pyarrow,
    is_stream,
    read_stream,
)
from cavity.tables.columns.cells import to_numbers, to_text
from cavity.tables.columns.encoder import (
    ColumnEncoder,
    check_columns,
    leave_unchanged,
    note_new_columns,
)
from cavity.tables.columns.row_numbers import PANDAS_INDEX
from cavity.tables.files.fragments import ERRORS, Fragments, has_missing
from cavity.tables.files.stores import list_files
from cavity.tables.files.text_files import explain_errors
from cavity.tables.pieces import PIECE_ROWS, Piece
from cavity.tables.validation import Features, warn_unused

# formats whose folders also have files of deleted rows, by a part of a file's name, and
# what to give instead
LAKES = {
    "/_delta_log/": "deltalake.DeltaTable(folder).to_pyarrow_dataset()",
    ".metadata.json": "load_table(name).scan().to_arrow_batch_reader(), from a catalog "
    "of pyiceberg",
}
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}


class Arrow:
    """Rows of a dataset, numbered in file order.

    `target`, `weight` and `group` are the columns of labels, weights and groups.
    Columns are prepared with `learn` as one pass learns, if some are mixed or have
    missing cells. Else they must be numeric; `model`: those of a fitted model, prepared
    as it does. With `labelled=False`, as for prediction, every label is 0.
    """

    def __init__(
        self,
        data: Any,
        target: Any = None,
        weight: str | None = None,
        group: Any = None,
        *,
        learn: bool = False,
        model: Features | None = None,
        labelled: bool = True,
    ) -> None:
        files = open_dataset(data)
        # cells that differ from the training rows, by message
        self.notes: Counter[str] = Counter()
        prepare = None if model is None else model.preparation
        if prepare is not None and prepare.target_ is not None:
            target = prepare.target_.name
        if labelled:
            _check_named(files.schema, target, weight=weight, groups=group)
        inputs = others = list_features(files.schema, target, weight, group)
        if learn:
            prepare = _learn_preparation(files, others, target)
        elif model is not None:
            inputs = _find_columns(files.schema, others, model)
        self.prepare = prepare
        self.weight = weight
        self.target: Any = target if labelled else None
        self.encoder = prepare or _read_numbers(files.schema, inputs)
        self.names = self.encoder.names
        self.group = group
        self._files = files
        more = [name for name in (self.target, weight) if name is not None]
        self.fragments = Fragments(files, [*self.encoder.inputs, *more])
        if prepare is not None and model is not None:
            note_new_columns(prepare, others, self.n_rows, self.notes)

    @property
    def n_rows(self) -> int:
        return self.fragments.n_rows

    def pieces(self, size: int) -> Iterator[Piece]:
        return self.section(range(self.n_rows), size)

    def read_groups(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for chunk in Fragments(self._files, [self.target, self.group]).chunks(
            PIECE_ROWS
        ):
            yield self._make_labels(chunk), read_group(chunk, self.group)

    def section(self, rows: range, size: int) -> Iterator[Piece]:
        """Read these rows in order; opens only row groups that contain some of them."""
        yield from map(self._make_piece, self.fragments.chunks(size, rows))

    def _make_piece(self, chunk: Chunk) -> Piece:
        index = np.arange(chunk.first, chunk.first + chunk.table.num_rows)
        with explain_errors(chunk.where, ERRORS):
            weight = None
            if self.weight is not None:
                weight = read_weights(chunk, self.weight)
            X = self.encoder.encode(chunk, self.notes)
            return Piece(index, X, self._make_labels(chunk), weight, chunk.where)

    def _make_labels(self, chunk: Chunk) -> NDArray[Any]:
        if self.target is None:
            return np.zeros(chunk.table.num_rows, dtype=np.int64)
        if self.prepare is None or self.prepare.target_ is None:
            return to_labels(chunk.table.column(self.target))
        return self.prepare.labels(chunk)


def read_weights(chunk: Chunk, name: str) -> Floats:
    value, lacks = to_numbers(get_column(chunk.table, name), name, chunk.first)
    wrong = lacks | ~(value >= 0) | ~np.isfinite(value)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        what = "missing" if lacks[row] else "negative or not finite"
        raise BadInput(
            f"the weight (column {name!r}) is {what} in row {chunk.first + row + 1}: "
            f"give one weight per row, at least 0."
        )
    return value


def read_group(chunk: Chunk, name: str) -> NDArray[Any]:
    """Return the labels of a column of groups, as text."""
    column = to_text(get_column(chunk.table, name))
    if column.null_count:
        raise BadInput(
            f"the group (column {name!r}) is missing in {column.null_count} rows: give "
            f"each one."
        )
    return np.array(column.to_pylist(), dtype=object)


def _check_named(schema: Any, target: Any, **others: Any) -> None:
    known = ", ".join(map(repr, schema.names))
    if target is None:
        raise BadOption(
            f"target= is missing: name the column of the labels, one of {known}."
        )
    for argument, name in {"target": target, **others}.items():
        if name is not None and (not isinstance(name, str) or name not in schema.names):
            raise BadInput(
                f"{argument}={name!r:.60} is not a column; the columns are {known}."
            )
    if target == others["groups"]:
        raise BadInput(f"groups={target!r} is the target: name another column.")


def list_features(schema: Any, *others: str | None) -> tuple[str, ...]:
    names = tuple(
        n for n in schema.names if n not in others and not PANDAS_INDEX.fullmatch(n)
    )
    if not names:
        known = ", ".join(map(repr, schema.names))
        raise BadInput(f"the data have no features: the only columns are {known}.")
    return names


def _read_numbers(schema: Any, names: tuple[str, ...]) -> ColumnEncoder:
    odd = next(
        (f for f in map(schema.field, names) if classify_type(f.type) != "number"), None
    )
    if odd is not None:
        raise BadInput(
            f"column {odd.name!r} ({odd.type}) is not numeric: encode it (e.g. with a "
            f"OneHotEncoder) or remove it in the files."
        )
    return leave_unchanged(names)


def _find_columns(
    schema: Any, others: tuple[str, ...], model: Features
) -> tuple[str, ...]:
    """Return the columns with a model's features: by name if it knows names, else all
    that are neither target nor weight.
    """
    if model.preparation is not None:
        check_columns(model.preparation, schema.names)
        return others
    if model.names is None:
        names = others
    else:
        names = model.names
    absent = [name for name in names if name not in others]
    if absent:
        raise BadInput(
            f"the source lacks {', '.join(map(repr, absent))}, which the model was "
            f"fitted on; its columns are "
            f"{', '.join(map(repr, schema.names))}."
        )
    if len(names) != model.n:
        raise BadInput(
            f"X has {len(names)} features ({', '.join(map(repr, names))}), but "
            f"{model.owner} is expecting {model.n} features "
            "as input. The model was fitted on columns without names: give files that "
            "have only these columns, in that order."
        )
    return names


def _learn_preparation(
    dataset: Any, names: tuple[str, ...], target: Any
) -> ColumnEncoder | None:
    """Learn in one pass how to prepare columns that are mixed or have missing cells;
    None if there are none.
    """
    mixed = any(
        classify_type(dataset.schema.field(name).type) != "number" for name in names
    )
    if not (mixed or has_missing(dataset, names)):
        return None
    from cavity.tables.columns.preparation import Preparation

    tables = (
        chunk.table for chunk in Fragments(dataset, [*names, target]).chunks(PIECE_ROWS)
    )
    batches = (
        (table.select(names), to_labels(table.column(target))) for table in tables
    )
    prepare = Preparation().fit_batches(batches)
    warn_unused(prepare)
    return prepare


def to_labels(column: Any) -> NDArray[Any]:
    """Convert a column of labels to NumPy; missing ones are None or NaN."""
    if classify_type(column.type) == "number" and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.array(column.to_pylist(), dtype=object if column.null_count else None)


def open_dataset(data: Any) -> Any:
    """Open a path, a table, a dataset or a stream as a pyarrow dataset; reads streams
    and filtered datasets into memory.
    """
    ds = import_pyarrow(".dataset")
    if isinstance(data, ds.Dataset):
        try:
            data.get_fragments()
        except ValueError:  # it is filtered
            return ds.dataset(data.to_table())
        return data
    if not isinstance(data, str | os.PathLike):
        try:
            return ds.dataset(read_stream(data) if is_stream(data) else data)
        except (TypeError, ValueError) as error:
            said = f"a {type(data).__name__} is not a table: {error}"
            raise BadInput(f"{said}. Give a pyarrow.Table or a dataset.") from error
    path = os.fspath(data)
    ((filesystem, base), found) = list_files(data)
    lake = next(
        (
            advice
            for sign, advice in LAKES.items()
            if any(sign in name for name in found)
        ),
        None,
    )
    if lake is not None:
        said = f"{path!r} is a table of Delta Lake or Iceberg, whose files also have deleted rows"
        raise BadInput(f"{said}: give {lake}.")
    kind_of = {name: FORMATS.get(PurePosixPath(name).suffix.lower()) for name in found}
    kinds = {kind for kind in kind_of.values() if kind is not None}
    if len(kinds) != 1:
        none = "is not, and does not contain, a file that can be read in pieces"
        what = "contains both Parquet and Arrow files" if kinds else none
        raise BadInput(
            f"{path!r} {what}; file names must end in {', '.join(FORMATS)}. Of a CSV "
            f"file, "
            "give a frame: table = pandas.read_csv(path), then "
            "fit(table.drop(columns=target), table[target]); or use the command "
            "line, cavity fit. Of a .npy file, give numpy.load(path, mmap_mode='r')."
        )
    files = [name for name in found if kind_of[name]]
    folders = {"partitioning": "hive", "partition_base_dir": base}
    read = partial(
        ds.dataset, files, filesystem=filesystem, format=kinds.pop(), **folders
    )
    with explain_errors(repr(path), ERRORS):
        dataset = read()
        schema = _unify(dataset)
        if schema.equals(dataset.schema):
            return dataset
        return read(schema=schema)


def _unify(dataset: Any) -> Any:
    """Return the columns of all files, and of their paths, with the types that they
    have in common: text if there is none.
    """
    arrow = import_pyarrow()
    parts = dict[str, list[Any]]()
    for fragment in dataset.get_fragments():
        with explain_errors(fragment.path, ERRORS):
            for field in fragment.physical_schema:
                parts.setdefault(field.name, []).append(arrow.schema([field]))
    fields = []
    for name in dict.fromkeys([*dataset.schema.names, *parts]):
        known = parts.get(name) or [arrow.schema([dataset.schema.field(name)])]
        try:
            fields.append(
                arrow.unify_schemas(known, promote_options="permissive").field(name)
            )
        except arrow.ArrowException:
            fields.append(arrow.field(name, arrow.string()))
    return arrow.schema(fields)
