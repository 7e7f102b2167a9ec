"""Results as frames of pandas or polars, and as tables in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from cavity.common.text_tables import format_grid
from cavity.errors import MissingExtra

MOST_LINES = 20  # a longer table is shown in part


class Tabular:
    """A result with columns.

    Subclasses have `_columns`, and `_heading` for the text above the table.
    """

    __slots__ = ()

    def _columns(self) -> Mapping[str, Sequence[Any]]:
        raise NotImplementedError

    def _shown(self) -> Mapping[str, Sequence[Any]]:
        """Return the columns that `print` and notebooks show."""
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

        raise MissingExtra(
            "to_frame() needs pandas or polars: pip install pandas", name="pandas"
        )

    def __str__(self) -> str:
        head, lines, more = format_lines(self._shown())
        parts = [self._heading(), format_grid([head, *lines]), more]
        return "\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._heading())}</p>{make_html(self._shown())}"


def make_html(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return a table of HTML with the first lines of some columns."""
    names, lines, more = format_lines(columns)
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for line in lines:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in line)
        body += f"<tr>{cells}</tr>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    if more:
        table += f"<p>{more}</p>"
    return table


def format_lines(
    columns: Mapping[str, Sequence[Any]],
) -> tuple[list[str], list[list[str]], str]:
    """Return names, the first lines and the number of further lines, as text."""
    lines = list(zip(*columns.values(), strict=True))
    more = ""
    if len(lines) > MOST_LINES:
        more = f"and {len(lines) - MOST_LINES} more"
    cells = [list(map(format_cell, line)) for line in lines[:MOST_LINES]]
    return list(columns), cells, more


def format_cell(value: Any) -> str:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.4g}"

    return f"{value}"
