"""Frames with mixed columns: learn how to prepare them, and prepare new rows alike."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput
from cavity.rows.batches.source import Array, refuse_masked
from cavity.rows.columns.cells import classify_type
from cavity.rows.columns.column_kinds import MEAN_IS_USED, EncodingContext
from cavity.rows.columns.conversion import is_arrow, list_columns
from cavity.rows.columns.encoder import ColumnEncoder
from cavity.rows.columns.row_numbers import ROW_NUMBER, RowNumbers

MAX_NAMES = 8  # columns that a warning names


@dataclass(frozen=True)
class Prepared:
    """Rows that a preparation has already encoded as features. `preparation` is needed in `fit` only."""

    X: Array  # [N D]
    preparation: ColumnEncoder | None = None


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame or an Arrow table: it has named columns."""
    return hasattr(X, "columns") and hasattr(X, "shape")


def find_mixed_columns(X: Any) -> list[Any]:
    """Return the names of a frame's columns that are not numbers."""
    if hasattr(X, "schema") and hasattr(X, "column_names"):  # pyarrow
        return [f.name for f in X.schema if classify_type(f.type) != "number"]
    columns = list(X.columns)
    if len(set(map(str, columns))) < len(columns):  # scikit-learn's message is about the names
        return []
    return [name for name in columns if _is_mixed(X[name])]


def find_nested_columns(X: Any) -> list[Any]:
    """Return the names of a frame's columns with lists, dicts or arrays in their cells."""
    return [] if is_arrow(X) else [name for name in list_columns(X) if _is_nested(X[name])]


def _is_nested(column: Any) -> bool:
    kind = str(getattr(column, "dtype", "")).lower()
    if kind == "object":
        return any(isinstance(cell, list | tuple | dict | set | np.ndarray) for cell in column)
    return kind.startswith(("list", "array", "struct"))


def has_row_numbers(X: Any) -> bool:
    """Return whether a frame of numbers has a column of row numbers, and others beside it."""
    names = list_columns(X)
    named = [name for name in names if ROW_NUMBER.fullmatch(str(name))]
    return 0 < len(named) < len(names) == len(set(map(str, names))) and any(_counts_rows(X[n]) for n in named)


def _counts_rows(column: Any) -> bool:
    found = RowNumbers()
    try:
        found.add(np.asarray(column, dtype=np.float64))
    except (TypeError, ValueError):  # missing or nested cells
        return False
    return found.decide()


def learn_preparation(X: Any) -> tuple[Array, ColumnEncoder]:
    """Learn how to prepare a frame; return its features and the preparation."""
    from cavity.rows.columns.preparation import Preparation

    prepare = Preparation().fit(X)
    warn_unused(prepare)
    return prepare.encode(X), prepare


def apply_preparation(X: Any, prepare: ColumnEncoder, owner: str) -> Array:
    """Encode new rows as features; one warning counts what the training rows did not have."""
    refuse_masked(X, "X")
    if not is_frame(X) and not isinstance(X, dict):
        X = _to_array(X, prepare, owner)
    notes: Counter[str] = Counter()
    chunk = prepare.to_chunk(X)
    rows = prepare.encode(chunk, notes)
    prepare.note_new_columns(chunk.table.column_names, len(rows), notes)
    if not len(rows):
        raise BadInput("X has 0 sample(s) while a minimum of 1 is required: check how rows were selected.")
    warn_notes(notes)
    return rows


def fill_missing(rows: Array, names: Sequence[str], center: Callable[[], Array]) -> Array:
    """Replace missing cells by the centres of their columns, with one warning."""
    missing, notes = np.isnan(rows), Counter[str]()
    for j in map(int, np.flatnonzero(missing.any(0))):
        EncodingContext(0, "ignore", notes).note_missing(names[j], int(missing[:, j].sum()), MEAN_IS_USED)
    warn_notes(notes)
    return np.where(missing, center(), rows) if notes else rows


def warn_notes(notes: Counter[str]) -> None:
    """Warn once of all cells that differ from the training rows."""
    if notes:
        found = "; ".join(f"{note} ({count} cells)" for note, count in notes.items())
        warnings.warn(f"X differs from the training rows: {found}.", UserWarning, stacklevel=2)


def warn_unused(prepare: ColumnEncoder) -> None:
    """Warn once of the columns that a fit does not use, except those without information."""
    unused = [c for c in prepare.ignored_ if c.informs]
    if unused:
        named = ", ".join(f"{c.name!r} ({c.why})" for c in unused[:MAX_NAMES])
        more = f" and {len(unused) - MAX_NAMES} more columns" if len(unused) > MAX_NAMES else ""
        warnings.warn(f"not used as features: {named}{more}.", UserWarning, stacklevel=2)


def _to_array(X: Any, prepare: ColumnEncoder, owner: str) -> NDArray[Any]:
    """Return rows without names as an array: the columns of the training rows, in their order."""
    try:
        array = np.asarray(X, dtype=None if hasattr(X, "dtype") else object)
    except ValueError:
        array = np.empty(0)
    if array.ndim != 2:
        raise BadInput(f"X is not a table: give a data frame with the columns {_list_names(prepare.inputs)}.")
    if array.shape[1] != prepare.n_features_in_:
        raise BadInput(
            f"X has {array.shape[1]} features, but {owner} is expecting {prepare.n_features_in_} features as input: the columns "
            "of the training rows as they are, not prepared. Give a data frame."
        )
    warnings.warn(
        f"X does not have valid feature names, but {owner} was fitted with feature names", stacklevel=2
    )
    return array


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:MAX_NAMES])) + (", ..." if len(names) > MAX_NAMES else "")


def _is_mixed(column: Any) -> bool:
    kind = str(getattr(column, "dtype", "")).lower()
    if any(word in kind for word in ("categor", "enum", "str", "utf8", "date", "time", "duration")):
        return True
    return kind == "object" and not all(map(is_number, column))


def is_missing(value: Any) -> bool:
    """Return whether a cell is missing: None, NA or NaN."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def is_number(value: Any) -> bool:
    """Return whether a cell is a number, the text of one, or missing; dates are not."""
    if hasattr(value, "isoformat") or isinstance(value, np.datetime64 | np.timedelta64):
        return False
    if is_missing(value) or not np.isscalar(value):
        return True  # nested cells are for scikit-learn to refuse
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
