"""How the cells of each column are spread over its levels, or over ten bins.

A model file holds these shares of the training rows, so that new rows can be compared
with them. Bins and levels are those of the encoded cells: equal cells fall into the
same bin, to the last bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cavity.common.scoring import count_effective
from cavity.common.types import Floats, Ints
from cavity.tables.arrow_tables import Chunk, get_column
from cavity.tables.columns.arrow_buffers import find_present
from cavity.tables.columns.cells import EncodingContext, to_text
from cavity.tables.columns.column_kinds import Category, Column, Date, Number, Unchanged
from cavity.tables.columns.dates import format_day
from cavity.tables.columns.feature_groups import place_blocks

BINS = 10
MOST_COLUMNS = 1000  # more would make files large
MOST_CELLS = 4_000_000  # of a larger table a sample of rows is described


class ColumnShares(NamedTuple):
    """Shares of the training rows; with `missing` they add up to one."""

    name: str
    rows: float  # effective number of training rows
    missing: float
    shares: tuple[float, ...]  # of each level, or of each bin
    edges: tuple[float, ...] = ()  # between bins, which contain their upper edge


class CellCounts(NamedTuple):
    """Numbers of new cells, in the order of `ColumnShares`."""

    missing: int
    known: Ints  # per level or bin
    new: Counter[str]  # levels that the training rows did not have


def describe_columns(
    columns: Sequence[Column], X: Floats, weight: Floats
) -> tuple[ColumnShares, ...] | None:
    """Describe the columns of encoded training rows; None if there are too many."""
    if len(columns) > MOST_COLUMNS:
        return None

    most = max(1, MOST_CELLS // X.shape[1])
    if len(X) > most:
        chosen = np.sort(np.random.default_rng(0).choice(len(X), most, replace=False))
        X = X[chosen]
        weight = weight[chosen]
    return tuple(
        _describe_column(column, X[:, block], weight)
        for column, block in place_blocks(columns)
    )


def _describe_column(column: Column, block: Floats, weight: Floats) -> ColumnShares:
    w = weight / weight.sum()
    n = count_effective(weight)
    lacks = np.full(len(block), False)
    if not isinstance(column, Unchanged) and column.missing:
        lacks = block[:, -1] > 0
    missing = float(w[lacks].sum())
    if isinstance(column, Category):
        shares = w @ block[:, : len(column.levels)]
        return ColumnShares(column.name, n, missing, tuple(shares.tolist()))

    value = block[~lacks, 0]
    edges = _choose_edges(value, w[~lacks])
    shares = np.bincount(np.searchsorted(edges, value), w[~lacks], len(edges) + 1)
    return ColumnShares(
        column.name, n, missing, tuple(shares.tolist()), tuple(edges.tolist())
    )


def _choose_edges(value: Floats, weight: Floats) -> Floats:
    """Return the distinct deciles of the values, without their maximum."""
    if not len(value):
        return value

    order = np.argsort(value, kind="stable")
    below = np.cumsum(weight[order])
    wanted = below[-1] * np.arange(1, BINS) / BINS
    places = np.searchsorted(below, wanted * (1 - 1e-12))
    edges = np.unique(value[order[places]])
    return np.asarray(edges[edges < value.max()])


def count_column(column: Column, shares: ColumnShares, chunk: Chunk) -> CellCounts:
    """Count the raw cells of a column."""
    cells = get_column(chunk.table, column.name)
    if isinstance(column, Category):
        return _count_levels(column, cells)

    wide = column
    if not isinstance(column, Unchanged):
        wide = column._replace(missing=True)  # its last feature marks missing cells
    block = wide.encode(cells, EncodingContext(chunk.first, Counter()))
    lacks = np.isnan(block[:, 0])
    if not isinstance(column, Unchanged):
        lacks = block[:, -1] > 0
    place = np.searchsorted(shares.edges, block[~lacks, 0])
    known = np.bincount(place, minlength=len(shares.shares))
    return CellCounts(int(lacks.sum()), known, Counter())


def _count_levels(column: Category, cells: Any) -> CellCounts:
    text = to_text(cells)
    present = find_present(text)
    code = column.find_levels(text, cells.type)
    known = np.bincount(code[code >= 0], minlength=len(column.levels))
    places = np.flatnonzero(present & (code < 0))
    new = Counter[str](text.take(places).to_pylist())
    return CellCounts(int((~present).sum()), known, new)


def add_counts(a: CellCounts, b: CellCounts) -> CellCounts:
    return CellCounts(a.missing + b.missing, a.known + b.known, a.new + b.new)


def name_cells(column: Column, shares: ColumnShares) -> list[str]:
    """Name the levels of a column, or its bins in the units of the table."""
    if isinstance(column, Category):
        return list(column.levels)

    ends = [_format_edge(column, edge) for edge in shares.edges]
    if not ends:
        return ["any value"]

    inner = [f"{low} to {high}" for low, high in pairwise(ends)]
    return [f"up to {ends[0]}", *inner, f"above {ends[-1]}"]


def _format_edge(column: Column, edge: float) -> str:
    if isinstance(column, Number):
        edge = column.mean + column.scale * edge
    elif isinstance(column, Date) and column.parts[0] == "days":
        mean, scale = column.days
        return format_day(mean + scale * edge)

    return f"{edge:.4g}"
