"""Which features of a preparation belong together: they share a lengthscale, a unit, or
a column of the table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cavity.common.column_statistics import Sharing
from cavity.common.types import Floats, Ints
from cavity.tables.columns.column_kinds import Category, Column, Date, Number
from cavity.tables.columns.encoder import ColumnEncoder
from cavity.tables.columns.text_kind import Text


def group_features(columns: Sequence[Column]) -> tuple[Sharing, Ints]:
    """Group the features of columns; also return the number of each feature's column,
    [D].

    All features of a column share one lengthscale, with the indicator of its missing
    cells; each part of a date has its own.
    """
    group = list[int]()
    owner = list[int]()
    blocks = list[slice]()
    indicators = list[int]()
    for number, column in enumerate(columns):
        first = 0
        if group:
            first = group[-1] + 1
        parts = _count_parts(column)
        if isinstance(column, Category | Text):
            blocks.append(slice(len(group), len(group) + len(parts)))
        elif isinstance(column, Number | Date):
            indicators += [len(group) + len(parts) - 1] * column.missing
        group += [first + part for part in parts]
        owner += [number] * len(parts)
    return Sharing(np.array(group), blocks, indicators), np.array(owner)


def find_categories(columns: Sequence[Column]) -> list[slice]:
    """Return where the features of each category are: one per level."""
    ends = np.cumsum([len(column.features) for column in columns])
    pairs = zip(columns, ends.tolist(), strict=True)
    return [
        slice(end - len(c.features), end) for c, end in pairs if isinstance(c, Category)
    ]


def _count_parts(column: Column) -> list[int]:
    """Return the number of each feature's lengthscale within its column."""
    if not isinstance(column, Date):
        return [0] * len(column.features)
    sizes = [1 if part in ("days", "year") else 2 for part in column.parts]
    parts = [number for number, size in enumerate(sizes) for _ in range(size)]
    return parts + [parts[-1]] * (len(column.features) - len(parts))


def fold_relevance(weights: Floats, prepare: ColumnEncoder) -> Floats:
    """Return the relevance of the table's columns, 0 for ignored ones, from that of the
    features, [C D]: squares add.
    """
    sharing, owner = group_features(prepare.columns_)
    place = {name: j for j, name in enumerate(prepare.feature_names_in_)}
    inputs = prepare.inputs
    folded = np.zeros((len(weights), prepare.n_features_in_))
    for j in np.unique(sharing.group, return_index=True)[1]:
        folded[:, place[inputs[owner[j]]]] += weights[:, j] ** 2
    return np.sqrt(folded)
