"""Features that belong together: they share a lengthscale, a unit, or a column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from cavity.common.column_statistics import Sharing
from cavity.common.types import Floats, Ints
from cavity.tables.columns.column_kinds import Category, Column, Date, Number
from cavity.tables.columns.encoder import ColumnEncoder
from cavity.tables.columns.text_kind import Text


def group_features(columns: Sequence[Column]) -> tuple[Sharing, Ints]:
    """Group the features of columns; also return each feature's column number, [D].

    All features of a column share a lengthscale, including the indicator of its missing
    cells. Each part of a date has its own.
    """
    group = list[int]()
    owner = list[int]()
    blocks = list[slice]()
    indicators = list[int]()
    n_groups = 0
    for number, (column, block) in enumerate(place_blocks(columns)):
        parts = _number_parts(column)
        group += [n_groups + part for part in parts]
        owner += [number] * len(parts)
        n_groups += len(set(parts))
        if isinstance(column, Category | Text):
            blocks.append(block)
        elif isinstance(column, Number | Date) and column.missing:
            indicators.append(block.stop - 1)

    return Sharing(np.array(group), blocks, indicators), np.array(owner)


def find_blocks(columns: Sequence[Column], kind: type[Column]) -> list[slice]:
    """Return where the features of each column of a kind are."""
    placed = place_blocks(columns)
    return [block for column, block in placed if isinstance(column, kind)]


def place_blocks(columns: Sequence[Column]) -> Iterator[tuple[Column, slice]]:
    """Yield each column with the slice of its features."""
    end = 0
    for column in columns:
        begin = end
        end += len(column.features)
        yield column, slice(begin, end)


def place_features(prepare: ColumnEncoder) -> dict[Any, tuple[int, ...]]:
    """Return the features of each column of the table, by its name and its number."""
    _, owner = group_features(prepare.columns_)
    inputs = prepare.inputs
    features: dict[str, list[int]] = {}
    for j, column in enumerate(owner):
        features.setdefault(inputs[column], []).append(j)

    found: dict[Any, tuple[int, ...]] = {}
    for number, name in enumerate(prepare.feature_names_in_):
        found[str(name)] = found[number] = tuple(features.get(name, ()))
    return found


def _number_parts(column: Column) -> list[int]:
    """Return the number of each feature's lengthscale within its column."""
    n_features = len(column.features)
    if not isinstance(column, Date):
        return [0] * n_features

    parts = list[int]()
    for number, part in enumerate(column.parts):
        size = 1 if part in ("days", "year") else 2
        parts += [number] * size
    missing = n_features - len(parts)
    return parts + parts[-1:] * missing


def fold_relevance(weights: Floats, prepare: ColumnEncoder) -> Floats:
    """Return the relevance of the table's columns from that of the features, [C D].

    Squares add; ignored columns have relevance 0.
    """
    sharing, owner = group_features(prepare.columns_)
    place = {name: j for j, name in enumerate(prepare.feature_names_in_)}
    inputs = prepare.inputs
    folded = np.zeros((len(weights), prepare.n_features_in_))
    _, first = np.unique(sharing.group, return_index=True)
    for j in first:
        folded[:, place[inputs[owner[j]]]] += weights[:, j] ** 2
    return np.sqrt(folded)
