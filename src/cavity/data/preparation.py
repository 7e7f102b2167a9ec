"""From a table with mixed columns to numbers: standardised, one-hot, imputed; learnt in one pass, kept as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.data.cells import as_numbers, as_text, label_text, one_column, parsed
from cavity.data.fragments import Chunk, pyarrow
from cavity.data.source import Array
from cavity.errors import BadFile, BadInput, BadOption

UNSEEN = ("ignore", "error")


class Number(NamedTuple):
    """(value − mean)/scale, 0 where it is missing; a further column says so where the training rows lacked some."""

    name: str
    mean: float
    scale: float
    missing: bool

    @property
    def features(self) -> list[str]:
        return [self.name, *([f"{self.name} missing"] if self.missing else [])]

    def encode(self, column: Any, where: Where) -> Array:
        value, lacks = as_numbers(column, self.name, where.first)
        X = np.zeros((len(value), len(self.features)))
        X[:, 0] = np.where(lacks, 0.0, (value - self.mean) / self.scale)
        if self.missing:
            X[:, 1] = lacks
        elif lacks.any():
            where.notes[
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

    def encode(self, column: Any, where: Where) -> Array:
        arrow = pyarrow()
        text = as_text(column)
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
                self._unseen(text[int(unseen[0])].as_py(), int(unseen[0]), len(unseen), where)
        if self.missing:
            X[:, -1] = lacks
        elif lacks.any():
            where.notes[
                f"column {self.name!r} has missing cells, and had none before: taken as none of its categories"
            ] += int(lacks.sum())
        return X

    def _unseen(self, example: str, row: int, count: int, where: Where) -> None:
        if where.unseen == "error":
            known = ", ".join(map(repr, self.levels[:8])) + (", ..." if len(self.levels) > 8 else "")
            raise BadInput(
                f"column {self.name!r} has {example!r:.60} in row {where.first + row + 1}, which the training rows did not have "
                f"({known}): mend it, or let unseen categories be ignored (unseen 'ignore')."
            )
        where.notes[
            f"column {self.name!r} has categories that the training rows did not have: taken as none of them"
        ] += count


class Plain(NamedTuple):
    """A number as it is; a missing one stays NaN."""

    name: str

    @property
    def features(self) -> list[str]:
        return [self.name]

    def encode(self, column: Any, where: Where) -> Array:
        return as_numbers(column, self.name, where.first)[0][:, None]


class LeftOut(NamedTuple):
    """A column that says nothing, or that was not wanted."""

    name: str
    why: str


class Target(NamedTuple):
    """The column of the labels: whole numbers, or text."""

    name: str
    whole: bool


class Where(NamedTuple):
    """What the encoding of a cell may need to know: its row, the policy for unseen categories, where to leave notes."""

    first: int
    unseen: str
    notes: Counter[str]


Column = Number | Category | Plain


class Preparation:
    """What was learnt of each column, so that new rows are treated as the training rows were.

    `fit` reads batches of a table once; `transform` gives the numbers, one column for each of `names`; `labels` the target.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        target: Target | None = None,
        left_out: Sequence[LeftOut] = (),
        unseen: str = "ignore",
    ) -> None:
        if unseen not in UNSEEN:
            raise BadOption(f"unseen={unseen!r} is unknown; use one of {', '.join(map(repr, UNSEEN))}.")
        self.columns, self.target = tuple(columns), target
        self.left_out, self.unseen = tuple(left_out), unseen

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
        from cavity.data.inspection import Inspection

        inspection = Inspection(target, ignore, kinds or {})
        for batch in batches:
            inspection.add(as_chunk(batch).table)
        return cls(*inspection.decide(), unseen)

    @classmethod
    def plain(cls, names: Sequence[str]) -> Preparation:
        """Columns of numbers that are taken as they are."""
        return cls([Plain(name) for name in names])

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
        chunk = as_chunk(data)
        self.check(chunk.table.column_names)
        where = Where(chunk.first, self.unseen, Counter() if notes is None else notes)
        parts = [column.encode(one_column(chunk.table, column.name), where) for column in self.columns]
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def check(self, names: Sequence[str]) -> None:
        """Whether a table with these columns can be prepared."""
        from difflib import get_close_matches

        have = set(names)
        absent = [name for name in self.inputs if name not in have]
        if absent:
            near = get_close_matches(absent[0], list(names), 1)
            more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
            hint = f"; is it {near[0]!r}?" if near else f"; there are {_some(names)}."
            raise BadInput(
                f"the data have no column {absent[0]!r}{more}, which the model was trained with{hint}"
            )

    def typed(self, data: Any, more: Sequence[str] = ()) -> Any:
        """The columns that `transform` reads, and `more`, as a table of Arrow in which numbers are numbers."""
        chunk, arrow = as_chunk(data), pyarrow()
        columns = {name: one_column(chunk.table, name) for name in (*self.inputs, *more)}
        for column in self.columns:
            if not isinstance(column, Category):
                value, lacks = as_numbers(columns[column.name], column.name, chunk.first)
                columns[column.name] = arrow.array(value, mask=lacks)
        return arrow.table(columns)

    def labels(self, data: Any) -> NDArray[Any]:
        """The target's labels [n], as the classifier has them: whole numbers or text, none missing."""
        chunk = as_chunk(data)
        if self.target is None:
            raise BadOption("this preparation knows no target: name it when it is made.")
        text = label_text(one_column(chunk.table, self.target.name), self.target.name, chunk.first)
        if not self.target.whole:
            coded = text.dictionary_encode()
            values: NDArray[Any] = np.array(coded.dictionary.to_pylist(), dtype=str)
            return np.asarray(values[np.asarray(coded.indices)])
        try:
            value = parsed(text)  # 2.0 is 2
            exact = (value % 1 == 0).all() and (np.abs(value) < 2**53).all()
            return value.astype(np.int64) if exact else np.asarray(text.cast("int64"))
        except ValueError as error:  # pyarrow's errors derive from it
            raise BadInput(
                f"the labels of the training rows were whole numbers; column {self.target.name!r} has others ({error})."
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Everything, as what JSON can hold."""
        return {
            "columns": [{"kind": type(c).__name__.lower(), **c._asdict()} for c in self.columns],
            "target": None if self.target is None else self.target._asdict(),
            "left_out": [c._asdict() for c in self.left_out],
            "unseen": self.unseen,
        }

    @classmethod
    def from_json(cls, value: Any) -> Preparation:
        """The inverse of `to_json`; anything else is refused."""
        try:
            columns = [_column(dict(c)) for c in value["columns"]]
            target = (
                None
                if value["target"] is None
                else Target(_text(value["target"]["name"]), bool(value["target"]["whole"]))
            )
            left_out = [LeftOut(_text(c["name"]), _text(c["why"])) for c in value["left_out"]]
            made = cls(columns, target, left_out, value["unseen"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadFile(
                f"the preparation of the columns is damaged ({type(error).__name__} {error!s:.100})."
            ) from error
        if len(set(made.inputs)) < len(made.inputs) or not made.inputs:
            raise BadFile("the preparation of the columns is damaged: a column twice, or none.")
        return made

    def describe(self) -> list[tuple[str, str]]:
        """Each column with what becomes of it, in words."""
        return [(c.name, _in_words(c)) for c in (*self.columns, *self.left_out)]


def as_chunk(data: Any) -> Chunk:
    """Tables, record batches, frames and dicts of columns, as a table of Arrow."""
    if isinstance(data, Chunk):
        return data
    arrow = pyarrow()
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


def _column(value: dict[str, Any]) -> Column:
    kind, name = value["kind"], _text(value["name"])
    if kind == "number":
        mean, scale = float(value["mean"]), float(value["scale"])
        if not (np.isfinite(mean) and np.isfinite(scale) and scale > 0):
            raise ValueError(f"column {name!r} has mean {mean:g} and scale {scale:g}")
        return Number(name, mean, scale, bool(value["missing"]))
    if kind == "category":
        levels = tuple(_text(level) for level in value["levels"])
        if len(set(levels)) < len(levels):
            raise ValueError(f"column {name!r} has a level twice")
        return Category(name, levels, bool(value["missing"]))
    if kind == "plain":
        return Plain(name)
    raise ValueError(f"a column of kind {kind!r:.40}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _in_words(column: Column | LeftOut) -> str:
    if isinstance(column, LeftOut):
        return f"left out: {column.why}"
    missing = ", some missing" if getattr(column, "missing", False) else ""
    if isinstance(column, Category):
        few = ", ".join(column.levels[:4]) + (", ..." if len(column.levels) > 4 else "")
        return f"category, {len(column.levels)} levels ({few}){missing}"
    if isinstance(column, Number):
        return f"number, mean {column.mean:.4g}, spread {column.scale:.4g}{missing}"
    return "number, as it is"


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
