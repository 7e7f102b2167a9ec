"""Tables of any kind as Arrow tables; pyarrow is imported when it is needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput, missing_extra
from cavity.rows.containers import is_frame, is_missing, refuse_complex, refuse_foreign

PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # the name that pandas gives the index of a frame in a file


class Chunk(NamedTuple):
    """Rows of some columns as an Arrow table."""

    table: Any  # pyarrow.Table
    first: int  # number of the first row, in file order
    where: str  # the file


def import_pyarrow(part: str = "") -> Any:
    """Import pyarrow, or a part of it such as ".dataset"; the error says how to install it."""
    try:
        return import_module("pyarrow" + part)
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error


def release_memory() -> None:
    """Return unused memory of Arrow's pool to the system, so that other libraries can use it."""
    import_pyarrow().default_memory_pool().release_unused()


def get_column(table: Any, name: str) -> Any:
    """Return a column by name as one array, with dictionaries decoded."""
    column = table.column(name)
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    types = import_pyarrow().types
    if types.is_dictionary(column.type):
        values = column.dictionary
        if types.is_string_view(values.type):  # polars; Arrow cannot take from views
            values = values.cast("string")
        column = values.take(column.indices)
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def classify_type(kind: Any) -> str:
    """Classify an Arrow type as number, text, date, duration, nothing or other."""
    types = import_pyarrow().types
    if types.is_dictionary(kind):
        return "text"
    tests = {
        "nothing": (types.is_null,),
        "number": (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "duration": (types.is_duration,),
        "date": (types.is_temporal,),
    }
    return next((name for name, each in tests.items() if any(test(kind) for test in each)), "other")


def to_chunk(data: Any, names: Sequence[str] | None = None) -> Chunk:
    """Convert a table of any kind to a chunk; `names` are those of an array's columns."""
    if isinstance(data, Chunk):
        return data
    arrow = import_pyarrow()
    if not is_frame(data) and (isinstance(data, list | tuple) or hasattr(data, "__array__")):
        data = data if isinstance(data, np.ndarray) else to_object_array(data)
    try:
        if isinstance(data, arrow.RecordBatch):
            data = arrow.Table.from_batches([data])
        refuse_foreign(data)
        if isinstance(data, np.ndarray):
            data = _by_name(data, names)
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


def to_object_array(X: Any) -> NDArray[Any]:
    try:
        return np.array(X, dtype=object)
    except ValueError:  # ragged: scikit-learn's message is about that
        return np.empty(0)


def _by_name(array: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns of an array by name: x0, x1, ... unless names are given."""
    if array.ndim != 2:
        few = "" if names is None else f" with the columns {', '.join(map(repr, names[:8]))}"
        raise BadInput(f"the data are not a table with named columns: give a data frame{few}.")
    names = [f"x{j}" for j in range(array.shape[1])] if names is None else names
    if len(names) != array.shape[1]:
        raise BadInput(
            f"X has {array.shape[1]} features, but the training rows had {len(names)} columns. Expecting {len(names)} features, "
            "those columns in their order as they are, not prepared; or give a data frame."
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
            refuse_complex(name)
        return arrow.array([None if is_missing(v) else str(v) for v in values])
