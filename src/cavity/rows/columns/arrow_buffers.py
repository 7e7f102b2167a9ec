"""Between Arrow and NumPy by way of buffers and DLPack: pyarrow's own conversions import pandas, which takes half a second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.rows.arrow_tables import import_pyarrow
from cavity.rows.batches.source import Array


def to_flags(column: Any) -> NDArray[np.bool_]:
    """Return booleans of Arrow as an array; missing cells are False."""
    return _fill(column.cast("uint8"), np.uint8(0)).astype(bool)


def to_floats(column: Any) -> Array:
    """Return float64 of Arrow as an array; missing cells are NaN."""
    return _fill(column, np.float64(np.nan))


def to_places(column: Any) -> NDArray[np.int32]:
    """Return int32 of Arrow, such as the indices of a dictionary, as an array; missing cells are 0."""
    return _fill(column, np.int32(0))


def find_present(column: Any) -> NDArray[np.bool_]:
    return to_flags(column.is_valid())


def _fill(column: Any, value: Any) -> NDArray[Any]:
    """Return numbers as an array, with a value for missing cells; a scalar made by pyarrow would import pandas, too."""
    return np.array(np.from_dlpack(column.fill_null(from_array(np.array([value]))[0])))


def from_texts(values: Sequence[str]) -> Any:
    arrow, cells = import_pyarrow(), [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, cells)], dtype=np.int32)
    return arrow.StringArray.from_buffers(len(cells), arrow.py_buffer(ends), arrow.py_buffer(b"".join(cells)))


def from_array(values: NDArray[Any]) -> Any:
    arrow = import_pyarrow()
    if values.dtype.kind not in "biuf":
        return from_texts([str(value) for value in values.tolist()])
    if values.dtype.kind == "b":
        return from_array(values.astype(np.uint8)).cast("bool")
    buffer = arrow.py_buffer(np.ascontiguousarray(values))
    return arrow.Array.from_buffers(getattr(arrow, values.dtype.name)(), len(values), [None, buffer])
