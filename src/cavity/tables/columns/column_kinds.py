"""Kinds of columns, and how each encodes its cells as numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Floats
from cavity.tables.arrow_tables import import_pyarrow
from cavity.tables.columns.arrow_buffers import find_present, from_texts, to_places
from cavity.tables.columns.cells import (
    STYLES,
    EncodingContext,
    describe_missing,
    list_indicator,
    to_text,
)
from cavity.tables.columns.dates import Date as Date
from cavity.tables.columns.text_kind import Text, shorten

MEAN_IS_USED = "the mean is used"


class Number(NamedTuple):
    """Numeric column, encoded as (value − mean)/scale, 0 for missing cells; with
    `missing`, a second column indicates them.
    """

    name: str
    mean: float
    scale: float
    missing: bool
    # range of the training rows; files before 0.3 do not have it
    low: float | None = None
    high: float | None = None
    style: str | None = None  # what separates the decimals of formatted numbers

    @property
    def features(self) -> list[str]:
        return [self.name, *list_indicator(self)]

    def describe(self) -> str:
        style = ""
        if self.style is not None:
            style = f", written as {STYLES[self.style]}"
        return f"number, mean {self.mean:.4g}, std {self.scale:.4g}{describe_missing(self)}{style}"

    def encode(self, column: Any, context: EncodingContext) -> Floats:
        value, lacks = context.read_numbers(column, self.name, self.style)
        X = np.where(lacks, 0.0, (value - self.mean) / self.scale)[:, None]
        return context.mark_missing(self, X, lacks, MEAN_IS_USED)


class Category(NamedTuple):
    """Categorical column, encoded one-hot by the levels of the training rows; with
    `missing`, one more indicates missing cells.
    """

    name: str
    levels: tuple[str, ...]
    missing: bool

    @property
    def features(self) -> list[str]:
        return [
            *(f"{self.name}={level}" for level in self.levels),
            *list_indicator(self),
        ]

    def describe(self) -> str:
        few = ", ".join(map(shorten, self.levels[:4])) + (
            ", ..." if len(self.levels) > 4 else ""
        )
        return f"category, {len(self.levels)} levels ({few}){describe_missing(self)}"

    def encode(self, column: Any, context: EncodingContext) -> Floats:
        text = to_text(column)
        lacks = ~find_present(text)
        X = np.zeros((len(text), len(self.levels)))
        code = self._find_levels(text, column.type)
        X[np.flatnonzero(code >= 0), code[code >= 0]] = 1.0
        unseen = int(((code < 0) & ~lacks).sum())
        if unseen:
            note = f"column {self.name!r} has categories that the training rows did not have"
            context.notes[f"{note}; no category is set"] += unseen
        return context.mark_missing(self, X, lacks, "no category is set")

    def _find_levels(self, text: Any, kind: Any) -> Any:
        """Return the number of each cell's level, [n]; −1 for missing cells and unknown
        levels.
        """
        import pyarrow.compute as pc

        boolean = import_pyarrow().types.is_boolean(
            kind
        )  # Arrow writes true, a text file may have had True
        known = from_texts(
            [level.lower() if boolean else level for level in self.levels]
        )
        found = pc.index_in(text, value_set=known)
        return np.where(find_present(found), to_places(found), -1)


class Unchanged(NamedTuple):
    """Numeric column that is used unchanged; missing cells are NaN."""

    name: str

    @property
    def features(self) -> list[str]:
        return [self.name]

    def describe(self) -> str:
        return "number, unchanged"

    def encode(self, column: Any, context: EncodingContext) -> Floats:
        return context.read_numbers(column, self.name)[0][:, None]


class Ignored(NamedTuple):
    """Column that is not used, and the reason."""

    name: str
    why: str
    informs: bool = False  # it has information that the model does not get

    def describe(self) -> str:
        return f"ignored ({self.why})"


class Target(NamedTuple):
    """Column of the labels: whole numbers or text, or any numbers for regression.

    `missing` rows without a label are not used.
    """

    name: str
    whole: bool
    missing: int = 0
    number: bool = False  # for regression
    style: str | None = None  # as of a Number


Column = Number | Category | Text | Date | Unchanged
