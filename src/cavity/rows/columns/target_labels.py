"""Labels of a table: the cells of its target as classes or numbers, and which rows have one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput
from cavity.rows.arrow_tables import Chunk, get_column
from cavity.rows.columns.cells import parse_numbers, read_labels, read_targets
from cavity.rows.columns.column_kinds import Target


def read_label_values(chunk: Chunk, target: Target) -> NDArray[Any]:
    """Return labels as whole numbers or text, or as floats if the target is a number."""
    column = get_column(chunk.table, target.name)
    if target.number:
        return read_targets(column, target.name, chunk.first)[0]
    text = read_labels(column, target.name, chunk.first)
    if not target.whole:
        coded = text.dictionary_encode()
        values: NDArray[Any] = np.array(coded.dictionary.to_pylist(), dtype=str)
        return np.asarray(values[np.asarray(coded.indices)])
    try:
        value = parse_numbers(text)  # 2.0 is 2
        exact = (value % 1 == 0).all() and (np.abs(value) < 2**53).all()
        return value.astype(np.int64) if exact else np.asarray(text.cast("int64"))
    except ValueError as error:  # pyarrow's errors derive from it
        raise BadInput(
            f"column {target.name!r} has labels that are not whole numbers, as those of the training rows were ({error})."
        ) from error


def find_labelled_rows(chunk: Chunk, target: Target, strict: bool) -> NDArray[np.bool_]:
    """Return which rows have a label; if `strict`, a row without one raises BadInput."""
    column = get_column(chunk.table, target.name)
    if target.number:
        return ~read_targets(column, target.name, chunk.first, strict)[1]
    return ~np.asarray(read_labels(column, target.name, chunk.first, strict).is_null())
