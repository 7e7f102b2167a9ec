"""Encode tables as numbers with columns whose preparation is known; stored as JSON.

Nothing here needs scikit-learn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from cavity.common.text_tables import list_names
from cavity.common.types import Flags, Floats
from cavity.errors import BadFile, BadInput, BadOption, name_in_errors
from cavity.tables.arrow_tables import Chunk, get_column, to_chunk
from cavity.tables.columns.cells import PATTERNS, STYLES, EncodingContext
from cavity.tables.columns.column_kinds import (
    Category,
    Column,
    Date,
    Ignored,
    Number,
    Target,
    Unchanged,
)
from cavity.tables.columns.dates import MAX_DAYS, ORDERS, PARTS
from cavity.tables.columns.target_labels import find_labelled_rows, read_label_values
from cavity.tables.columns.text_kind import Text

KINDS: Any = {
    "number": Number,
    "category": Category,
    "text": Text,
    "date": Date,
    "plain": Unchanged,
}


class ColumnEncoder:
    """What a fitted `Preparation` knows of its columns, without the scikit-learn
    transformer: enough to predict.

    `target` and `strict` are those of `Preparation`.
    """

    columns_: tuple[Column, ...]
    target_: Target | None
    ignored_: tuple[Ignored, ...]
    feature_names_in_: NDArray[Any]
    n_features_in_: int

    def __init__(self, target: str | None = None, *, strict: bool = False) -> None:
        self.target = target
        self.strict = strict

    def _store(
        self,
        columns: list[Column],
        target: Target | None,
        ignored: Iterable[Ignored],
        names: Sequence[str],
    ) -> Self:
        self.columns_ = tuple(columns)
        self.target_ = target
        self.ignored_ = tuple(ignored)
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        return self

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        return tuple(column.name for column in self.columns_)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features, the columns of `transform`."""
        return tuple(name for column in self.columns_ for name in column.features)

    def encode(self, data: Any, notes: Counter[str] | None = None) -> Floats:
        """Encode rows as numbers: `transform`, but always an array, and without notes
        on new columns.

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
        chunk = self._to_chunk(data)
        check_columns(self, chunk.table.column_names, chunk.where)
        context = EncodingContext(
            chunk.first, Counter() if notes is None else notes, self.strict
        )
        with name_in_errors(chunk.where):
            parts = [
                column.encode(get_column(chunk.table, column.name), context)
                for column in self.columns_
            ]
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def _to_chunk(self, data: Any) -> Chunk:
        return to_chunk(data, self.feature_names_in_.tolist())

    def labels(self, data: Any) -> NDArray[Any]:
        """Read the labels.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, or dict of columns
            The rows.

        Returns
        -------
        ndarray of shape (n,)
            Labels as whole numbers or text; floats if the target is a number. A missing
            one raises `BadInput`: see `find_labelled`.
        """
        if self.target_ is None:
            raise BadOption(
                "this preparation has no target: name it with Preparation(target=...)."
            )
        return read_label_values(self._to_chunk(data), self.target_)

    def find_labelled(self, data: Any) -> Flags:
        """Return which rows have a label.

        Parameters
        ----------
        data : data frame, pyarrow table, record batch, or dict of columns
            The rows.

        Returns
        -------
        ndarray of shape (n,)
            False for rows without a label. If strict, such a row raises `BadInput`.
        """
        assert self.target_ is not None
        return find_labelled_rows(self._to_chunk(data), self.target_, self.strict)

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
            "features": self.feature_names_in_.tolist(),
            "strict": self.strict,
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
            columns = [read_column(c) for c in value["columns"]]
            target = read_field(value["target"], Target | None)
            if target is not None:
                PATTERNS[target.style]  # a KeyError if the style is unknown
            ignored = read_field(value["left_out"], tuple[Ignored, ...])
            # older files do not store the order
            known = [c.name for c in (*columns, *ignored)]
            names = read_field(value.get("features", known), tuple[str, ...])
            made = cls(
                None if target is None else target.name,
                strict=bool(value.get("strict")),
            )
            made._store(columns, target, ignored, names)
        except BadFile:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"{type(error).__name__} {error!s:.100}"
            raise BadFile(
                f"the preparation of the columns is damaged ({why})."
            ) from error
        if (
            len(set(made.inputs)) < len(made.inputs)
            or not made.inputs
            or not set(made.inputs) <= set(names)
        ):
            raise BadFile(
                "the preparation of the columns is damaged: it has a column twice, or "
                "no columns."
            )
        return made

    def describe(self) -> list[tuple[str, str]]:
        """Describe how each column is used.

        Returns
        -------
        list of (str, str)
            Name and description of each column, including ignored ones.
        """
        return [(c.name, c.describe()) for c in (*self.columns_, *self.ignored_)]


def leave_unchanged(names: Sequence[str]) -> ColumnEncoder:
    """Return the encoder of numeric columns that are used as they are."""
    return ColumnEncoder()._store([Unchanged(name) for name in names], None, (), names)


def encode_table(encoder: ColumnEncoder, chunk: Chunk, notes: Counter[str]) -> Floats:
    """Encode a whole table, and count the cells of columns that the training rows did
    not have.
    """
    note_new_columns(encoder, chunk.table.column_names, chunk.table.num_rows, notes)
    return encoder.encode(chunk, notes)


def check_columns(
    encoder: ColumnEncoder, names: Sequence[str], where: object = ""
) -> None:
    """Raise BadInput if a table with columns of these names lacks one that the encoder
    reads. `where`: its file.
    """
    have = set(names)
    absent = [name for name in encoder.inputs if name not in have]
    if absent:
        more = ""
        if len(absent) > 1:
            more = f" (and {len(absent) - 1} more)"
        hint = suggest_column(absent[0], list(names), 8)
        lacks = f"{where} has" if where else "the data have"
        raise BadInput(
            f"{lacks} no column {absent[0]!r}{more}, which the model was trained with; "
            f"{hint}"
        )


def suggest_column(name: str, names: Sequence[str], most: int = 12) -> str:
    """Suggest the column that a wrong name may mean, or list the columns."""
    folded = {known.casefold(): known for known in reversed(names)}
    near = get_close_matches(name.casefold(), folded, 1)
    if near:
        return f"did you mean {folded[near[0]]!r}?"
    return f"the columns are {list_names(list(map(repr, names)), most)}."


def note_new_columns(
    encoder: ColumnEncoder, names: Sequence[str], n_rows: int, notes: Counter[str]
) -> None:
    """Count the cells of columns that the training rows did not have."""
    known = {*encoder.feature_names_in_.tolist(), encoder.target}
    new = [name for name in names if name and name not in known]
    if new and n_rows:
        few = ", ".join(map(repr, new[:5])) + (", ..." if len(new) > 5 else "")
        notes[f"columns that the training rows did not have are ignored: {few}"] += (
            n_rows * len(new)
        )


def store_column(column: Column) -> dict[str, Any]:
    kind = next(name for name, kind in KINDS.items() if type(column) is kind)
    usual: dict[str, Any] = column._field_defaults
    told = {
        name: v
        for name, v in column._asdict().items()
        if name not in usual or v != usual[name]
    }
    return {"kind": kind, **told}


def read_column(value: dict[str, Any]) -> Column:
    """Return a column.

    Damage raises KeyError, TypeError or ValueError; what no version reads any more,
    BadFile.
    """
    if value["kind"] == "group" or value.get("values"):
        raise BadFile(
            f"column {value['name']!r} names groups of rows, which cavity 0.3 encoded "
            f"by their classes: load the model with "
            "cavity 0.3 (pip install 'cavity<0.4'), or fit again, the column as a "
            "category."
        )
    column: Column = read_field(value, KINDS[value["kind"]])
    if not _is_whole(column):
        raise ValueError(f"column {column.name!r} is damaged")
    return column


def read_field(value: Any, kind: Any) -> Any:
    """Return a value of JSON as the type that a named tuple declares, or as one.

    Damage raises TypeError or ValueError.
    """
    if get_origin(kind) is UnionType:
        if value is None:
            return None
        return read_field(value, get_args(kind)[0])
    if get_origin(kind) is tuple:
        return tuple(read_field(part, get_args(kind)[0]) for part in value)
    if hasattr(kind, "_fields"):
        types = get_type_hints(kind)
        return kind(
            **{
                name: read_field(value[name], types[name])
                for name in kind._fields
                if name in value
            }
        )
    if kind is str and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    if kind is float and not np.isfinite(float(value)):
        raise ValueError(f"{value!r:.40} is not finite")
    return kind(value)


def _is_whole(column: Column) -> bool:
    if isinstance(column, Number):
        return column.scale > 0 and column.style in (None, *STYLES)
    if isinstance(column, Category):
        return len(set(column.levels)) == len(column.levels)
    if isinstance(column, Text):
        if column.grams and column.examples:
            W = column.find_weights()
        else:
            W = np.empty(0)
        return bool(W.size and np.isfinite(W).all())
    if isinstance(column, Date):
        units = np.array([*column.days, *column.years, column.low, column.high])
        known = (
            set(column.parts) <= set(PARTS)
            and len(set(column.parts)) == len(column.parts) > 0
        )
        fit = (
            len(column.days) == len(column.years) == 2
            and min(column.days[1], column.years[1]) > 0
        )
        return (
            known
            and fit
            and column.order in ORDERS
            and bool((np.abs(units) < MAX_DAYS).all())
        )
    return True
