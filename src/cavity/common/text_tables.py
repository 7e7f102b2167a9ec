"""Tables and lists as plain text."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

MOST_NAMES = 8


def format_grid(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Format lines of cells as aligned columns, those in `right` to the right."""
    columns = []
    for j, column in enumerate(zip(*lines, strict=True)):
        width = max(map(len, column))
        align = str.rjust if j in right else str.ljust
        columns.append([align(cell, width) for cell in column])

    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def format_pairs(rows: Sequence[tuple[str, str]], indent: int = 2) -> str:
    """Format pairs of texts as two aligned columns."""
    rows = [(" ".join(name.split()), " ".join(text.split())) for name, text in rows]
    width = min(40, max((len(name) for name, _ in rows), default=0))
    return "\n".join(f"{' ' * indent}{name:<{width}}  {text}" for name, text in rows)


def list_names(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Join names; long lists are cut, with the number of further names."""
    listed = ", ".join(names[:most])
    if len(names) > most:
        return f"{listed} and {len(names) - most} more"

    return listed


def name_column(name: str) -> str:
    """Return the name of a column for texts: the header of a table may lack it."""
    return name or "unnamed column"


def shorten(text: str, width: int) -> str:
    """Cut a text to a width, where East Asian characters take two places."""
    used = 0
    kept = ""
    for letter in text:
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > width:
            return kept[:-1] + "…"

        kept += letter

    return text


def format_label(label: Any) -> str:
    """Format a label as text.

    Whole numbers have no point, and booleans are in lower case, as in Arrow.
    """
    if hasattr(label, "item"):  # a scalar of NumPy
        label = label.item()
    if isinstance(label, bool):
        return str(label).lower()
    if isinstance(label, float) and label.is_integer():
        return str(int(label))

    return str(label)
