"""Tables of other libraries (data frames, record batches, dicts of columns, arrays): what they hold, and as Arrow tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from cavity.errors import BadInput
from cavity.rows.arrow_tables import Chunk, import_pyarrow
from cavity.rows.columns.cells import classify_type
from cavity.rows.columns.row_numbers import ROW_NUMBER, are_row_numbers
from cavity.rows.labels import is_missing, refuse_masked

NESTED = (list, tuple, dict, set, np.ndarray)
MIXED = ("categor", "enum", "str", "utf8", "date", "time", "duration")  # in names of types


def to_chunk(data: Any, names: Sequence[str] | None = None) -> Chunk:
    """Convert a table of any kind to a chunk; `names` are those of an array's columns."""
    if isinstance(data, Chunk):
        return data
    arrow = import_pyarrow()
    try:
        if isinstance(data, arrow.RecordBatch):
            data = arrow.Table.from_batches([data])
        refuse_foreign(data)
        if isinstance(data, np.ndarray):
            data = _name_columns(data, names)
        if type(data).__module__.partition(".")[0] == "pandas":
            data = _from_pandas(data)
        table = data if isinstance(data, arrow.Table) else arrow.table(data)
    except OverflowError:
        raise BadInput(
            "a cell has a whole number of more than 19 digits: write it with a decimal point, or use other units."
        ) from None
    except BadInput:
        raise
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"the data are not a table with named columns ({error!s:.200}): give a data frame or a pyarrow table."
        ) from error
    return Chunk(table, 0, "")


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame or an Arrow table: it has named columns."""
    return hasattr(X, "columns") and hasattr(X, "shape")


def is_arrow(X: Any) -> bool:
    """Return whether X is a table of pyarrow, without loading pyarrow."""
    return type(X).__module__.partition(".")[0] == "pyarrow"


def list_columns(X: Any) -> list[Any]:
    """Return the names of a frame's columns; none of other data."""
    return list(X.column_names if is_arrow(X) else getattr(X, "columns", ()))


def refuse_foreign(X: Any) -> None:
    """Refuse masked cells, tables without rows or columns, two columns of one name, and complex numbers."""
    refuse_masked(X, "X")
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2 and 0 in shape:
        what = "sample" if shape[0] == 0 else "feature"
        raise BadInput(
            f"X has 0 {what}(s) (shape=({shape[0]}, {shape[1]})) while a minimum of 1 is required: "
            "check how rows and columns were selected."
        )
    if isinstance(X, np.ndarray):
        if X.dtype.kind == "c":
            _refuse_complex(int(np.atleast_2d(X).imag.any(0).argmax()))
        return
    names = list_columns(X)
    twice = next((name for name, count in Counter(names).items() if name != "" and count > 1), None)
    if twice is not None:
        raise BadInput(f"two columns have the name {twice!r}: rename one of them.")
    for name in () if is_arrow(X) else names:
        if getattr(getattr(X[name], "dtype", None), "kind", "") == "c":
            _refuse_complex(name)


def find_kinds(X: Any) -> dict[Any, str]:
    """Return the kind of each column of a frame: "number", "nested" (lists, dicts or arrays in its cells), or "mixed"."""
    if is_arrow(X):
        return {f.name: "number" if classify_type(f.type) == "number" else "mixed" for f in X.schema}
    return {name: _find_kind(X[name]) for name in list_columns(X)}


def _find_kind(column: Any) -> str:
    kind = str(getattr(column, "dtype", "")).lower()
    if kind == "object":
        if not all(map(is_number, column)):
            return "mixed"
        return "nested" if any(isinstance(cell, NESTED) for cell in column) else "number"
    if kind.startswith(("list", "array", "struct")):
        return "nested"
    return "mixed" if any(word in kind for word in MIXED) else "number"


def has_row_numbers(X: Any) -> bool:
    """Return whether a frame of numbers has a column of row numbers, and others beside it."""
    names = list_columns(X)
    named = [name for name in names if ROW_NUMBER.fullmatch(str(name))]
    return 0 < len(named) < len(names) == len(set(map(str, names))) and any(
        are_row_numbers(X[n]) for n in named
    )


def is_number(value: Any) -> bool:
    """Return whether a cell is a number, the text of one, missing, or nested; dates are not."""
    if hasattr(value, "isoformat") or isinstance(value, np.datetime64 | np.timedelta64):
        return False
    if is_missing(value) or not np.isscalar(value):
        return True  # nested cells have a message of their own
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _refuse_complex(name: Any) -> NoReturn:
    raise BadInput(
        f"Complex data not supported: column {name!r} has complex numbers; give their real and imaginary parts as two columns."
    )


def _name_columns(array: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns of an array by name: x0, x1, ... unless names are given."""
    if array.ndim != 2:
        raise BadInput(f"X has {array.ndim} dimensions: give rows and columns.")
    names = [f"x{j}" for j in range(array.shape[1])] if names is None else names
    if len(names) != array.shape[1]:
        raise BadInput(
            f"X has {array.shape[1]} features, but the training rows had {len(names)} columns: give the same columns in the same "
            "order, as they are and not prepared, or give a data frame."
        )
    return {name: _to_column(array[:, j], name) for j, name in enumerate(names)}


def _from_pandas(frame: Any) -> Any:
    """Convert a pandas frame; a column of objects of several types becomes text."""
    arrow = import_pyarrow()
    try:
        return arrow.Table.from_pandas(frame, preserve_index=False)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError):
        if not frame.columns.is_unique:
            raise
        columns = {str(name): frame[name] for name in frame.columns}
        return arrow.table(
            {n: _to_column(c, n) if c.dtype == object else arrow.array(c) for n, c in columns.items()}
        )


def _to_column(values: Any, name: str) -> Any:
    arrow = import_pyarrow()
    try:
        return arrow.array(values, from_pandas=True)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError):
        if any(isinstance(v, complex | np.complexfloating) for v in values):
            _refuse_complex(name)
        return arrow.array([None if is_missing(v) else str(v) for v in values])
