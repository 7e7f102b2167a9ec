"""Tables of other libraries as Arrow tables: data frames, record batches, dicts of columns, arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from cavity.errors import BadInput
from cavity.rows.arrow_tables import Chunk, import_pyarrow


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


def is_arrow(X: Any) -> bool:
    """Return whether X is a table of pyarrow, without loading pyarrow."""
    return type(X).__module__.partition(".")[0] == "pyarrow"


def list_columns(X: Any) -> list[Any]:
    """Return the names of a frame's columns; none of other data."""
    return list(X.column_names if is_arrow(X) else getattr(X, "columns", ()))


def refuse_foreign(X: Any) -> None:
    """Refuse a frame with two columns of one name, and complex numbers in a frame or an array."""
    if isinstance(X, np.ndarray):
        if X.dtype.kind == "c":
            parts = np.atleast_2d(X).imag.any(0)
            _refuse_complex(int(parts.argmax()))
        return
    names = list_columns(X)
    twice = next((name for name, count in Counter(names).items() if name != "" and count > 1), None)
    if twice is not None:
        raise BadInput(f"two columns have the name {twice!r}: rename one of them.")
    for name in () if is_arrow(X) else names:
        if getattr(getattr(X[name], "dtype", None), "kind", "") == "c":
            _refuse_complex(name)


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
        missing = [v is None or v != v for v in values]
        return arrow.array([None if lacks else str(v) for v, lacks in zip(values, missing, strict=True)])
