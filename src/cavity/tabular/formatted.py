"""Numbers as people write them: 1,250.5 and 1.250,5 and 51,68 and 12 % and € 5."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.source import Array
from cavity.tabular.buffers import find_present
from cavity.tabular.cells import (
    check_finite,
    classify_type,
    match_cells,
    parse_numbers,
    raise_not_number,
    to_numbers,
    to_text,
)

STYLES = (".", ",")  # what separates the decimals; "." wins if cells can be read both ways
_SPACE = r"' \x{A0}\x{202F}"  # other separators of thousands
_UNIT = r"[$€£¥%]"
_EXPONENT = r"([eE][+-]?[0-9]+)?"


def _pattern(decimal: str, thousands: str) -> str:
    body = rf"([0-9]{{1,3}}([{thousands}{_SPACE}][0-9]{{3}})+|[0-9]+)([{decimal}][0-9]*)?|[{decimal}][0-9]+"
    return rf"^{_UNIT}? ?[+-]?({body}){_EXPONENT} ?{_UNIT}?$|^[+-]{_UNIT} ?({body}) ?{_UNIT}?$"


PATTERNS = {".": _pattern(".", ","), ",": _pattern(",", ".")}


def match_style(text: Any, style: str) -> NDArray[np.bool_]:
    """Return which cells are numbers if `style` separates the decimals."""
    return match_cells(text, PATTERNS[style])


def parse_formatted(text: Any, style: str) -> Array:
    """Parse cells that match a style, with NaN for missing cells. Percent and currency signs do not change the value."""
    import pyarrow.compute as pc

    bare = pc.replace_substring_regex(text, rf"[$€£¥%{_SPACE}]", "")
    bare = pc.replace_substring(bare, "," if style == "." else ".", "")
    return parse_numbers(pc.replace_substring(bare, ",", "."))


def describe_style(style: str) -> str:
    """Describe a style by example."""
    return "written as 1,250.5" if style == "." else "written as 1.250,5"


def read_numbers(
    column: Any, name: str, first: int, style: str | None = None
) -> tuple[Array, NDArray[np.bool_]]:
    """Convert a column to float64 and return which cells are missing: `to_numbers` for formatted numbers, too."""
    if style is None or classify_type(column.type) in ("number", "duration"):
        return to_numbers(column, name, first)
    text = to_text(column)
    lacks = ~find_present(text)
    wrong = np.flatnonzero(~match_style(text, style) & ~lacks)
    if len(wrong):
        raise_not_number(name, text, wrong, first)
    value = parse_formatted(text, style)
    check_finite(value, lacks, name, first)
    return value, lacks
