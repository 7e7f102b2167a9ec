"""Rows in memory as numbers: validated, or prepared if their columns are mixed.

Errors name the column and say what to do.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Floats
from cavity.errors import BadInput, as_bad_input
from cavity.tables.arrow_tables import (
    import_pyarrow,
    is_frame,
    is_numeric,
    refuse_foreign,
    to_chunk,
    to_dense,
)
from cavity.tables.columns.cells import EncodingContext, count_cells
from cavity.tables.columns.column_kinds import MEAN_IS_USED
from cavity.tables.columns.encoder import ColumnEncoder, encode_table, leave_unchanged
from cavity.tables.columns.row_numbers import has_row_numbers
from cavity.tables.pieces import describe_bad_cells

MAX_NAMES = 8  # columns that a warning names


class Features(NamedTuple):
    """The columns that a model was fitted on, after preparation."""

    owner: str  # class of the estimator, for messages
    n: int
    names: tuple[str, ...] | None = None
    preparation: ColumnEncoder | None = None  # how raw columns become these

    @property
    def encoder(self) -> ColumnEncoder:
        """The preparation, or that of numbers used as they are; columns without names
        are column 0, column 1, ...
        """
        names = self.names or [f"column {j}" for j in range(self.n)]
        return self.preparation or leave_unchanged([str(name) for name in names])

    @property
    def target(self) -> str | None:
        """Name of the column of the labels, if it is known."""
        target = self.encoder.target_
        return None if target is None else target.name


@dataclass(frozen=True)
class Prepared:
    """Rows that a preparation has already encoded as features.

    `preparation` is needed in `fit` only.
    """

    X: Floats  # [N D]
    preparation: ColumnEncoder | None = None


def prepared_features(owner: str, preparation: ColumnEncoder) -> Features:
    names = preparation.names
    return Features(owner, len(names), names, preparation)


@as_bad_input()
def read_rows(X: Any, owner: str, y: Any = None) -> tuple[Floats, Features]:
    """Return X as a finite float64 table, and its features.

    A table with mixed columns or missing cells is prepared.
    """
    if isinstance(X, Prepared):
        assert X.preparation is not None
        features = prepared_features(owner, X.preparation)
        return check_rows(X, features), features
    X = to_dense(X)
    refuse_foreign(X)
    if not isinstance(X, dict) and is_numeric(X) and not has_row_numbers(X):
        reader = _reader(owner)
        rows = _convert(X, reader)
        names = getattr(reader, "feature_names_in_", None)
        if np.isfinite(rows).all() or np.isinf(rows).any():
            _refuse_infinite(rows, names)
            return rows, Features(
                owner, rows.shape[1], None if names is None else tuple(names)
            )
        X = X if is_frame(X) else rows
    from cavity.tables.columns.preparation import Preparation

    chunk = to_chunk(X)
    prepare = Preparation().fit(chunk, y)
    warn_unused(prepare)
    return prepare.encode(chunk), prepared_features(owner, prepare)


@as_bad_input()
def check_rows(
    X: Any, features: Features, center: Callable[[], Floats] | None = None
) -> Floats:
    """Return X as a finite float64 table; with `center`, a cell without a number
    becomes its column's, with one warning.
    """
    prepare = features.preparation
    reader = _reader(features.owner)
    reader.n_features_in_ = features.n
    if prepare is not None and not isinstance(X, Prepared):
        X = _prepare_rows(X, prepare, features.owner)
    elif isinstance(X, Prepared):
        X = X.X
    else:
        X = to_dense(X)
        refuse_foreign(X)
        if not is_numeric(X):
            X = _read_texts(X)
        if features.names is not None:
            reader.feature_names_in_ = np.array(features.names, dtype=object)
    rows = _convert(X, reader, reset=False)
    if center is not None and not np.isinf(rows).any():
        rows = _fill_missing(rows, features.encoder.names, center)
    _refuse_infinite(rows, features.names)
    return rows


def _reader(owner: str) -> Any:
    """Return an object of the estimator's name that scikit-learn's validation can
    remember features on.
    """
    from sklearn.base import BaseEstimator

    return type(owner, (BaseEstimator,), {})()


def _convert(X: Any, reader: Any, reset: bool = True) -> Floats:
    """Return X as float64, with NaN for missing cells."""
    from sklearn.utils.validation import validate_data

    try:
        X = validate_data(
            reader, X, reset=reset, dtype=np.float64, ensure_all_finite=False
        )
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise BadInput(
            f"{error}; give a data frame, which is prepared: pandas.DataFrame(X)."
        ) from error
    # sums, to the last bit, must not depend on the layout
    return np.ascontiguousarray(X)


def _prepare_rows(X: Any, prepare: ColumnEncoder, owner: str) -> Floats:
    """Encode new rows as features; one warning counts what the training rows did not
    have.
    """
    notes: Counter[str] = Counter()
    rows = encode_table(prepare, to_chunk(X, prepare.feature_names_in_.tolist()), notes)
    numbered = prepare.feature_names_in_.tolist() == [
        f"x{j}" for j in range(prepare.n_features_in_)
    ]
    if not is_frame(X) and not isinstance(X, dict) and not numbered:
        warnings.warn(
            f"X does not have valid feature names, but {owner} was fitted with feature "
            f"names",
            stacklevel=2,
        )
    if not len(rows):
        raise BadInput(
            "X has 0 sample(s) while a minimum of 1 is required: check how rows were "
            "selected."
        )
    warn_notes(notes)
    return rows


def _read_texts(X: Any) -> Any:
    """Return a frame with texts as a table of numbers; one warning counts those that
    are not numbers and are missing.
    """
    notes = Counter[str]()
    chunk = to_chunk(X)
    names = chunk.table.column_names
    rows = leave_unchanged(names).encode(chunk, notes)
    warn_notes(notes)
    return import_pyarrow().table(dict(zip(names, rows.T, strict=True)))


def _fill_missing(
    rows: Floats, names: Sequence[str], center: Callable[[], Floats]
) -> Floats:
    """Replace missing cells by the centres of their columns, with one warning."""
    missing = np.isnan(rows)
    notes = Counter[str]()
    for j in map(int, np.flatnonzero(missing.any(0))):
        EncodingContext(0, notes).note_missing(
            names[j], int(missing[:, j].sum()), MEAN_IS_USED
        )
    warn_notes(notes)
    if notes:
        return np.where(missing, center(), rows)
    return rows


def _refuse_infinite(X: Floats, names: Any) -> None:
    if not np.isfinite(X).all():
        raise BadInput(
            f"Input X contains NaN or infinity ({describe_bad_cells(X, names)}): make "
            f"infinite cells NaN, clip them, or drop rows."
        )


def warn_notes(notes: Counter[str]) -> None:
    """Warn once of all cells that differ from the training rows."""
    if notes:
        found = [f"{note} ({count_cells(count)})" for note, count in notes.items()]
        warnings.warn(
            f"X differs from the training rows: {'; '.join(found)}.",
            UserWarning,
            stacklevel=2,
        )


def warn_unused(prepare: ColumnEncoder) -> None:
    """Warn once of the columns that a fit does not use, except those without
    information.
    """
    unused = [c for c in prepare.ignored_ if c.informs]
    if unused:
        named = ", ".join(f"{c.name!r} ({c.why})" for c in unused[:MAX_NAMES])
        more = ""
        if len(unused) > MAX_NAMES:
            more = f" and {len(unused) - MAX_NAMES} more columns"
        warnings.warn(
            f"not used as features: {named}{more}.", UserWarning, stacklevel=2
        )
