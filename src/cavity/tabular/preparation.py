"""Preparation of tables with mixed columns: learned in one pass, applied to any table, stored as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.data.fragments import Chunk, import_pyarrow
from cavity.data.source import Array
from cavity.errors import BadFile, BadInput, BadOption
from cavity.tabular.cells import get_column, parse_numbers, read_labels, to_numbers
from cavity.tabular.columns import (
    Category,
    Column,
    EncodingContext,
    Ignored,
    Number,
    Target,
    Unchanged,
    suggest_column,
)
from cavity.tabular.inspection import Inspection

UNSEEN = ("ignore", "error")
KIND_NAMES = {Number: "number", Category: "category", Unchanged: "plain"}  # in model files


class Preparation:
    """Preparation of a table with mixed columns: standardised numbers, one-hot categories, imputed missing cells.

    Make one with `fit`. It stores what it learned of each column, so new rows are treated as the training rows were. A
    model that `cavity fit` saved has its preparation as `preparation_`.

    Parameters
    ----------
    columns : sequence of Number, Category or Unchanged
        The columns to read, with what was learned of each.
    target : Target, optional
        The column of the labels.
    ignored : sequence of Ignored, optional
        Columns that are not used, with the reasons.
    unseen : {"ignore", "error"}, default="ignore"
        Policy for categories that the training rows did not have: set no category and count a note, or raise an error.

    Attributes
    ----------
    columns : tuple of Number, Category or Unchanged
        The columns to read.
    target : Target or None
        The column of the labels.
    ignored : tuple of Ignored
        Columns that are not used.
    unseen : str
        Policy for unseen categories.
    inputs : tuple of str
        Names of the columns to read.
    names : tuple of str
        Names of the features, the columns of `transform`.

    Examples
    --------
    >>> from cavity import Preparation
    >>> table = {"mass": [3.0, 5.0, None, 4.0], "island": ["Dream", "Biscoe", "Dream", "Dream"], "y": [0, 1, 0, 1]}
    >>> prepare = Preparation.fit([table], target="y")
    >>> prepare.names
    ('mass', 'mass missing', 'island=Biscoe', 'island=Dream')
    >>> prepare.transform(table)[:2].round(2)
    array([[-1.22,  0.  ,  0.  ,  1.  ],
           [ 1.22,  0.  ,  1.  ,  0.  ]])
    >>> prepare.labels(table)
    array([0, 1, 0, 1])
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
        """Learn a preparation from one pass over a table.

        Parameters
        ----------
        batches : iterable of tables
            Consecutive rows of the table: data frames, pyarrow tables, record batches, or dicts of columns. All must have
            the same columns.
        target : str, optional
            Name of the column of the labels.
        ignore : sequence of str, optional
            Names of columns to ignore.
        kinds : dict, optional
            Kind of a column, "number", "category" or "ignore", by name. Other columns are inspected.
        unseen : {"ignore", "error"}, default="ignore"
            Policy for categories that the training rows did not have.

        Returns
        -------
        Preparation
            The preparation.
        """
        inspection = Inspection(target, ignore, kinds or {})
        for batch in batches:
            inspection.add(to_chunk(batch).table)
        return cls(*inspection.decide(), unseen)

    @classmethod
    def identity(cls, names: Sequence[str]) -> Preparation:
        """Make a preparation that leaves numeric columns unchanged.

        Parameters
        ----------
        names : sequence of str
            Names of the columns.

        Returns
        -------
        Preparation
            The preparation.
        """
        return cls([Unchanged(name) for name in names])

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        return tuple(column.name for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, the columns of `transform`."""
        return tuple(name for column in self.columns for name in column.features)

    def transform(self, data: Any, notes: Counter[str] | None = None) -> Array:
        """Encode rows as numbers.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, or dict of columns
            The rows.
        notes : collections.Counter, optional
            Counts cells that differ from the training rows (new categories, unexpected missing cells), by message.

        Returns
        -------
        ndarray of shape (n, len(names))
            The features.
        """
        chunk = to_chunk(data)
        self.check(chunk.table.column_names)
        context = EncodingContext(chunk.first, self.unseen, Counter() if notes is None else notes)
        parts = [column.encode(get_column(chunk.table, column.name), context) for column in self.columns]
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def check(self, names: Sequence[str]) -> None:
        """Check that a table has all columns that the preparation reads.

        Parameters
        ----------
        names : sequence of str
            Names of the columns of the table.

        Raises
        ------
        BadInput
            If a column is absent.
        """
        have = set(names)
        absent = [name for name in self.inputs if name not in have]
        if absent:
            more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
            hint = suggest_column(absent[0], list(names), 8)
            raise BadInput(
                f"the data have no column {absent[0]!r}{more}, which the model was trained with; {hint}"
            )

    def to_table(self, data: Any, more: Sequence[str] = ()) -> Any:
        """Convert the cells of numeric columns to numbers.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, or dict of columns
            The rows.
        more : sequence of str, optional
            Further columns to keep unchanged.

        Returns
        -------
        pyarrow.Table
            The columns that `transform` reads, and `more`.
        """
        chunk, arrow = to_chunk(data), import_pyarrow()
        columns = {name: get_column(chunk.table, name) for name in (*self.inputs, *more)}
        for column in self.columns:
            if not isinstance(column, Category):
                value, lacks = to_numbers(columns[column.name], column.name, chunk.first)
                columns[column.name] = arrow.array(value, mask=lacks)
        return arrow.table(columns)

    def labels(self, data: Any) -> NDArray[Any]:
        """Read the labels.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, or dict of columns
            The rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels as whole numbers or text. A missing label raises `BadInput`.
        """
        chunk = to_chunk(data)
        if self.target is None:
            raise BadOption(
                "this preparation has no target: name it with target= when you call Preparation.fit."
            )
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
                f"column {self.target.name!r} has labels that are not whole numbers, as those of the training rows were ({error})."
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Convert to a dict that JSON can store.

        Returns
        -------
        dict
            Everything that `from_json` needs.
        """
        return {
            "columns": [{"kind": KIND_NAMES[type(c)], **c._asdict()} for c in self.columns],
            "target": None if self.target is None else self.target._asdict(),
            "left_out": [c._asdict() for c in self.ignored],
            "unseen": self.unseen,
        }

    @classmethod
    def from_json(cls, value: Any) -> Preparation:
        """Make a preparation from the result of `to_json`.

        Parameters
        ----------
        value : dict
            The result of `to_json`. Anything else raises `BadFile`.

        Returns
        -------
        Preparation
            The preparation.
        """
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
            raise BadFile("the preparation of the columns is damaged: it has a column twice, or no columns.")
        return made

    def describe(self) -> list[tuple[str, str]]:
        """Describe how each column is used.

        Returns
        -------
        list of (str, str)
            Name and description of each column, including ignored ones.
        """
        return [(c.name, c.describe()) for c in (*self.columns, *self.ignored)]


def to_chunk(data: Any) -> Chunk:
    """Convert a table, a record batch, a data frame or a dict of columns to a chunk."""
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
            "a cell has a whole number of more than 19 digits: write it with a decimal point, or use other units."
        ) from None
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"the data are not a table with named columns ({error!s:.200}): give a data frame or a pyarrow table."
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
        raise TypeError(f"{value!r:.40} is not text")
    return value
