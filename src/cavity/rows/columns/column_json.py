"""A preparation as JSON: what is stored of each column, and checks of what is read back."""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from cavity.errors import BadFile
from cavity.rows.columns.cells import STYLES
from cavity.rows.columns.column_kinds import Category, Column, Date, Number, Unchanged
from cavity.rows.columns.dates import MAX_DAYS, ORDERS, PARTS
from cavity.rows.columns.text_kind import Text

KINDS: dict[str, Any] = {
    "number": Number,
    "category": Category,
    "text": Text,
    "date": Date,
    "plain": Unchanged,
}


def store_column(column: Column) -> dict[str, Any]:
    kind = next(name for name, kind in KINDS.items() if type(column) is kind)
    usual: dict[str, Any] = column._field_defaults
    told = {name: v for name, v in column._asdict().items() if name not in usual or v != usual[name]}
    return {"kind": kind, **told}


def read_column(value: dict[str, Any]) -> Column:
    """Return a column. Damage raises KeyError, TypeError or ValueError; what no version reads any more, BadFile."""
    if value["kind"] == "group" or value.get("values"):
        raise BadFile(
            f"column {value['name']!r} names groups of rows, which cavity 0.3 encoded by their classes: load the model with "
            "cavity 0.3 (pip install 'cavity<0.4'), or fit again, the column as a category."
        )
    column: Column = read_field(value, KINDS[value["kind"]])
    if not _is_whole(column):
        raise ValueError(f"column {column.name!r} is damaged")
    return column


def read_field(value: Any, kind: Any) -> Any:
    """Return a value of JSON as the type that a named tuple declares, or as one. Damage raises TypeError or ValueError."""
    if get_origin(kind) is UnionType:
        return None if value is None else read_field(value, get_args(kind)[0])
    if get_origin(kind) is tuple:
        return tuple(read_field(part, get_args(kind)[0]) for part in value)
    if hasattr(kind, "_fields"):
        types = get_type_hints(kind)
        return kind(**{name: read_field(value[name], types[name]) for name in kind._fields if name in value})
    if kind is str and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    if kind is float and not np.isfinite(float(value)):
        raise ValueError(f"{value!r:.40} is not finite")
    return kind(value)


def _is_whole(column: Column) -> bool:
    if isinstance(column, Number):
        return column.scale > 0 and column.style in (None, *STYLES)
    if isinstance(column, Category):
        return len(set(column.levels)) == len(column.levels)
    if isinstance(column, Text):
        W = column.find_weights() if column.grams and column.examples else np.empty(0)
        return bool(W.size and np.isfinite(W).all())
    if isinstance(column, Date):
        units = np.array([*column.days, *column.years, column.low, column.high])
        known = set(column.parts) <= set(PARTS) and len(set(column.parts)) == len(column.parts) > 0
        fit = len(column.days) == len(column.years) == 2 and min(column.days[1], column.years[1]) > 0
        return known and fit and column.order in ORDERS and bool((np.abs(units) < MAX_DAYS).all())
    return True
