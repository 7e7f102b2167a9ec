"""From a table with mixed columns to numbers: standardised, one-hot, imputed; learnt in one pass, kept as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.fragments import Chunk, import_pyarrow
from cavity.data.source import Array
from cavity.errors import BadFile, BadInput, BadOption
from cavity.tabular.cells import get_column, parse_numbers, read_labels, to_numbers
from cavity.tabular.columns import Category, Column, EncodingContext, Ignored, Number, Target, Unchanged
from cavity.tabular.inspection import Inspection

UNSEEN = ("ignore", "error")
KIND_NAMES = {Number: "number", Category: "category", Unchanged: "plain"}  # in model files


class Preparation:
    """What was learnt of each column, so that new rows are treated as the training rows were.

    `fit` reads batches of a table once; `transform` gives the numbers, one column for each of `names`; `labels` the target.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        target: Target | None = None,
        ignored: Sequence[Ignored] = (),
        unseen: str = "ignore",
    ) -> None:
        if unseen not in UNSEEN:
            raise BadOption(f"unseen={unseen!r} is unknown; use one of {', '.join(map(repr, UNSEEN))}.")
        self.columns, self.target = tuple(columns), target
        self.ignored, self.unseen = tuple(ignored), unseen

    @classmethod
    def fit(
        cls,
        batches: Iterable[Any],
        target: str | None = None,
        ignore: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        unseen: str = "ignore",
    ) -> Preparation:
        """Learn from tables, frames or record batches of the same columns, one after another.

        `kinds` says "number", "category" or "ignore" for a column where the cells alone would say something else.
        """
        inspection = Inspection(target, ignore, kinds or {})
        for batch in batches:
            inspection.add(to_chunk(batch).table)
        return cls(*inspection.decide(), unseen)

    @classmethod
    def identity(cls, names: Sequence[str]) -> Preparation:
        """Columns of numbers that are taken as they are."""
        return cls([Unchanged(name) for name in names])

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(column.name for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of numbers that come out."""
        return tuple(name for column in self.columns for name in column.features)

    def transform(self, data: Any, notes: Counter[str] | None = None) -> Array:
        """Numbers [n, len(names)]; `notes` counts cells that were not as in the training rows."""
        chunk = to_chunk(data)
        self.check(chunk.table.column_names)
        context = EncodingContext(chunk.first, self.unseen, Counter() if notes is None else notes)
        parts = [column.encode(get_column(chunk.table, column.name), context) for column in self.columns]
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def check(self, names: Sequence[str]) -> None:
        """Whether a table with these columns can be prepared."""
        have = set(names)
        absent = [name for name in self.inputs if name not in have]
        if absent:
            near = get_close_matches(absent[0], list(names), 1)
            more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
            hint = f"; is it {near[0]!r}?" if near else f"; there are {_list_some(names)}."
            raise BadInput(
                f"the data have no column {absent[0]!r}{more}, which the model was trained with{hint}"
            )

    def typed(self, data: Any, more: Sequence[str] = ()) -> Any:
        """The columns that `transform` reads, and `more`, as a table of Arrow in which numbers are numbers."""
        chunk, arrow = to_chunk(data), import_pyarrow()
        columns = {name: get_column(chunk.table, name) for name in (*self.inputs, *more)}
        for column in self.columns:
            if not isinstance(column, Category):
                value, lacks = to_numbers(columns[column.name], column.name, chunk.first)
                columns[column.name] = arrow.array(value, mask=lacks)
        return arrow.table(columns)

    def labels(self, data: Any) -> NDArray[Any]:
        """The target's labels [n], as the classifier has them: whole numbers or text, none missing."""
        chunk = to_chunk(data)
        if self.target is None:
            raise BadOption("this preparation knows no target: name it when it is made.")
        text = read_labels(get_column(chunk.table, self.target.name), self.target.name, chunk.first)
        if not self.target.whole:
            coded = text.dictionary_encode()
            values: NDArray[Any] = np.array(coded.dictionary.to_pylist(), dtype=str)
            return np.asarray(values[np.asarray(coded.indices)])
        try:
            value = parse_numbers(text)  # 2.0 is 2
            exact = (value % 1 == 0).all() and (np.abs(value) < 2**53).all()
            return value.astype(np.int64) if exact else np.asarray(text.cast("int64"))
        except ValueError as error:  # pyarrow's errors derive from it
            raise BadInput(
                f"the labels of the training rows were whole numbers; column {self.target.name!r} has others ({error})."
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Everything, as what JSON can hold."""
        return {
            "columns": [{"kind": KIND_NAMES[type(c)], **c._asdict()} for c in self.columns],
            "target": None if self.target is None else self.target._asdict(),
            "left_out": [c._asdict() for c in self.ignored],
            "unseen": self.unseen,
        }

    @classmethod
    def from_json(cls, value: Any) -> Preparation:
        """The inverse of `to_json`; anything else is refused."""
        try:
            columns = [_read_column(dict(c)) for c in value["columns"]]
            target = (
                None
                if value["target"] is None
                else Target(_check_text(value["target"]["name"]), bool(value["target"]["whole"]))
            )
            ignored = [Ignored(_check_text(c["name"]), _check_text(c["why"])) for c in value["left_out"]]
            made = cls(columns, target, ignored, value["unseen"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadFile(
                f"the preparation of the columns is damaged ({type(error).__name__} {error!s:.100})."
            ) from error
        if len(set(made.inputs)) < len(made.inputs) or not made.inputs:
            raise BadFile("the preparation of the columns is damaged: a column twice, or none.")
        return made

    def describe(self) -> list[tuple[str, str]]:
        """Each column with what becomes of it, in words."""
        return [(c.name, _describe_column(c)) for c in (*self.columns, *self.ignored)]


def to_chunk(data: Any) -> Chunk:
    """Tables, record batches, frames and dicts of columns, as a table of Arrow."""
    if isinstance(data, Chunk):
        return data
    arrow = import_pyarrow()
    try:
        if isinstance(data, arrow.RecordBatch):
            data = arrow.Table.from_batches([data])
        if type(data).__module__.partition(".")[0] == "pandas":
            data = arrow.Table.from_pandas(data, preserve_index=False)
        table = data if isinstance(data, arrow.Table) else arrow.table(data)
    except OverflowError:
        raise BadInput(
            "a cell has a whole number of more than 19 digits: write it with a point, or in other units."
        ) from None
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"this is no table with named columns ({error!s:.200}); give a frame or a pyarrow table."
        ) from error
    return Chunk(table, 0, "")


def _read_column(value: dict[str, Any]) -> Column:
    kind, name = value["kind"], _check_text(value["name"])
    if kind == "number":
        mean, scale = float(value["mean"]), float(value["scale"])
        if not (np.isfinite(mean) and np.isfinite(scale) and scale > 0):
            raise ValueError(f"column {name!r} has mean {mean:g} and scale {scale:g}")
        return Number(name, mean, scale, bool(value["missing"]))
    if kind == "category":
        levels = tuple(_check_text(level) for level in value["levels"])
        if len(set(levels)) < len(levels):
            raise ValueError(f"column {name!r} has a level twice")
        return Category(name, levels, bool(value["missing"]))
    if kind == "plain":
        return Unchanged(name)
    raise ValueError(f"a column of kind {kind!r:.40}")


def _check_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _describe_column(column: Column | Ignored) -> str:
    if isinstance(column, Ignored):
        return f"left out: {column.why}"
    missing = ", some missing" if getattr(column, "missing", False) else ""
    if isinstance(column, Category):
        few = ", ".join(column.levels[:4]) + (", ..." if len(column.levels) > 4 else "")
        return f"category, {len(column.levels)} levels ({few}){missing}"
    if isinstance(column, Number):
        return f"number, mean {column.mean:.4g}, spread {column.scale:.4g}{missing}"
    return "number, as it is"


def _list_some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
