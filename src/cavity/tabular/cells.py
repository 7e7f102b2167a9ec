"""Cells of a column: as numbers, as text, as labels. What is missing, what looks like a date."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.fragments import import_pyarrow
from cavity.data.source import Array
from cavity.errors import BadInput

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None")
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
WHOLE = r"^(0|-?[1-9][0-9]*)(\.0*)?$"  # 007 is a text
_MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY = "|".join(
    [
        r"[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}",
        r"[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{2}|[0-9]{4})",
        rf"([A-Za-z]{{3,9}},? )?[0-9]{{1,2}}[ -]{_MONTH}[ -][0-9]{{2,4}}",
        rf"{_MONTH} [0-9]{{1,2}},? [0-9]{{4}}",
    ]
)
_TIME = r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)? ?([AaPp][Mm])?"
DATE = rf"^(({_DAY})([T ,][0-9:.,TZ+ APMapm-]*)?|{_TIME})$"
# numbers as people write them: 1,250.5 and 1.250,5 and 3,7 and 12 % and $5
_GROUPED = r"([0-9]{1,3}([,.' \x{A0}\x{202F}][0-9]{3})+([.,][0-9]+)?|[0-9]+,[0-9]+)"
DRESSED = rf"^([+-]?{_GROUPED}|[$€£]? ?[+-]?({_GROUPED}|[0-9]+(\.[0-9]+)?) ?[%$€£]?)$"


def get_column(table: Any, name: str) -> Any:
    """A column by name, as one array, categories spelt out."""
    column = table.column(name)
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    if import_pyarrow().types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def classify_type(kind: Any) -> str:
    """What an Arrow type holds: number, text, date, nothing, or other."""
    types = import_pyarrow().types
    if types.is_dictionary(kind):
        return "text"
    tests = {
        "nothing": (types.is_null,),
        "number": (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "date": (types.is_temporal,),
    }
    return next((name for name, each in tests.items() if any(test(kind) for test in each)), "other")


def to_text(column: Any) -> Any:
    """Trimmed text, null where a cell is missing."""
    import pyarrow.compute as pc

    arrow = import_pyarrow()
    column = _cast(column, "string")
    column = pc.utf8_trim_whitespace(column)
    gone = pc.is_in(column, value_set=arrow.array(MISSING))
    return pc.if_else(gone, arrow.scalar(None, "string"), column)


def to_numbers(column: Any, name: str, first: int = 0) -> tuple[Array, NDArray[np.bool_]]:
    """Values, NaN where missing, and whether they are; a cell that is no number is refused with its row."""
    if classify_type(column.type) == "number":
        value = np.asarray(_cast(column, "float64").to_numpy(zero_copy_only=False))
        lacks = np.isnan(value)
    else:
        text = to_text(column)
        lacks = np.asarray(text.is_null())
        wrong = np.flatnonzero(~is_number(text) & ~lacks)
        if len(wrong):
            raise BadInput(
                f"column {name!r} holds numbers, but row {first + int(wrong[0]) + 1} has {text[int(wrong[0])].as_py()!r:.60}"
                f"{f' (and {len(wrong) - 1} more rows)' if len(wrong) > 1 else ''}: mend these cells, or leave them empty."
            )
        value = parse_numbers(text)
    check_finite(value, lacks, name, first)
    return value, lacks


def is_number(text: Any) -> NDArray[np.bool_]:
    """Which cells spell a number."""
    import pyarrow.compute as pc

    return np.asarray(pc.match_substring_regex(text, NUMBER).fill_null(False))


def parse_numbers(text: Any) -> Array:
    """Cells that spell numbers as float64, NaN where missing."""
    import pyarrow.compute as pc

    plain = pc.replace_substring(text, "+", "")  # Arrow's parser knows no plus sign; none carries a meaning
    return np.asarray(_cast(plain, "float64").to_numpy(zero_copy_only=False))


def check_finite(value: Array, lacks: NDArray[np.bool_], name: str, first: int) -> None:
    wrong = np.flatnonzero(~np.isfinite(value) & ~lacks)
    if len(wrong):
        raise BadInput(
            f"column {name!r} has an infinite or too large number in row {first + int(wrong[0]) + 1}: mend it, or leave it empty."
        )


def read_labels(column: Any, name: str, first: int) -> Any:
    """Labels as text, whole numbers without a point; a missing one is refused with its row."""
    import pyarrow.compute as pc

    types = import_pyarrow().types
    if types.is_floating(column.type):
        value = np.asarray(column.to_numpy(zero_copy_only=False))
        if (value[np.isfinite(value)] % 1 != 0).any():
            raise_continuous(name, value[np.isfinite(value) & (value % 1 != 0)][0])
        column = pc.if_else(pc.is_finite(column), column, import_pyarrow().scalar(None, column.type))
        column = _cast(column, "int64")
    if classify_type(column.type) not in ("number", "text", "nothing"):
        raise BadInput(f"the target {name!r} is of type {column.type}: labels are text or whole numbers.")
    text = to_text(column)
    lacks = np.flatnonzero(np.asarray(text.is_null()))
    if len(lacks):
        more = f" and {len(lacks) - 1} more rows" if len(lacks) > 1 else ""
        raise BadInput(
            f"the label (column {name!r}) is missing in row {first + int(lacks[0]) + 1}{more}: leave these rows out of the file, "
            "or give them a class of their own."
        )
    return text


def raise_continuous(name: str, example: Any) -> None:
    raise BadInput(
        f"the target {name!r} has values such as {example}: a classifier needs classes; is it the right column? For ranges of a "
        "quantity, make classes of them first."
    )


def _cast(column: Any, kind: str) -> Any:
    try:
        return column.cast(kind, safe=False)
    except (ValueError, NotImplementedError) as error:  # pyarrow's errors derive from these
        raise BadInput(
            f"a column of type {column.type} cannot be read as {kind} ({error!s:.100})."
        ) from error
