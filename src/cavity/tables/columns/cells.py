"""Cells of a column as numbers or text; patterns for numbers and missing cells, and
what is done with missing ones.
"""

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

# by what separates the decimals; "." wins if cells can be read both ways
STYLES = {".": "1,250.5", ",": "1.250,5"}
_EXPONENT = r"([eE][+-]?[0-9]+)?"
_SPACE = r"' \x{A0}\x{202F}"  # other separators of thousands
_UNIT = r"[$€£¥%]"  # does not change the value


def _make_pattern(decimal: str, thousands: str) -> str:
    """Return the pattern of numbers as people write them: 1,250.5 and 1.250,5 and 51,68
    and 12 % and € 5.

    Thousands do not begin with 0: 0,344 has a decimal comma.
    """
    whole = rf"[1-9][0-9]{{0,2}}([{thousands}{_SPACE}][0-9]{{3}})+|[0-9]+"
    body = rf"({whole})([{decimal}][0-9]*)?|[{decimal}][0-9]+"
    return rf"^{_UNIT}? ?[+-]?({body}){_EXPONENT} ?{_UNIT}?$|^[+-]{_UNIT} ?({body}) ?{_UNIT}?$"


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
    """Convert a column to float64, with NaN for missing cells; also return which cells
    are missing.

    `style` is that of texts: what separates their decimals, or None for plain numbers.
    With `odd`, texts that are not numbers are missing, and are counted there; otherwise
    BadInput names the row of the first.
    """
    import pyarrow.compute as pc

    arrow = import_pyarrow()
    kind = classify_type(column.type)
    if kind == "duration":
        column = column.cast(arrow.duration("us"), safe=False).cast("int64")
    if kind in ("duration", "number"):
        value = to_floats(cast(column, "float64")) / (
            MICROS_PER_DAY if kind == "duration" else 1.0
        )
        lacks = np.isnan(value)
    else:
        text = to_text(column)
        lacks = ~find_present(text)
        wrong = np.flatnonzero(~match_numbers(text, style) & ~lacks)
        if len(wrong) and odd is not None and kind == "text":
            odd[
                f"column {name!r} has texts that are not numbers; they are taken as "
                f"missing"
            ] += len(wrong)
            lacks[wrong] = True
            text = pc.if_else(arrow.array(lacks), arrow.nulls(1, "string")[0], text)
        elif len(wrong):
            row = int(wrong[0])
            more = ""
            if len(wrong) > 1:
                more = f" (and {len(wrong) - 1} more rows)"
            written = ""
            if style is not None:
                written = f"; its numbers are written as {STYLES[style]}"
            cell = f"row {first + row + 1} has {text[row].as_py()!r:.60}{more}"
            raise BadInput(
                f"column {name!r} is numeric, but {cell}: correct or empty such "
                f"cells{written}."
            )
        value = parse_numbers(text, style)
    large = np.flatnonzero(~np.isfinite(value) & ~lacks)
    if len(large):
        raise_infinite(name, first + int(large[0]) + 1)
    return value, lacks


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
    """Parse text cells, or the chosen ones, that are numbers as float64, with NaN for
    missing cells.
    """
    import pyarrow.compute as pc

    if chosen is None:
        text = text
    else:
        text = filter_cells(text, chosen)
    if style is not None:
        text = pc.replace_substring_regex(text, rf"[$€£¥%{_SPACE}]", "")
        text = pc.replace_substring(text, "," if style == "." else ".", "")
        text = pc.replace_substring(text, ",", ".")
    unsigned = pc.replace_substring(text, "+", "")  # Arrow does not parse plus signs
    return to_floats(cast(unsigned, "float64"))


def raise_infinite(name: str, row: int) -> NoReturn:
    raise BadInput(
        f"column {name!r} has an infinite or too large number in row {row}: correct or "
        f"empty it."
    )


def cast(column: Any, kind: str) -> Any:
    try:
        return column.cast(kind, safe=False)
    except (
        ValueError,
        NotImplementedError,
    ) as error:  # pyarrow's errors derive from these
        raise BadInput(
            f"a column of type {column.type} cannot be read as {kind} ({error!s:.90})."
        ) from error


class EncodingContext(NamedTuple):
    """Number of the first row, counts of unusual cells, and whether odd cells are
    errors.
    """

    first: int
    notes: Counter[str]
    strict: bool = False

    def read_numbers(
        self, column: Any, name: str, style: str | None = None
    ) -> tuple[Floats, Flags]:
        """Convert a column to float64, as `to_numbers` does; a text that is not a
        number is missing, or an error if strict.
        """
        return to_numbers(
            column, name, self.first, style, None if self.strict else self.notes
        )

    def note_missing(self, name: str, count: int, consequence: str) -> None:
        """Count missing cells in a column that had none in the training rows."""
        if count:
            note = f"column {name!r} has missing cells, which the training rows did not have; {consequence}"
            self.notes[note] += count

    def mark_missing(
        self, column: Any, X: Floats, lacks: Flags, consequence: str
    ) -> Floats:
        """Return features with the column's indicator of missing cells; if it has none,
        count them.
        """
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
