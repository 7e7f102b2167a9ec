"""Encode tables as numbers with a known preparation, which JSON can store.

Nothing here needs scikit-learn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import chain
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
LARGEST = 1e200  # larger cells cannot be standardised: their squares overflow
KIND_NAMES = {kind: name for name, kind in KINDS.items()}


class ColumnEncoder:
    """What a fitted `Preparation` knows of its columns: enough to predict.

    `target` and `strict` have the same meaning as in `Preparation`.
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
        return tuple(chain.from_iterable(column.features for column in self.columns_))

    def encode(self, data: Any, notes: Counter[str] | None = None) -> Floats:
        """Encode rows as an array of numbers.

        Unlike `transform`, it never returns a frame and does not note new columns.

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
        if notes is None:
            notes = Counter()
        context = EncodingContext(chunk.first, notes, self.strict)
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
            label raises `BadInput`: see `find_labelled`.
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
        """Create a fitted preparation from the result of `to_json`.

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
            target_name = None if target is None else target.name
            made = cls(target_name, strict=bool(value.get("strict")))
            made._store(columns, target, ignored, names)
        except BadFile:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"{type(error).__name__} {error!s:.100}"
            raise BadFile(
                f"the preparation of the columns is damaged ({why})."
            ) from error

        inputs = set(made.inputs)
        repeated = len(inputs) < len(made.inputs)
        if repeated or not inputs or not inputs <= set(names):
            raise BadFile(
                "the preparation of the columns is damaged: a column occurs twice or is "
                "unknown, or there are no columns."
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
    """Return an encoder of numeric columns that leaves them as they are."""
    return ColumnEncoder()._store([Unchanged(name) for name in names], None, (), names)


def encode_table(encoder: ColumnEncoder, chunk: Chunk, notes: Counter[str]) -> Floats:
    """Encode a whole table; count the cells of columns that are new."""
    note_new_columns(encoder, chunk.table.column_names, chunk.table.num_rows, notes)
    return encoder.encode(chunk, notes)


def check_columns(
    encoder: ColumnEncoder, names: Sequence[str], where: object = ""
) -> None:
    """Raise BadInput if `names` lacks a column that the encoder reads.

    `where` is the file of the table, for the message.
    """
    have = set(names)
    absent = [name for name in encoder.inputs if name not in have]
    if not absent:
        return

    more = ""
    if len(absent) > 1:
        more = f" (and {len(absent) - 1} more)"
    lacks = f"{where} has" if where else "the data have"
    hint = suggest_column(absent[0], list(names), 8)
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
        few = ", ".join(map(repr, new[:5]))
        if len(new) > 5:
            few += ", ..."
        note = f"columns that the training rows did not have are ignored: {few}"
        notes[note] += n_rows * len(new)


def store_column(column: Column) -> dict[str, Any]:
    """Convert a column to a dict that JSON can store; omits defaults."""
    stored: dict[str, Any] = {"kind": KIND_NAMES[type(column)]}
    defaults = column._field_defaults
    for name, value in column._asdict().items():
        if name not in defaults or value != defaults[name]:
            stored[name] = value
    return stored


def read_column(value: dict[str, Any]) -> Column:
    """Create a column from the result of `store_column`.

    Damage raises KeyError, TypeError or ValueError. A column of an old version that
    cannot be read any more raises BadFile.
    """
    if value["kind"] == "group" or value.get("values"):
        raise BadFile(
            f"column {value['name']!r} names groups of rows, which cavity 0.3 encoded "
            "by their classes: load the model with cavity 0.3 (pip install "
            "'cavity<0.4'), or fit again with the column as a category."
        )

    column: Column = read_field(value, KINDS[value["kind"]])
    if not _is_valid(column):
        raise ValueError(f"column {column.name!r} is damaged")

    return column


def read_field(value: Any, kind: Any) -> Any:
    """Convert a JSON value to a type: a named tuple, or the type of one of its fields.

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
        stored = [name for name in kind._fields if name in value]
        return kind(**{name: read_field(value[name], types[name]) for name in stored})
    if kind is str and not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is not text")
    if kind is float and not np.isfinite(float(value)):
        raise ValueError(f"{value!r:.40} is not finite")

    return kind(value)


def _is_valid(column: Column) -> bool:
    if isinstance(column, Number):
        return _is_valid_number(column)
    if isinstance(column, Category):
        return len(set(column.levels)) == len(column.levels)
    if isinstance(column, Text):
        if not column.grams or not column.examples:
            return False

        W = column.find_weights()
        return bool(W.size and np.isfinite(W).all())
    if isinstance(column, Date):
        return _is_valid_date(column)

    return True


def _is_valid_number(column: Number) -> bool:
    given = (column.mean, column.low, column.high)
    sizes = [abs(value) for value in given if value is not None]
    variance = column.scale * column.scale
    in_range = 0 < variance < np.inf and max(sizes) < LARGEST
    return column.scale > 0 and in_range and column.style in (None, *STYLES)


def _is_valid_date(column: Date) -> bool:
    parts = set(column.parts)
    if not parts or len(parts) < len(column.parts) or not parts <= set(PARTS):
        return False
    if any(len(unit) != 2 for unit in (column.days, column.years)):
        return False

    scales = column.days[1], column.years[1]
    units = np.array([*column.days, *column.years, column.low, column.high])
    in_range = bool((np.abs(units) < MAX_DAYS).all())
    return in_range and min(scales) > 0 and column.order in ORDERS
