"""Consecutive tables as blocks of a fixed number of rows.

What is learned of columns then depends on the rows alone: not on the row groups of a
file, the chunks of a table, or the files of a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from cavity.tables.arrow_tables import import_pyarrow

MOST_ROWS = 65_536
MOST_CELLS = 1 << 26


class LabelledCells(NamedTuple):
    """Rows of a table of Arrow, with their labels if these are not a column."""

    table: Any
    labels: Any  # an array of Arrow, or None


def cut_blocks(batches: Iterable[LabelledCells]) -> Iterator[LabelledCells]:
    """Yield the rows of consecutive tables in blocks of one size.

    A table with other columns, types or labels than the one before begins a new block.
    """
    held = list[LabelledCells]()
    rows = 0
    for batch in batches:
        if held and not _continues(batch, held[-1]):
            yield _join(held)
            held = []
            rows = 0

        held.append(batch)
        rows += batch.table.num_rows
        size = max(1, min(MOST_ROWS, MOST_CELLS // max(1, batch.table.num_columns)))
        while rows >= size:
            joined = _join(held)
            yield _take(joined, 0, size)
            held = [_take(joined, size)]
            rows -= size

    if held:
        yield _join(held)


def _continues(batch: LabelledCells, before: LabelledCells) -> bool:
    kinds = [getattr(part.labels, "type", None) for part in (batch, before)]
    return kinds[0] == kinds[1] and bool(batch.table.schema.equals(before.table.schema))


def _join(batches: list[LabelledCells]) -> LabelledCells:
    if len(batches) == 1:
        return batches[0]

    arrow = import_pyarrow()
    labels = None
    if batches[0].labels is not None:
        labels = arrow.concat_arrays([batch.labels for batch in batches])
    return LabelledCells(
        arrow.concat_tables([batch.table for batch in batches]), labels
    )


def _take(batch: LabelledCells, start: int, count: int | None = None) -> LabelledCells:
    labels = None
    if batch.labels is not None:
        labels = batch.labels.slice(start, count)
    return LabelledCells(batch.table.slice(start, count), labels)
