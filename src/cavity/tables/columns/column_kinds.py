"""Kinds of columns, and how each encodes its cells as numbers."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Numeric column, encoded as (value − mean)/scale; missing cells are 0.

    With `missing`, a second column indicates missing cells.
    """

    name: str
    mean: float
    scale: float
    missing: bool
    # range of the training rows; files before 0.3 do not have it
    low: float | None = None
    high: float | None = None
    style: str | None = None  # decimal separator of formatted numbers

    @property
    def features(self) -> list[str]:
        return [self.name, *list_indicator(self)]

    def describe(self) -> str:
        style = ""
        if self.style is not None:
            style = f", written as {STYLES[self.style]}"
        moments = f"mean {self.mean:.4g}, std {self.scale:.4g}"
        return f"number, {moments}{describe_missing(self)}{style}"

    def encode(self, column: Any, context: EncodingContext) -> Floats:
        value, lacks = context.read_numbers(column, self.name, self.style)
        X = np.where(lacks, 0.0, (value - self.mean) / self.scale)[:, None]
        return context.mark_missing(self, X, lacks, MEAN_IS_USED)


class Category(NamedTuple):
    """Categorical column, encoded one-hot by the levels of the training rows.

    With `missing`, one more column indicates missing cells.
    """

    name: str
    levels: tuple[str, ...]
    missing: bool

    @property
    def features(self) -> list[str]:
        return [f"{self.name}={level}" for level in self.levels] + list_indicator(self)

    def describe(self) -> str:
        few = ", ".join(map(shorten, self.levels[:4]))
        if len(self.levels) > 4:
            few += ", ..."
        return f"category, {len(self.levels)} levels ({few}){describe_missing(self)}"

    def encode(self, column: Any, context: EncodingContext) -> Floats:
        text = to_text(column)
        lacks = ~find_present(text)
        X = np.zeros((len(text), len(self.levels)))
        code = self.find_levels(text, column.type)
        known = code >= 0
        X[known, code[known]] = 1.0
        unseen = int((~known & ~lacks).sum())
        if unseen:
            note = (
                f"column {self.name!r} has categories that the training rows did not "
                "have; no category is set"
            )
            context.notes[note] += unseen

        return context.mark_missing(self, X, lacks, "no category is set")

    def find_levels(self, text: Any, kind: Any) -> Any:
        """Return the number of each cell's level, [n]; −1: missing or unknown."""
        import pyarrow.compute as pc

        levels: Sequence[str] = self.levels
        if import_pyarrow().types.is_boolean(kind):
            # Arrow writes true; the text file of the training rows may have had True
            levels = [level.lower() for level in levels]
        found = pc.index_in(text, value_set=from_texts(levels))
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
    informs: bool = False  # whether it has information that the model does not use

    def describe(self) -> str:
        return f"ignored ({self.why})"


class Target(NamedTuple):
    """Column of the labels: whole numbers or text, or any numbers for regression."""

    name: str
    whole: bool
    missing: int = 0  # number of rows without a label; they are not used
    number: bool = False  # for regression
    style: str | None = None  # decimal separator of formatted numbers


Column = Number | Category | Text | Date | Unchanged
