"""Tables of other libraries as Arrow tables: data frames, record batches, dicts of columns, arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cavity.errors import BadInput
from cavity.rows.arrow_tables import Chunk, import_pyarrow


def to_chunk(data: Any, names: Sequence[str] | None = None) -> Chunk:
    """Convert a table of any kind to a chunk; `names` are those of an array's columns."""
    if isinstance(data, Chunk):
        return data
    arrow = import_pyarrow()
    try:
        if isinstance(data, np.ndarray):
            data = _name_columns(data, names)
        if isinstance(data, arrow.RecordBatch):
            data = arrow.Table.from_batches([data])
        if type(data).__module__.partition(".")[0] == "pandas":
            data = _from_pandas(data)
        table = data if isinstance(data, arrow.Table) else arrow.table(data)
    except OverflowError:
        raise BadInput(
            "a cell has a whole number of more than 19 digits: write it with a decimal point, or use other units."
        ) from None
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"the data are not a table with named columns ({error!s:.200}): give a data frame or a pyarrow table."
        ) from error
    return Chunk(table, 0, "")


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
    return {name: _to_column(array[:, j]) for j, name in enumerate(names)}


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
            {n: _to_column(c) if c.dtype == object else arrow.array(c) for n, c in columns.items()}
        )


def _to_column(values: Any) -> Any:
    arrow = import_pyarrow()
    try:
        return arrow.array(values, from_pandas=True)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError):
        missing = [v is None or v != v for v in values]
        return arrow.array([None if lacks else str(v) for v, lacks in zip(values, missing, strict=True)])
