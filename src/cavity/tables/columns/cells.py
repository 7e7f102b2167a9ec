"""Cells of a column as numbers or text: patterns of numbers, and missing cells."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cavity.common.types import Flags, Floats
from cavity.errors import BadInput
from cavity.tables.arrow_tables import classify_type, import_pyarrow
from cavity.tables.columns.arrow_buffers import (
    find_present,
    from_texts,
    to_flags,
    to_floats,
)

MISSING = (
    "",
    "?",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "<NA>",
    "NaN",
    "nan",
    "null",
    "NULL",
    "None",
)
MICROS_PER_DAY = 86_400e6

# Formatted numbers by their decimal separator; "." wins if cells can be read both ways.
STYLES = {".": "1,250.5", ",": "1.250,5"}
_EXPONENT = r"([eE][+-]?[0-9]+)?"
_SPACE = r"' \x{A0}\x{202F}"  # other separators of thousands
_UNIT = r"[$€£¥%]"  # does not change the value


def _make_pattern(decimal: str, thousands: str) -> str:
    """Return the pattern of formatted numbers: 1,250.5, 1.250,5, 51,68, 12 %, € 5.

    Groups of thousands do not start with 0, so 0,344 has a decimal comma.
    """
    whole = rf"[1-9][0-9]{{0,2}}([{thousands}{_SPACE}][0-9]{{3}})+|[0-9]+"
    body = rf"({whole})([{decimal}][0-9]*)?|[{decimal}][0-9]+"
    usual = rf"^{_UNIT}? ?[+-]?({body}){_EXPONENT} ?{_UNIT}?$"
    sign_before_unit = rf"^[+-]{_UNIT} ?({body}) ?{_UNIT}?$"
    return f"{usual}|{sign_before_unit}"


NUMBER = rf"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+){_EXPONENT}$"
PATTERNS = {None: NUMBER, ".": _make_pattern(".", ","), ",": _make_pattern(",", ".")}


def to_text(column: Any) -> Any:
    """Convert a column to trimmed text, with null for missing cells."""
    import pyarrow.compute as pc

    arrow = import_pyarrow()
    column = cast(column, "string")
    column = pc.utf8_trim_whitespace(column)
    gone = pc.is_in(column, value_set=from_texts(MISSING))
    return pc.if_else(gone, arrow.nulls(1, "string")[0], column)


def to_numbers(
    column: Any,
    name: str,
    first: int = 0,
    style: str | None = None,
    odd: Counter[str] | None = None,
) -> tuple[Floats, Flags]:
    """Convert a column to float64; also return which cells are missing (NaN).

    `style` is the decimal separator of formatted numbers; None: plain numbers. With
    `odd`, texts that are not numbers become missing and are counted there. Otherwise
    BadInput names the row of the first.
    """
    import pyarrow.compute as pc

    arrow = import_pyarrow()
    kind = classify_type(column.type)
    if kind == "duration":
        micros = column.cast(arrow.duration("us"), safe=False).cast("int64")
        value = to_floats(cast(micros, "float64")) / MICROS_PER_DAY
        lacks = np.isnan(value)
    elif kind == "number":
        value = to_floats(cast(column, "float64"))
        lacks = np.isnan(value)
    else:
        text = to_text(column)
        lacks = ~find_present(text)
        wrong = np.flatnonzero(~match_numbers(text, style) & ~lacks)
        if len(wrong) and (odd is None or kind != "text"):
            row = int(wrong[0])
            _raise_not_numeric(
                name, first + row + 1, text[row].as_py(), len(wrong), style
            )

        if len(wrong) and odd is not None:
            note = (
                f"column {name!r} has texts that are not numbers; they are treated as "
                "missing"
            )
            odd[note] += len(wrong)
            lacks[wrong] = True
            text = pc.if_else(arrow.array(lacks), arrow.nulls(1, "string")[0], text)

        value = parse_numbers(text, style)

    large = np.flatnonzero(~np.isfinite(value) & ~lacks)
    if len(large):
        raise_infinite(name, first + int(large[0]) + 1)
    return value, lacks


def _raise_not_numeric(
    name: str, row: int, cell: str, count: int, style: str | None
) -> NoReturn:
    more = ""
    if count > 1:
        more = f" (and {count - 1} more rows)"
    written = ""
    if style is not None:
        written = f"; its numbers are written as {STYLES[style]}"
    raise BadInput(
        f"column {name!r} is numeric, but row {row} has {cell!r:.60}{more}: correct "
        f"such cells or leave them empty{written}."
    )


def filter_cells(text: Any, chosen: Flags) -> Any:
    return text.filter(import_pyarrow().array(chosen))


def match_cells(text: Any, pattern: str) -> Flags:
    import pyarrow.compute as pc

    return to_flags(pc.match_substring_regex(text, pattern))


def match_numbers(text: Any, style: str | None = None) -> Flags:
    """Return which text cells are plain numbers or, with a style, formatted ones."""
    return match_cells(text, PATTERNS[style])


def parse_numbers(
    text: Any, style: str | None = None, chosen: Flags | None = None
) -> Floats:
    """Parse numeric text cells (default all) as float64, NaN for missing cells."""
    import pyarrow.compute as pc

    if chosen is not None:
        text = filter_cells(text, chosen)
    if style is not None:
        thousands = "," if style == "." else "."
        text = pc.replace_substring_regex(text, rf"[$€£¥%{_SPACE}]", "")
        text = pc.replace_substring(text, thousands, "")
        text = pc.replace_substring(text, ",", ".")

    unsigned = pc.replace_substring(text, "+", "")  # Arrow does not parse plus signs
    return to_floats(cast(unsigned, "float64"))


def raise_infinite(name: str, row: int) -> NoReturn:
    raise BadInput(
        f"column {name!r} has an infinite or too large number in row {row}: correct "
        "it or leave it empty."
    )


def cast(column: Any, kind: str) -> Any:
    """Convert a column; a decimal becomes the nearest float64, as its text does."""
    if kind == "float64" and import_pyarrow().types.is_decimal(column.type):
        column = column.cast("string")  # Arrow's own conversion is off by a last bit
    try:
        return column.cast(kind, safe=False)
    # pyarrow's errors derive from these
    except (ValueError, NotImplementedError) as error:
        raise BadInput(
            f"a column of type {column.type} cannot be read as {kind} ({error!s:.90})."
        ) from error


def count_cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"


class EncodingContext(NamedTuple):
    """What encoding a column needs beside its cells."""

    first: int  # number of the first row
    notes: Counter[
        str
    ]  # counts of cells that differ from the training rows, by message
    strict: bool = False  # whether a text in a numeric column is an error

    def read_numbers(
        self, column: Any, name: str, style: str | None = None
    ) -> tuple[Floats, Flags]:
        """Convert a column to float64; see `to_numbers`.

        A text that is not a number becomes missing, or an error if `strict`.
        """
        odd = None if self.strict else self.notes
        return to_numbers(column, name, self.first, style, odd)

    def note_missing(self, name: str, count: int, consequence: str) -> None:
        """Count missing cells in a column that had none in the training rows."""
        if count:
            note = f"column {name!r} has missing cells, unlike the training rows"
            self.notes[f"{note}; {consequence}"] += count

    def mark_missing(
        self, column: Any, X: Floats, lacks: Flags, consequence: str
    ) -> Floats:
        """Append the column's indicator of missing cells; without one, count them."""
        if column.missing:
            return np.column_stack([X, lacks])

        self.note_missing(column.name, int(lacks.sum()), consequence)
        return X


def list_indicator(column: Any) -> list[str]:
    """Return the name of a column's indicator of missing cells, if it has one."""
    if column.missing:
        return [f"{column.name} missing"]

    return []


def describe_missing(column: Any) -> str:
    return ", some missing" if column.missing else ""
