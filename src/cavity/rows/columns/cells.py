"""Cells of a column as numbers, text or labels; patterns for numbers and missing cells."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput
from cavity.rows.arrow_tables import classify_type, import_pyarrow
from cavity.rows.batches.source import Array
from cavity.rows.columns.arrow_buffers import find_present, from_texts, to_flags, to_floats

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None")
MICROS_PER_DAY = 86_400e6
WHOLE = r"^(0|-?[1-9][0-9]*)(\.0*)?$"  # 007 is text
STYLES = (".", ",")  # what separates the decimals; "." wins if cells can be read both ways
_EXPONENT = r"([eE][+-]?[0-9]+)?"
_SPACE = r"' \x{A0}\x{202F}"  # other separators of thousands
_UNIT = r"[$€£¥%]"  # does not change the value


def _make_pattern(decimal: str, thousands: str) -> str:
    """Return the pattern of numbers as people write them: 1,250.5 and 1.250,5 and 51,68 and 12 % and € 5."""
    body = rf"([0-9]{{1,3}}([{thousands}{_SPACE}][0-9]{{3}})+|[0-9]+)([{decimal}][0-9]*)?|[{decimal}][0-9]+"
    return rf"^{_UNIT}? ?[+-]?({body}){_EXPONENT} ?{_UNIT}?$|^[+-]{_UNIT} ?({body}) ?{_UNIT}?$"


NUMBER = rf"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+){_EXPONENT}$"
PATTERNS = {None: NUMBER, ".": _make_pattern(".", ","), ",": _make_pattern(",", ".")}


def to_text(column: Any) -> Any:
    """Convert a column to trimmed text, with null for missing cells."""
    import pyarrow.compute as pc

    arrow = import_pyarrow()
    column = _cast(column, "string")
    column = pc.utf8_trim_whitespace(column)
    gone = pc.is_in(column, value_set=from_texts(MISSING))
    return pc.if_else(gone, arrow.nulls(1, "string")[0], column)


def to_numbers(
    column: Any, name: str, first: int = 0, style: str | None = None
) -> tuple[Array, NDArray[np.bool_]]:
    """Convert a column to float64, with NaN for missing cells; also return which cells are missing.

    `style` is that of texts: what separates their decimals, or None for plain numbers.
    Raises BadInput with the row of the first cell that is not a number.
    """
    if classify_type(column.type) == "duration":
        micros = column.cast(import_pyarrow().duration("us"), safe=False).cast("int64")
        value = to_floats(_cast(micros, "float64")) / MICROS_PER_DAY
        lacks = np.isnan(value)
    elif classify_type(column.type) == "number":
        value = to_floats(_cast(column, "float64"))
        lacks = np.isnan(value)
    else:
        text = to_text(column)
        lacks = ~find_present(text)
        wrong = np.flatnonzero(~match_numbers(text, style) & ~lacks)
        if len(wrong):
            row, more = int(wrong[0]), f" (and {len(wrong) - 1} more rows)" if len(wrong) > 1 else ""
            raise BadInput(
                f"column {name!r} is numeric, but row {first + row + 1} has {text[row].as_py()!r:.60}{more}: correct these cells "
                "or leave them empty."
            )
        value = parse_numbers(text, style)
    large = np.flatnonzero(~np.isfinite(value) & ~lacks)
    if len(large):
        raise_infinite(name, first + int(large[0]) + 1)
    return value, lacks


def match_cells(text: Any, pattern: str) -> NDArray[np.bool_]:
    import pyarrow.compute as pc

    return to_flags(pc.match_substring_regex(text, pattern))


def match_numbers(text: Any, style: str | None = None) -> NDArray[np.bool_]:
    """Return which text cells are plain numbers or, with a style, formatted ones."""
    return match_cells(text, PATTERNS[style])


def parse_numbers(text: Any, style: str | None = None) -> Array:
    """Parse text cells that are numbers as float64, with NaN for missing cells."""
    import pyarrow.compute as pc

    if style is not None:
        text = pc.replace_substring_regex(text, rf"[$€£¥%{_SPACE}]", "")
        text = pc.replace_substring(text, "," if style == "." else ".", "")
        text = pc.replace_substring(text, ",", ".")
    unsigned = pc.replace_substring(text, "+", "")  # Arrow does not parse plus signs
    return to_floats(_cast(unsigned, "float64"))


def raise_infinite(name: str, row: int) -> NoReturn:
    """Raise BadInput for an infinite cell."""
    raise BadInput(
        f"column {name!r} has an infinite or too large number in row {row}: correct it or leave it empty."
    )


def read_labels(column: Any, name: str, first: int, strict: bool = True) -> Any:
    """Convert labels to text, whole numbers without a point. If strict, a missing label raises BadInput with its row."""
    import pyarrow.compute as pc

    types = import_pyarrow().types
    if types.is_floating(column.type):
        value = np.asarray(column.to_numpy(zero_copy_only=False))
        if (value[np.isfinite(value)] % 1 != 0).any():
            raise_continuous(name, value[np.isfinite(value) & (value % 1 != 0)][0])
        column = pc.if_else(pc.is_finite(column), column, import_pyarrow().scalar(None, column.type))
        column = _cast(column, "int64")
    if classify_type(column.type) not in ("number", "text", "nothing"):
        raise BadInput(
            f"the target {name!r} has the type {column.type}: labels must be text or whole numbers."
        )
    text = to_text(column)
    lacks = np.flatnonzero(~find_present(text))
    if len(lacks) and strict:
        more = f" and {len(lacks) - 1} more rows" if len(lacks) > 1 else ""
        raise BadInput(
            f"the label (column {name!r}) is missing in row {first + int(lacks[0]) + 1}{more}: remove these rows, "
            "or give them a class of their own."
        )
    return text


def has_fractions(column: Any) -> bool:
    """Return whether a column of floating-point numbers has other values than whole numbers."""
    if not import_pyarrow().types.is_floating(column.type):
        return False
    value = np.asarray(column.to_numpy(zero_copy_only=False))
    return bool((value[np.isfinite(value)] % 1 != 0).any())


def read_targets(column: Any, name: str, first: int, strict: bool = True) -> tuple[Array, NDArray[np.bool_]]:
    """Read the numbers of a target, and which are missing. If strict, a missing number raises BadInput with its row."""
    value, lacks = to_numbers(column, name, first)
    if strict and lacks.any():
        row = first + int(np.flatnonzero(lacks)[0]) + 1
        raise BadInput(f"the target (column {name!r}) is missing in row {row}: remove the row.")
    return value, lacks


def raise_continuous(name: str, example: Any) -> None:
    raise BadInput(
        f"the target {name!r} has values such as {example}, but a classifier needs classes: is it the right column? "
        "To predict the number itself, use --regression or GPRegressor; to classify ranges, replace it by a column of classes."
    )


def _cast(column: Any, kind: str) -> Any:
    try:
        return column.cast(kind, safe=False)
    except (ValueError, NotImplementedError) as error:  # pyarrow's errors derive from these
        raise BadInput(
            f"a column of type {column.type} cannot be read as {kind} ({error!s:.100})."
        ) from error
