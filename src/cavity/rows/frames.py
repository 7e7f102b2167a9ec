"""Rows that are encoded already, and warnings about the columns and cells of frames."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass

from cavity.rows.batches.source import Array
from cavity.rows.columns.encoder import ColumnEncoder

MAX_NAMES = 8  # columns that a warning names


@dataclass(frozen=True)
class Prepared:
    """Rows that a preparation has already encoded as features. `preparation` is needed in `fit` only."""

    X: Array  # [N D]
    preparation: ColumnEncoder | None = None


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
