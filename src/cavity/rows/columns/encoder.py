"""Encode tables as numbers with columns whose preparation is known; stored as JSON. Nothing here needs scikit-learn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadFile, BadInput, BadOption
from cavity.rows.arrow_tables import Chunk, get_column, import_pyarrow, to_chunk
from cavity.rows.batches.source import Array
from cavity.rows.columns.column_json import read_column, read_ignored, read_target, read_text, store_column
from cavity.rows.columns.column_kinds import (
    Column,
    Ignored,
    Target,
    Unchanged,
    suggest_column,
)
from cavity.rows.columns.encoding_context import EncodingContext
from cavity.rows.columns.feature_groups import fold_weights
from cavity.rows.columns.target_labels import find_labelled_rows, read_label_values

UNSEEN = ("ignore", "error")


class ColumnEncoder:
    """What a fitted `Preparation` knows of its columns, without the scikit-learn transformer: enough to predict.

    `target`, `unseen` and `strict` are those of `Preparation`.
    """

    columns_: tuple[Column, ...]
    target_: Target | None
    ignored_: tuple[Ignored, ...]
    feature_names_in_: NDArray[Any]
    n_features_in_: int

    def __init__(self, target: str | None = None, *, unseen: str = "ignore", strict: bool = False) -> None:
        self.target = target
        self.unseen = unseen
        self.strict = strict

    def _store(
        self,
        columns: Iterable[Column],
        target: Target | None,
        ignored: Iterable[Ignored],
        names: Sequence[str],
    ) -> Self:
        if self.unseen not in UNSEEN:
            raise BadOption(f"unseen={self.unseen!r} is unknown; use one of {', '.join(map(repr, UNSEEN))}.")
        self.columns_, self.target_, self.ignored_ = tuple(columns), target, tuple(ignored)
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        return self

    @classmethod
    def identity(cls, names: Sequence[str]) -> Self:
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
        return cls()._store([Unchanged(name) for name in names], None, (), names)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        return tuple(column.name for column in self.columns_)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, the columns of `transform`."""
        return tuple(name for column in self.columns_ for name in column.features)

    def encode(self, data: Any, notes: Counter[str] | None = None) -> Array:
        """Encode rows as numbers: `transform`, but always an array, and without notes on new columns.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, dict of columns, or array
            The rows.
        notes : collections.Counter, optional
            As for `transform`.

        Returns
        -------
        ndarray of shape (n, len(names))
            The features.
        """
        chunk = self.to_chunk(data)
        self.check(chunk.table.column_names)
        context = EncodingContext(chunk.first, self.unseen, Counter() if notes is None else notes)
        parts = [column.encode(get_column(chunk.table, column.name), context) for column in self.columns_]
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def encode_table(self, X: Any, notes: Counter[str]) -> Array:
        """Encode a whole table, and count the cells of columns that the training rows did not have.

        Parameters
        ----------
        X : data frame, pyarrow table, record batch, dict of columns, or array
            The rows.
        notes : collections.Counter
            As for `transform`.

        Returns
        -------
        ndarray of shape (n, len(names))
            The features.
        """
        chunk = self.to_chunk(X)
        self.note_new_columns(chunk.table.column_names, chunk.table.num_rows, notes)
        return self.encode(chunk, notes)

    def to_chunk(self, data: Any) -> Chunk:
        """Convert a table of any kind to an Arrow table.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, dict of columns, or array
            The rows.

        Returns
        -------
        Chunk
            The rows as an Arrow table.
        """
        return to_chunk(data, self.feature_names_in_.tolist())

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

    def note_new_columns(self, names: Sequence[str], n_rows: int, notes: Counter[str]) -> None:
        """Count the cells of columns that the training rows did not have.

        Parameters
        ----------
        names : sequence of str
            Names of the columns of the table.
        n_rows : int
            Number of its rows.
        notes : collections.Counter
            As for `transform`.
        """
        known = {*self.feature_names_in_.tolist(), self.target}
        new = [name for name in names if name and name not in known]
        if new and n_rows:
            few = ", ".join(map(repr, new[:5])) + (", ..." if len(new) > 5 else "")
            notes[f"columns that the training rows did not have are ignored: {few}"] += n_rows * len(new)

    def to_table(self, data: Any, more: Sequence[str] = ()) -> Any:
        """Convert the cells of numeric columns to numbers, and dates to time stamps.

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
        chunk, arrow = self.to_chunk(data), import_pyarrow()
        cells = {name: get_column(chunk.table, name) for name in (*self.inputs, *more)}
        cells |= {c.name: c.simplify(cells[c.name], chunk.first) for c in self.columns_}
        return arrow.table(cells)

    def labels(self, data: Any) -> NDArray[Any]:
        """Read the labels.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, or dict of columns
            The rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels as whole numbers or text; floats if the target is a number. A missing one raises `BadInput`: see `find_labelled`.
        """
        if self.target_ is None:
            raise BadOption("this preparation has no target: name it with Preparation(target=...).")
        return read_label_values(self.to_chunk(data), self.target_)

    def find_labelled(self, data: Any) -> NDArray[np.bool_]:
        """Return which rows have a label.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, or dict of columns
            The rows.

        Returns
        -------
        ndarray of shape (n,)
            False for rows without a label. If `strict`, such a row raises `BadInput`.
        """
        assert self.target_ is not None
        return find_labelled_rows(self.to_chunk(data), self.target_, self.strict)

    def replace_columns(self, columns: Iterable[Column]) -> Self:
        """Return a fitted copy that reads the same columns in another way.

        Parameters
        ----------
        columns : iterable of Number, Group, Category, Text, Date or Unchanged
            The columns to read, in their order.

        Returns
        -------
        ColumnEncoder
            The copy, of the same class.
        """
        return copy(self)._store(columns, self.target_, self.ignored_, self.feature_names_in_.tolist())

    def to_json(self) -> dict[str, Any]:
        """Convert to a dict that JSON can store.

        Returns
        -------
        dict
            Everything that `from_json` needs.
        """
        return {
            "columns": [store_column(c) for c in self.columns_],
            "target": None if self.target_ is None else self.target_._asdict(),
            "left_out": [c._asdict() for c in self.ignored_],
            "unseen": self.unseen,
            "strict": self.strict,
            "features": self.feature_names_in_.tolist(),
        }

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Make a fitted preparation from the result of `to_json`.

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
            columns = [read_column(dict(c)) for c in value["columns"]]
            target, ignored = read_target(value["target"]), [read_ignored(c) for c in value["left_out"]]
            known = [c.name for c in (*columns, *ignored)]  # older files do not store the order
            names = [read_text(name) for name in value.get("features", known)]
            made = cls(
                None if target is None else target.name,
                unseen=value["unseen"],
                strict=bool(value.get("strict")),
            )
            made._store(columns, target, ignored, names)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadFile(
                f"the preparation of the columns is damaged ({type(error).__name__} {error!s:.100})."
            ) from error
        if len(set(made.inputs)) < len(made.inputs) or not made.inputs or not set(made.inputs) <= set(names):
            raise BadFile("the preparation of the columns is damaged: it has a column twice, or no columns.")
        return made

    def fold_relevance(self, weights: Array) -> Array:
        """Return the relevance of the table's columns from that of the features.

        Parameters
        ----------
        weights : ndarray of shape (C, len(names))
            Weights of the features.

        Returns
        -------
        ndarray of shape (C, n_features_in_)
            Weights of the columns; 0 for ignored columns.
        """
        place = {name: j for j, name in enumerate(self.feature_names_in_)}
        found = np.zeros((len(weights), self.n_features_in_))
        found[:, [place[name] for name in self.inputs]] = fold_weights(weights, self.columns_)
        return found

    def describe(self) -> list[tuple[str, str]]:
        """Describe how each column is used.

        Returns
        -------
        list of (str, str)
            Name and description of each column, including ignored ones.
        """
        return [(c.name, c.describe()) for c in (*self.columns_, *self.ignored_)]
