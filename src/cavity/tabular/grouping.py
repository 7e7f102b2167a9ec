"""Which features of a preparation belong together: they share a lengthscale, a unit, or a column of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.source import Array
from cavity.tabular.columns import Category, Column, Date


class Grouping(NamedTuple):
    """Features grouped by lengthscale and by column."""

    group: NDArray[np.int64]  # [D], number of each feature's lengthscale
    owner: NDArray[np.int64]  # [D], number of each feature's column
    blocks: list[slice]  # the one-hot features of each category


def group_features(columns: Sequence[Column]) -> Grouping:
    """Group the features of columns.

    All features of a column share one lengthscale, with the indicator of its missing cells; each part of a date has its own.
    """
    group: list[int] = []
    owner: list[int] = []
    blocks = []
    for number, column in enumerate(columns):
        first = group[-1] + 1 if group else 0
        parts = _count_parts(column)
        if isinstance(column, Category):
            blocks.append(slice(len(group), len(group) + len(parts)))
        group += [first + part for part in parts]
        owner += [number] * len(parts)
    return Grouping(np.array(group), np.array(owner), blocks)


def _count_parts(column: Column) -> list[int]:
    """Return the number of each feature's lengthscale within its column."""
    if not isinstance(column, Date):
        return [0] * len(column.features)
    sizes = [1 if part in ("days", "year") else 2 for part in column.parts]
    parts = [number for number, size in enumerate(sizes) for _ in range(size)]
    return parts + [parts[-1]] * (len(column.features) - len(parts))


def fold_weights(weights: Array, columns: Sequence[Column]) -> Array:
    """Return the weight of each column from those of its features, [C D]: squares of its lengthscales' weights add."""
    group, owner, _ = group_features(columns)
    first = np.unique(group, return_index=True)[1]
    folded = np.zeros((len(weights), len(columns)))
    for j in first:
        folded[:, owner[j]] += weights[:, j] ** 2
    return np.sqrt(folded)
