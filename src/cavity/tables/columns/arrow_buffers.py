"""Convert between Arrow and NumPy through their buffers.

pyarrow's own conversions import pandas, which takes half a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Flags, Floats
from cavity.tables.arrow_tables import import_pyarrow


def to_flags(column: Any) -> Flags:
    """Convert Arrow booleans to an array; missing cells are False."""
    return _read_numbers(column.cast("uint8"), np.bool_) & find_present(column)


def to_floats(column: Any) -> Floats:
    """Convert Arrow float64 to an array; missing cells are NaN."""
    return np.where(find_present(column), _read_numbers(column, np.float64), np.nan)


def to_places(column: Any) -> NDArray[np.int32]:
    """Convert Arrow int32, such as dictionary indices, to an array; missing cells are 0."""
    return np.where(find_present(column), _read_numbers(column, np.int32), 0)


def find_present(column: Any) -> Flags:
    return _read_numbers(column.is_valid().cast("uint8"), np.bool_)


def from_texts(values: Sequence[str]) -> Any:
    arrow = import_pyarrow()
    cells = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, cells)], dtype=np.int32)
    return arrow.StringArray.from_buffers(
        len(cells), arrow.py_buffer(ends), arrow.py_buffer(b"".join(cells))
    )


def from_array(values: NDArray[Any]) -> Any:
    arrow = import_pyarrow()
    if values.dtype.kind not in "biuf":
        return from_texts([str(value) for value in values.tolist()])
    if values.dtype.kind == "b":
        return from_array(values.astype(np.uint8)).cast("bool")

    kind = getattr(arrow, values.dtype.name)()
    buffer = arrow.py_buffer(np.ascontiguousarray(values))
    return arrow.Array.from_buffers(kind, len(values), [None, buffer])


def _read_numbers(column: Any, kind: Any) -> NDArray[Any]:
    buffer = column.buffers()[1]
    if not len(column) or buffer is None:
        return np.zeros(len(column), dtype=kind)

    return np.frombuffer(buffer, kind)[column.offset : column.offset + len(column)]
