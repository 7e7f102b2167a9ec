"""A preparation as JSON: what is stored of each column, and checks of what is read back."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from cavity.rows.columns.cells import STYLES
from cavity.rows.columns.column_kinds import (
    Category,
    Column,
    Date,
    Group,
    Ignored,
    Number,
    Target,
    Unchanged,
)
from cavity.rows.columns.dates import MAX_DAYS, ORDERS, PARTS
from cavity.rows.columns.text_kind import Text

KIND_NAMES = {
    Number: "number",
    Group: "group",
    Category: "category",
    Text: "text",
    Date: "date",
    Unchanged: "plain",
}


def store_column(column: Column) -> dict[str, Any]:
    return {"kind": KIND_NAMES[type(column)], **column._asdict()}


def read_target(value: Any) -> Target | None:
    """Return the target, or None. Damage raises KeyError, TypeError or ValueError."""
    if value is None:
        return None
    missing, number = int(value.get("missing", 0)), bool(value.get("number", False))
    return Target(read_text(value["name"]), bool(value["whole"]), missing, number)


def read_ignored(value: Any) -> Ignored:
    return Ignored(read_text(value["name"]), read_text(value["why"]), bool(value.get("informs", False)))


def read_column(value: dict[str, Any]) -> Column:
    """Return a column. Damage raises KeyError, TypeError or ValueError."""
    kind, name = value["kind"], read_text(value["name"])
    if kind in ("number", "group"):
        mean, scale = float(value["mean"]), float(value["scale"])
        if not (np.isfinite(mean) and np.isfinite(scale) and scale > 0):
            raise ValueError(f"column {name!r} has mean {mean:g} and scale {scale:g}")
        style = value.get("style")
        if style not in (None, *STYLES):
            raise ValueError(f"column {name!r} has numbers of style {style!r:.40}")
        low, high = (None if value.get(end) is None else float(value[end]) for end in ("low", "high"))
        if not np.isfinite([end for end in (low, high) if end is not None]).all():
            raise ValueError(f"column {name!r} has a range that is not finite")
        number = Number(name, mean, scale, bool(value["missing"]), style, low, high)
        return number if kind == "number" else _read_group(number, value)
    if kind == "date":
        return _read_date(name, value)
    if kind == "category":
        levels = tuple(read_text(level) for level in value["levels"])
        if len(set(levels)) < len(levels):
            raise ValueError(f"column {name!r} has a level twice")
        return Category(name, levels, bool(value["missing"]))
    if kind == "text":
        grams, examples = (tuple(map(read_text, value[key])) for key in ("grams", "examples"))
        text = Text(name, grams, read_text(value["weights"]), examples, bool(value["missing"]))
        if (
            not grams
            or not examples
            or not text.find_weights().size
            or not np.isfinite(text.find_weights()).all()
        ):
            raise ValueError(f"column {name!r} has damaged weights")
        return text
    if kind == "plain":
        return Unchanged(name)
    raise ValueError(f"a column of kind {kind!r:.40}")


def _read_group(number: Number, value: dict[str, Any]) -> Group:
    values = tuple(float(v) for v in value["values"])
    shares = tuple(tuple(float(s) for s in row) for row in value["shares"])
    classes = tuple(read_text(label) for label in value["classes"])
    ascending = all(a < b for a, b in pairwise(values))
    whole = bool(values) and len(shares) == len(values) and all(len(row) == len(classes) for row in shares)
    if not (ascending and whole and np.isfinite(shares).all() and np.isfinite(values).all()):
        raise ValueError(f"column {number.name!r} has damaged groups")
    return Group(*number[:5], values, shares, classes)


def _read_date(name: str, value: dict[str, Any]) -> Date:
    parts = tuple(read_text(part) for part in value["parts"])
    days, years = (tuple(map(float, value[key])) for key in ("days", "years"))
    low, high = float(value["low"]), float(value["high"])
    units = np.array([*days, *years, low, high])
    known = set(parts) <= set(PARTS) and len(set(parts)) == len(parts) > 0 and value["order"] in ORDERS
    if not known or len(units) != 6 or not (np.abs(units) < MAX_DAYS).all() or min(days[1], years[1]) <= 0:
        raise ValueError(f"column {name!r} has a damaged date")
    return Date(name, value["order"], parts, low, high, days, years, bool(value["missing"]))  # type: ignore[arg-type]


def read_text(value: Any) -> str:
    """Return a string as it is. Anything else raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value
