"""Tables and lists as plain text."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from typing import Any

MOST_NAMES = 8


def format_grid(lines: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Format lines of cells as aligned columns; `right`: the columns that are aligned
    to the right.
    """
    columns = []
    for j, column in enumerate(zip(*lines, strict=True)):
        width = max(map(len, column))
        columns.append(
            [cell.rjust(width) if j in right else cell.ljust(width) for cell in column]
        )
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def format_pairs(rows: Sequence[tuple[str, str]], indent: int = 2) -> str:
    """Format pairs of texts as two aligned columns."""
    rows = [(" ".join(name.split()), " ".join(text.split())) for name, text in rows]
    width = min(40, max((len(name) for name, _ in rows), default=0))
    return "\n".join(f"{' ' * indent}{name:<{width}}  {text}" for name, text in rows)


def list_names(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """Join names; of many, the first ones."""
    return ", ".join(names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )


def name_column(name: str) -> str:
    """Return what texts call a column: the header of a table may have no name for it."""
    return name or "unnamed column"


def shorten(text: str, width: int) -> str:
    """Cut a text to a width in half-width characters; those of East Asian scripts take
    two.
    """
    used = 0
    kept = ""
    for letter in text:
        used += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > width:
            return kept[:-1] + "…"
        kept += letter
    return text


def format_label(label: Any) -> str:
    """Format a label as text: whole numbers without a point, booleans in lower case as
    in Arrow.
    """
    # of NumPy
    if hasattr(label, "item"):
        value = label.item()
    else:
        value = label
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
