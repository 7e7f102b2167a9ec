"""Arrow datasets as a source of rows: Parquet and Arrow files, tables, streams."""

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

# Folders that also contain files of deleted rows, by a part of a file's name, with what
# to give instead.
LAKES = {
    "/_delta_log/": "deltalake.DeltaTable(folder).to_pyarrow_dataset()",
    ".metadata.json": (
        "load_table(name).scan().to_arrow_batch_reader(), from a catalog of pyiceberg"
    ),
}
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
}

IPC_STREAM = b"\xff\xff\xff\xff"  # the first bytes of an Arrow stream


class Arrow:
    """Rows of a dataset, numbered in file order.

    `target`, `weight` and `group` name the columns of labels, weights and groups. With
    `learn`, an extra pass learns how to prepare columns if some are mixed or have
    missing cells. With `model`, the columns of a fitted model are prepared as it does.
    Other columns must be numeric. With `labelled=False`, for predictions, every label
    is 0.
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
        self.encoder = prepare or _read_numbers(files.schema, inputs)
        self.names = self.encoder.names
        self.target: Any = target if labelled else None
        self.weight = weight
        self.group = group
        # counts of cells that differ from the training rows, by message
        self.notes = Counter[str]()
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
        fragments = Fragments(self._files, [self.target, self.group])
        for chunk in fragments.chunks(PIECE_ROWS):
            yield self._make_labels(chunk), read_group(chunk, self.group)

    def section(self, rows: range, size: int) -> Iterator[Piece]:
        """Read these rows in order; opens only row groups that contain some of them."""
        for chunk in self.fragments.chunks(size, rows):
            yield self._make_piece(chunk)

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
        row = int(wrong.argmax())
        what = "missing" if lacks[row] else "negative or not finite"
        raise BadInput(
            f"the weight (column {name!r}) is {what} in row {chunk.first + row + 1}: "
            "give every row a weight of 0 or more."
        )

    return value


def read_group(chunk: Chunk, name: str) -> NDArray[Any]:
    """Return the labels of a column of groups, as text."""
    column = to_text(get_column(chunk.table, name))
    if column.null_count:
        raise BadInput(
            f"the group (column {name!r}) is missing in {column.null_count} rows: give "
            "every row a group."
        )

    return np.array(column.to_pylist(), dtype=object)


def _check_named(schema: Any, target: Any, **others: Any) -> None:
    known = ", ".join(map(repr, schema.names))
    if target is None:
        raise BadOption(
            f"target= is missing: name the column of the labels, one of {known}."
        )

    for argument, name in {"target": target, **others}.items():
        is_known = isinstance(name, str) and name in schema.names
        if name is not None and not is_known:
            raise BadInput(
                f"{argument}={name!r:.60} is not a column; the columns are {known}."
            )

    if target == others["groups"]:
        raise BadInput(f"groups={target!r} is the target: name another column.")


def list_features(schema: Any, *others: str | None) -> tuple[str, ...]:
    names = tuple(
        name
        for name in schema.names
        if name not in others and not PANDAS_INDEX.fullmatch(name)
    )
    if not names:
        known = ", ".join(map(repr, schema.names))
        raise BadInput(f"the data have no features: the only columns are {known}.")

    return names


def _read_numbers(schema: Any, names: tuple[str, ...]) -> ColumnEncoder:
    for name in names:
        kind = schema.field(name).type
        if classify_type(kind) != "number":
            raise BadInput(
                f"column {name!r} ({kind}) is not numeric: encode it (e.g. with a "
                "OneHotEncoder), or remove it from the files."
            )

    return leave_unchanged(names)


def _find_columns(
    schema: Any, others: tuple[str, ...], model: Features
) -> tuple[str, ...]:
    """Return the columns with a model's features.

    A model without names takes all columns but target, weight and groups.
    """
    if model.preparation is not None:
        check_columns(model.preparation, schema.names)
        return others

    names = model.names or others
    absent = [repr(name) for name in names if name not in others]
    if absent:
        raise BadInput(
            f"the source lacks {', '.join(absent)}, which the model was fitted on; its "
            f"columns are {', '.join(map(repr, schema.names))}."
        )
    if len(names) != model.n:
        raise BadInput(
            f"X has {len(names)} features ({', '.join(map(repr, names))}), but "
            f"{model.owner} is expecting {model.n} features as input. The model was "
            "fitted on columns without names: give files with only these columns, in "
            "the same order."
        )

    return names


def _learn_preparation(
    dataset: Any, names: tuple[str, ...], target: Any
) -> ColumnEncoder | None:
    """Learn in one pass how to prepare mixed columns and missing cells.

    None: all columns are numeric and complete.
    """
    types = [dataset.schema.field(name).type for name in names]
    numeric = all(classify_type(kind) == "number" for kind in types)
    if numeric and not has_missing(dataset, names):
        return None

    from cavity.tables.columns.preparation import Preparation

    chunks = Fragments(dataset, [*names, target]).chunks(PIECE_ROWS)
    tables = (chunk.table for chunk in chunks)
    prepare = Preparation().fit_batches(
        (table.select(names), to_labels(table.column(target))) for table in tables
    )
    warn_unused(prepare)
    return prepare


def to_labels(column: Any) -> NDArray[Any]:
    """Convert a column of labels to NumPy; missing labels are None or NaN."""
    if classify_type(column.type) == "number" and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False))

    return np.array(column.to_pylist(), dtype=object if column.null_count else None)


def open_dataset(data: Any) -> Any:
    """Open a path, a table, a dataset or a stream as a pyarrow dataset.

    Reads streams and filtered datasets into memory.
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
            raise BadInput(
                f"a {type(data).__name__} is not a table: {error}. Give a pyarrow.Table "
                "or a dataset."
            ) from error

    path = os.fspath(data)
    place, found = list_files(data)
    for sign, advice in LAKES.items():
        if any(sign in name for name in found):
            raise BadInput(
                f"{path!r} is a table of Delta Lake or Iceberg, whose files also "
                f"contain deleted rows: give {advice}."
            )

    kind_of = {name: FORMATS.get(PurePosixPath(name).suffix.lower()) for name in found}
    files = [name for name, kind in kind_of.items() if kind is not None]
    kinds = {kind_of[name] for name in files}
    if len(kinds) != 1:
        what = "is not, and does not contain, a file that can be read in pieces"
        if kinds:
            what = "contains both Parquet and Arrow files"
        raise BadInput(
            f"{path!r} {what}; file names must end in {', '.join(FORMATS)}. For a CSV "
            "file, give a frame: table = pandas.read_csv(path), then "
            "fit(table.drop(columns=target), table[target]); or use the command line, "
            "cavity fit. For a .npy file, give numpy.load(path, mmap_mode='r')."
        )

    if len(files) == 1 and kinds == {"ipc"}:
        with explain_errors(repr(path), ERRORS):
            table = _read_ipc_stream(place.filesystem, files[0])
        if table is not None:
            return ds.dataset(table)

    read = partial(
        ds.dataset,
        files,
        filesystem=place.filesystem,
        format=kinds.pop(),
        partitioning="hive",
        partition_base_dir=place.path,
    )
    with explain_errors(repr(path), ERRORS):
        dataset = read()
        schema = _unify(dataset)
        if schema.equals(dataset.schema):
            return dataset

        return read(schema=schema)


def _read_ipc_stream(filesystem: Any, path: str) -> Any:
    """Read an Arrow stream into memory; None: it is an Arrow file, with an index."""
    ipc = import_pyarrow(".ipc")
    with filesystem.open_input_file(path) as file:
        if file.read(len(IPC_STREAM)) != IPC_STREAM:
            return None

        file.seek(0)
        return ipc.open_stream(file).read_all()


def _unify(dataset: Any) -> Any:
    """Return the columns of all files and their paths, with common types.

    A column without a common type becomes text.
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
            common = arrow.unify_schemas(known, promote_options="permissive")
            fields.append(common.field(name))
        except arrow.ArrowException:
            fields.append(arrow.field(name, arrow.string()))

    return arrow.schema(fields)
