"""Labels of a table: cells of its target as classes or numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Flags, Floats
from cavity.errors import BadInput
from cavity.tables.arrow_tables import Chunk, classify_type, get_column, import_pyarrow
from cavity.tables.columns.arrow_buffers import find_present, from_texts
from cavity.tables.columns.cells import (
    STYLES,
    match_cells,
    match_numbers,
    parse_numbers,
    to_numbers,
    to_text,
)
from cavity.tables.columns.column_kinds import Target
from cavity.tables.labels import MAX_CLASSES, refuse_many_classes

# More than MANY_VALUES whole numbers in less than FEW_EACH rows each are a quantity.
MANY_VALUES = 30
FEW_EACH = 5
MOSTLY = 0.9  # if a larger share of the values are numbers, the others are errors

WHOLE = r"^(0|-?[1-9][0-9]*)(\.0*)?$"  # 007 is text


def convert_labels(column: Any, name: str) -> Any:
    """Convert labels to text, whole numbers without a point; null if missing."""
    import pyarrow.compute as pc

    arrow = import_pyarrow()
    if arrow.types.is_floating(column.type):
        fractions = find_fractions(column)
        if len(fractions):
            raise_continuous(name, fractions[0])
        missing = arrow.scalar(None, column.type)
        column = pc.if_else(pc.is_finite(column), column, missing)
        column = column.cast("int64", safe=False)

    if classify_type(column.type) not in ("number", "text", "nothing"):
        raise BadInput(
            f"the target {name!r} has the type {column.type}: give text or whole "
            "numbers."
        )

    return to_text(column)


def find_fractions(column: Any) -> Floats:
    """Return the values of a floating-point column that are not whole numbers."""
    if not import_pyarrow().types.is_floating(column.type):
        return np.empty(0)

    value = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    return value[np.isfinite(value) & (value % 1 != 0)]


def raise_continuous(name: str, example: Any) -> None:
    raise BadInput(
        f"the target {name!r} has values such as {example}, but a classifier needs "
        "classes: is it the right column? To predict the number itself, use "
        "--regression or GPRegressor; to classify ranges, replace it by a column of "
        "classes."
    )


def advise_classes(name: str) -> str:
    key = json.dumps(name, ensure_ascii=False)
    return f'set columns = {{ {key} = "category" }} in the file of --config'


def read_label_values(chunk: Chunk, target: Target) -> NDArray[Any]:
    """Return labels as whole numbers or text, or as floats if the target is a number.

    Raises BadInput if one is missing.
    """
    text, lacks = _read_labels(chunk, target)
    _refuse_missing(lacks, target.name, chunk.first)
    if target.number:
        return np.asarray(text)
    if not target.whole:
        return np.array(text.to_pylist(), dtype=str)

    try:
        value = parse_numbers(text)  # 2.0 is 2
        exact = (value % 1 == 0).all() and (np.abs(value) < 2**53).all()
        if exact:
            return value.astype(np.int64)

        return np.asarray(text.cast("int64"))
    except ValueError as error:  # pyarrow's errors derive from it
        raise BadInput(
            f"column {target.name!r} has labels that are not whole numbers, unlike the "
            f"training rows ({error}): correct them."
        ) from error


def _refuse_missing(lacks: Flags, name: str, first: int) -> None:
    if lacks.any():
        row = first + int(lacks.argmax()) + 1
        count = int(lacks.sum())
        more = ""
        if count > 1:
            more = f" and {count - 1} more rows"
        raise BadInput(
            f"the label (column {name!r}) is missing in row {row}{more}: remove these "
            "rows, or give them a class of their own."
        )


def find_labelled_rows(chunk: Chunk, target: Target, strict: bool) -> Flags:
    """Return which rows have a label; if `strict`, a missing label raises BadInput."""
    _, lacks = _read_labels(chunk, target)
    if strict:
        _refuse_missing(lacks, target.name, chunk.first)
    return ~lacks


def _read_labels(chunk: Chunk, target: Target) -> tuple[Any, Flags]:
    """Return labels as numbers, or as texts of Arrow, and which are missing."""
    column = get_column(chunk.table, target.name)
    if target.number:
        return to_numbers(column, target.name, chunk.first, target.style)

    text = convert_labels(column, target.name)
    return text, ~find_present(text)


class TargetSummary:
    """Running summary of the target.

    `kind`: "category" for classes, "number" for regression, "auto" to decide by the
    values.
    """

    def __init__(self, name: str, strict: bool, kind: str = "category") -> None:
        self.name = name
        self.strict = strict
        self.kind = kind
        self.whole = True  # whether all labels so far are whole numbers
        # the styles of numbers that all labels so far fit
        self.styles: list[str | None] = [None]
        if not strict:
            self.styles += STYLES
        self.missing = 0
        self.rows = 0
        self.classes: set[str] = set()

    def add(self, column: Any, first: int) -> None:
        """Add labels; `first` is the number of rows before them."""
        self.rows += len(column)
        if self.kind == "auto" and len(find_fractions(column)):
            self.kind = "number"
        if self.kind == "number":
            if classify_type(column.type) == "text":
                fitting = self._find_styles(to_text(column).drop_null())
                # a cell that fits no style is reported as an error of the first style
                self.styles = fitting or self.styles[:1]

            _, lacks = to_numbers(column, self.name, first, self.style)
            self._count_missing(lacks, first)
            return

        labels = convert_labels(column, self.name)
        self._count_missing(~find_present(labels), first)
        values = labels.drop_null().unique()
        self.whole &= bool(match_cells(values, WHOLE).all())
        self.styles = self._find_styles(values)
        self.classes.update(values.to_pylist())
        if len(self.classes) > MAX_CLASSES and self.kind == "auto" and self.styles:
            self.kind = "number"
        else:
            refuse_many_classes(self.classes, f"the target {self.name!r}")

    @property
    def style(self) -> str | None:
        if self.styles:
            return self.styles[0]

        return None

    def _find_styles(self, values: Any) -> list[str | None]:
        return [style for style in self.styles if match_numbers(values, style).all()]

    def _count_missing(self, lacks: Flags, first: int) -> None:
        if self.strict:
            _refuse_missing(lacks, self.name, first)
        self.missing += int(lacks.sum())

    def decide(self) -> Target:
        """Decide how to read the labels, or raise BadInput."""
        if self.missing == self.rows:
            raise BadInput(
                f"the target {self.name!r} has no labels: is it the right column?"
            )
        if self.kind == "number" or (self.kind == "auto" and self._is_quantity()):
            return Target(self.name, False, self.missing, True, self.style)

        if None in self.styles and not self.whole:
            for label in sorted(self.classes):
                if float(label) % 1:
                    raise_continuous(self.name, label)

        if len(self.classes) < 2:
            raise BadInput(
                f"the target {self.name!r} has only one class, "
                f"{next(iter(self.classes))!r:.60}: a classifier needs at least two."
            )

        fits_int64 = all(len(label) < 18 for label in self.classes)
        return Target(self.name, self.whole and fits_int64, self.missing)

    def _is_quantity(self) -> bool:
        """Return whether the values are fractions, or many whole numbers in few rows.

        Raises BadInput if nearly all of them are.
        """
        texts = from_texts(sorted(self.classes))
        good = match_numbers(texts, self.style)
        values = parse_numbers(texts, self.style, good)
        values = values[np.isfinite(values)]
        few_each = self.rows - self.missing < FEW_EACH * len(values)
        fractions = bool((values % 1 != 0).any()) and (self.style is None or few_each)
        many = len(values) > MANY_VALUES and few_each
        if len(values) < 2 or not (fractions or many):
            return False
        if not self.styles and len(values) > MOSTLY * len(good):
            odd = texts[int(good.argmin())].as_py()
            raise BadInput(
                f"the target {self.name!r} has numbers in most rows, but {odd!r:.60} in "
                "others: correct such cells or leave them empty; if they are classes, "
                f"{advise_classes(self.name)}."
            )

        return bool(self.styles)
