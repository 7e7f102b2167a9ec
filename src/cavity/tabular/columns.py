"""Kinds of columns: how the cells of each become numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from cavity.data.fragments import import_pyarrow
from cavity.data.source import Array
from cavity.errors import BadInput
from cavity.tabular.cells import to_numbers, to_text


class Number(NamedTuple):
    """(value − mean)/scale, 0 where it is missing; a further column says so where the training rows lacked some."""

    name: str
    mean: float
    scale: float
    missing: bool

    @property
    def features(self) -> list[str]:
        return [self.name, *([f"{self.name} missing"] if self.missing else [])]

    def encode(self, column: Any, context: EncodingContext) -> Array:
        value, lacks = to_numbers(column, self.name, context.first)
        X = np.zeros((len(value), len(self.features)))
        X[:, 0] = np.where(lacks, 0.0, (value - self.mean) / self.scale)
        if self.missing:
            X[:, 1] = lacks
        elif lacks.any():
            context.notes[
                f"column {self.name!r} has missing cells, and had none before: taken as its mean"
            ] += int(lacks.sum())
        return X


class Category(NamedTuple):
    """A column for each level that the training rows had."""

    name: str
    levels: tuple[str, ...]
    missing: bool

    @property
    def features(self) -> list[str]:
        return [
            *(f"{self.name}={level}" for level in self.levels),
            *([f"{self.name} missing"] if self.missing else []),
        ]

    def encode(self, column: Any, context: EncodingContext) -> Array:
        arrow = import_pyarrow()
        text = to_text(column)
        lacks = np.asarray(text.is_null())
        place = text.dictionary_encode() if len(text) else None
        X = np.zeros((len(text), len(self.features)))
        if place is not None and len(place.dictionary):
            truth = arrow.types.is_boolean(column.type)  # true or True, as the training rows spelt it
            known = {level.lower() if truth else level: i for i, level in enumerate(self.levels)}
            codes = np.array([known.get(v, -1) for v in place.dictionary.to_pylist()])
            code = np.where(
                lacks, -1, codes[np.asarray(place.indices.fill_null(arrow.scalar(0, place.indices.type)))]
            )
            X[np.flatnonzero(code >= 0), code[code >= 0]] = 1.0
            unseen = np.flatnonzero((code < 0) & ~lacks)
            if len(unseen):
                self._handle_unseen(text[int(unseen[0])].as_py(), int(unseen[0]), len(unseen), context)
        if self.missing:
            X[:, -1] = lacks
        elif lacks.any():
            context.notes[
                f"column {self.name!r} has missing cells, and had none before: taken as none of its categories"
            ] += int(lacks.sum())
        return X

    def _handle_unseen(self, example: str, row: int, count: int, context: EncodingContext) -> None:
        if context.unseen == "error":
            known = ", ".join(map(repr, self.levels[:8])) + (", ..." if len(self.levels) > 8 else "")
            raise BadInput(
                f"column {self.name!r} has {example!r:.60} in row {context.first + row + 1}, which the training rows did not have "
                f"({known}): mend it, or let unseen categories be ignored (unseen 'ignore')."
            )
        context.notes[
            f"column {self.name!r} has categories that the training rows did not have: taken as none of them"
        ] += count


class Unchanged(NamedTuple):
    """A number as it is; a missing one stays NaN."""

    name: str

    @property
    def features(self) -> list[str]:
        return [self.name]

    def encode(self, column: Any, context: EncodingContext) -> Array:
        return to_numbers(column, self.name, context.first)[0][:, None]


class Ignored(NamedTuple):
    """A column that says nothing, or that was not wanted."""

    name: str
    why: str


class Target(NamedTuple):
    """The column of the labels: whole numbers, or text."""

    name: str
    whole: bool


class EncodingContext(NamedTuple):
    """What the encoding of a cell may need to know: its row, the policy for unseen categories, where to leave notes."""

    first: int
    unseen: str
    notes: Counter[str]


Column = Number | Category | Unchanged
