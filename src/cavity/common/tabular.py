"""Results that people go on with: a frame of pandas or polars, and a table in a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from cavity.errors import MissingExtra

MOST_LINES = 20  # of a table in a notebook


class Tabular:
    """A result with columns. Subclasses have `_columns`, and `_heading` for the text above the table in a notebook."""

    __slots__ = ()

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        raise NotImplementedError

    def _shown(self) -> Mapping[str, Sequence[Any]]:
        """Return the columns that a notebook shows."""
        return self._columns()

    def _heading(self) -> str:
        return ""

    def to_frame(self) -> Any:
        """Return the result as a frame.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            A frame of pandas if it is installed, otherwise of polars.
        """
        for name in ("pandas", "polars"):
            try:
                return import_module(name).DataFrame(dict(self._columns()))
            except ModuleNotFoundError as missing:
                if missing.name != name:
                    raise
        raise MissingExtra("to_frame() needs pandas or polars: pip install pandas", name="pandas")

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._heading())}</p>{make_html(self._shown())}"


def make_html(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return a table of HTML with the first lines of some columns."""
    lines = list(zip(*columns.values(), strict=True))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(format_cell(value))}</td>' for value in line)}</tr>"
        for line in lines[:MOST_LINES]
    )
    more = f"<p>and {len(lines) - MOST_LINES} more</p>" if len(lines) > MOST_LINES else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def format_cell(value: Any) -> str:
    value = value.item() if hasattr(value, "item") else value
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"
