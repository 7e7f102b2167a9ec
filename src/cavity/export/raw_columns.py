"""Add the preparation of raw columns to an ONNX graph: each column is a named input."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cavity.common.onnx_graph import ML_DOMAIN, Graph, Value, concatenate, to_double
from cavity.tables.columns.cells import MISSING
from cavity.tables.columns.column_kinds import Category, Column, Date, Number
from cavity.tables.columns.dates import STEPS, YEAR
from cavity.tables.columns.encoder import ColumnEncoder
from cavity.tables.columns.text_kind import GRAM_SIZES, Text

CYCLE = 146_097  # days of 400 years
MARCH = 719_468  # days from 0000-03-01 to 1970-01-01
JANUARY = 306  # days from 1 March to 1 January


def add_raw_columns(
    graph: Graph, prepare: ColumnEncoder, number_type: int
) -> tuple[Value, list[Any], dict[str, str]]:
    """Add an input (n, 1) per raw column.

    Return the features [n D], the inputs, and a description of each input's values.
    """
    parts = []
    inputs = []
    kinds = {}
    for column in prepare.columns_:
        kind = number_type
        what = "number"
        if isinstance(column, Category | Text):
            kind = graph.onnx.TensorProto.STRING
            what = "text"
        elif isinstance(column, Date):
            what = "number of days since 1970-01-01"

        inputs.append(
            graph.onnx.helper.make_tensor_value_info(column.name, kind, ["n", 1])
        )
        parts.append(_encode(graph, column, Value(graph, column.name)))
        kinds[column.name] = what

    return concatenate(parts), inputs, kinds


def _encode(graph: Graph, column: Column, cells: Value) -> Value:
    """Return the features of a column, [n k], from its cells [n 1]."""
    if isinstance(column, Category):
        return _encode_category(graph, column, cells)
    if isinstance(column, Text):
        return _encode_text(graph, column, cells)

    value = to_double(cells)
    if not isinstance(column, Number | Date):
        return value

    lacks = graph.op("IsNaN", value)
    if isinstance(column, Number):
        parts = [(value - column.mean) / column.scale]
    else:
        days = graph.op("Where", lacks, np.float64(column.low), value)
        parts = _encode_date(graph, column, days)

    parts = [graph.op("Where", lacks, np.float64(0.0), part) for part in parts]
    if column.missing:
        parts.append(to_double(lacks))
    return concatenate(parts)


def _number_texts(
    cells: Value, texts: list[str], numbers: list[int], other: int
) -> Value:
    codes = {"keys_strings": texts, "values_int64s": numbers, "default_int64": other}
    return cells.graph.op("LabelEncoder", cells, domain=ML_DOMAIN, **codes)


def _encode_category(graph: Graph, column: Category, cells: Value) -> Value:
    """Encode levels one-hot; a new category sets no column.

    A missing cell sets its indicator, if the column has one.
    """
    n = len(column.levels)
    columns = np.arange(len(column.features), dtype=np.int64)[None]
    numbers = [*range(n), *([n] * len(MISSING))]
    codes = _number_texts(cells, [*column.levels, *MISSING], numbers, -1)
    return to_double(graph.op("Equal", codes, columns))


def _encode_text(graph: Graph, column: Text, cells: Value) -> Value:
    """Match the cells with each of the column's n-grams or whole texts.

    Each different text is matched once.
    """
    different = graph.op("Unique", cells)
    number = Value(graph, f"{different.name}_2")  # of each cell's text
    space = np.array(" ", dtype=object)
    texts = graph.op("StringConcat", space, different[:, None])
    padded = graph.op("StringConcat", texts, space)
    matches = []
    for gram in column.grams:
        rest = ".*" if len(gram) <= max(GRAM_SIZES) else ""
        part = re.escape(gram).replace("\\ ", r"\s+")
        pattern = f"(?is){rest}{part}{rest}"
        matches.append(graph.op("RegexFullMatch", padded, pattern=pattern))

    B = to_double(concatenate(matches))
    count = graph.op("ReduceSum", B, np.array([1]))
    lacks = to_double(_number_texts(cells, list(MISSING), [1] * len(MISSING), 0))
    # in the order of `Text.encode_texts`: trees may split between values one bit apart
    found = (B @ column.find_weights()) / count.at_least(1.0).sqrt()
    X = graph.op("Gather", found, number) * (1.0 - lacks)
    return concatenate([X, lacks] if column.missing else [X])


def _encode_date(graph: Graph, column: Date, days: Value) -> list[Value]:
    """Return the parts of dates, each [n 1], from days since 1970-01-01."""
    whole = _floor(days)
    found = []
    year = _find_year(graph, whole)
    for part in column.parts:
        if part == "days":
            found.append((days - column.days[0]) / column.days[1])
        elif part == "year":
            found.append((year - column.years[0]) / column.years[1])
        elif part == "season":
            found += _to_circle(graph, (days - _first_day(year)) / YEAR)
        elif part == "weekday":
            moved = whole + 3.0
            found += _to_circle(graph, (moved - _floor(moved / 7.0) * 7.0) / 7.0)
        else:
            found += _to_circle(graph, days - whole)

    return found


def _floor(value: Value) -> Value:
    return value.graph.op("Floor", value)


def _to_circle(graph: Graph, turns: Value) -> list[Value]:
    """Return sine and cosine.

    The cosine is the sine a quarter of a turn later: older runtimes lack a cosine for
    float64.
    """
    angles = (at * (2 * np.pi) for at in (turns, turns + 0.25))
    sines = (graph.op("Sin", angle) for angle in angles)
    return [graph.op("Round", sine * STEPS) / STEPS for sine in sines]


def _find_year(graph: Graph, days: Value) -> Value:
    """Return the Gregorian year of whole days since 1970-01-01.

    Years are counted from 1 March, in cycles of 400.
    """
    z = days + float(MARCH)
    cycle = _floor(z / float(CYCLE))
    day = z - cycle * float(CYCLE)
    leaps = _floor(day / 1460.0) - _floor(day / 36524.0) + _floor(day / 146096.0)
    year = _floor((day - leaps) / 365.0)
    rest = day - (year * 365.0 + _floor(year / 4.0) - _floor(year / 100.0))
    is_next = to_double(graph.op("GreaterOrEqual", rest, float(JANUARY)))
    return year + cycle * 400.0 + is_next


def _first_day(year: Value) -> Value:
    """Return 1 January of a year in days since 1970-01-01."""
    before = year - 1.0
    leaps = _floor(before / 4.0) - _floor(before / 100.0) + _floor(before / 400.0)
    return before * 365.0 + leaps + float(JANUARY - MARCH)
