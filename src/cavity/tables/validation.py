"""Rows in memory as numbers: validated, or prepared if their columns are mixed.

Errors name the column and say what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Floats
from cavity.common.user_warnings import warn_user
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
        """The preparation, or one that leaves numbers as they are.

        Columns without names are column 0, column 1, ...
        """
        if self.preparation is not None:
            return self.preparation

        names = self.names or [f"column {j}" for j in range(self.n)]
        return leave_unchanged([str(name) for name in names])

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
        if names is not None:
            names = tuple(names)
        if not np.isnan(rows).any() or np.isinf(rows).any():
            _refuse_infinite(rows, names)
            return rows, Features(owner, rows.shape[1], names)

        if not is_frame(X):
            X = rows

    from cavity.tables.columns.preparation import Preparation

    chunk = to_chunk(X)
    prepare = Preparation().fit(chunk, y)
    warn_unused(prepare)
    return prepare.encode(chunk), prepared_features(owner, prepare)


@as_bad_input()
def check_rows(
    X: Any, features: Features, center: Callable[[], Floats] | None = None
) -> Floats:
    """Return X as a finite float64 table.

    With `center`, missing cells become the centres of their columns, with one warning.
    """
    prepare = features.preparation
    reader = _reader(features.owner)
    reader.n_features_in_ = features.n
    if isinstance(X, Prepared):
        X = X.X
    elif prepare is not None:
        X = _prepare_rows(X, prepare, features.owner)
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
    """Return an object on which scikit-learn's validation can store features.

    Its class has the name of the estimator.
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

    # sums must not depend on the memory layout, to the last bit
    return np.ascontiguousarray(X)


def _prepare_rows(X: Any, prepare: ColumnEncoder, owner: str) -> Floats:
    """Encode new rows; one warning counts what the training rows did not have."""
    notes = Counter[str]()
    names = prepare.feature_names_in_.tolist()
    rows = encode_table(prepare, to_chunk(X, names), notes)
    numbered = names == [f"x{j}" for j in range(len(names))]
    if not is_frame(X) and not isinstance(X, dict) and not numbered:
        warn_user(
            f"X does not have valid feature names, but {owner} was fitted with feature "
            "names"
        )

    if not len(rows):
        raise BadInput(
            "X has 0 sample(s) while a minimum of 1 is required: check how rows were "
            "selected."
        )

    warn_notes(notes)
    return rows


def _read_texts(X: Any) -> Any:
    """Convert a frame with texts to a table of numbers.

    Texts that are not numbers become missing, with one warning.
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
    if not missing.any():
        return rows

    context = EncodingContext(0, Counter())
    for name, count in zip(names, missing.sum(0).tolist(), strict=True):
        context.note_missing(name, count, MEAN_IS_USED)
    warn_notes(context.notes)
    return np.where(missing, center(), rows)


def _refuse_infinite(X: Floats, names: Any) -> None:
    if not np.isfinite(X).all():
        raise BadInput(
            f"Input X contains NaN or infinity ({describe_bad_cells(X, names)}): make "
            "infinite cells NaN, clip them, or drop these rows."
        )


def warn_notes(notes: Counter[str]) -> None:
    """Warn of all cells that differ from the training rows, in one warning."""
    if notes:
        found = [f"{note} ({count_cells(count)})" for note, count in notes.items()]
        warn_user(f"X differs from the training rows: {'; '.join(found)}.")


def warn_unused(prepare: ColumnEncoder) -> None:
    """Warn of informative columns that a fit does not use, in one warning."""
    unused = [f"{c.name!r} ({c.why})" for c in prepare.ignored_ if c.informs]
    if unused:
        named = ", ".join(unused[:MAX_NAMES])
        more = ""
        if len(unused) > MAX_NAMES:
            more = f" and {len(unused) - MAX_NAMES} more columns"
        warn_user(f"not used as features: {named}{more}.")
