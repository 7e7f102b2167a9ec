"""A preparation as JSON: what is stored of each column, and checks of what is read back."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.tabular.columns import Category, Column, Ignored, Number, Target, Unchanged

KIND_NAMES = {Number: "number", Category: "category", Unchanged: "plain"}


def store_column(column: Column) -> dict[str, Any]:
    """Return a column as JSON."""
    return {"kind": KIND_NAMES[type(column)], **column._asdict()}


def read_target(value: Any) -> Target | None:
    """Return the target, or None. Damage raises KeyError, TypeError or ValueError."""
    return None if value is None else Target(read_text(value["name"]), bool(value["whole"]))


def read_ignored(value: Any) -> Ignored:
    """Return an ignored column."""
    return Ignored(read_text(value["name"]), read_text(value["why"]), bool(value.get("informs", False)))


def read_column(value: dict[str, Any]) -> Column:
    """Return a column. Damage raises KeyError, TypeError or ValueError."""
    kind, name = value["kind"], read_text(value["name"])
    if kind == "number":
        mean, scale = float(value["mean"]), float(value["scale"])
        if not (np.isfinite(mean) and np.isfinite(scale) and scale > 0):
            raise ValueError(f"column {name!r} has mean {mean:g} and scale {scale:g}")
        return Number(name, mean, scale, bool(value["missing"]))
    if kind == "category":
        levels = tuple(read_text(level) for level in value["levels"])
        if len(set(levels)) < len(levels):
            raise ValueError(f"column {name!r} has a level twice")
        return Category(name, levels, bool(value["missing"]))
    if kind == "plain":
        return Unchanged(name)
    raise ValueError(f"a column of kind {kind!r:.40}")


def read_text(value: Any) -> str:
    """Return a string as it is. Anything else raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    return value
