"""Rows as features, with the table columns that the features come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Floats, Ints
from cavity.errors import BadInput
from cavity.prediction.model import FittedModel, as_array
from cavity.tables.arrow_tables import get_column, import_pyarrow, to_chunk
from cavity.tables.columns.cells import EncodingContext, to_numbers, to_text
from cavity.tables.columns.column_kinds import Category, Column, Date
from cavity.tables.columns.dates import DAY, to_days
from cavity.tables.columns.encoder import suggest_column
from cavity.tables.columns.feature_groups import group_features
from cavity.tables.columns.text_kind import Text
from cavity.tables.validation import Features, Prepared, check_rows

SECONDS = 10.0  # for an explanation that may use a sample of the rows
PROBED = 100  # rows whose predictions are timed; fewer are never drawn


class RawRows(NamedTuple):
    """Features of rows, and the cells that they come from."""

    X: Floats  # [n D]
    names: tuple[str, ...]  # columns of the table
    owner: Ints  # [D], column number of each feature
    columns: tuple[Column | None, ...]  # their preparation; None: a column is a feature
    table: Any | None  # Arrow table; None if columns are features

    def find(self, column: Any) -> int:
        """Return the number of a column that the model uses, by number or name."""
        place = find_column(column, self.names)
        if not (self.owner == place).any():
            raise BadInput(
                f"the model does not use the column {self.names[place]!r}: predictions "
                "do not depend on it."
            )

        return place

    def kind(self, j: int) -> str:
        """Return "number", "category" or "date"."""
        column = self.columns[j]
        if isinstance(column, Category | Text):
            return "category"
        if isinstance(column, Date):
            return "date"

        return "number"

    def cells(self, j: int) -> NDArray[Any]:
        """Return the cells of a column: numbers, dates (datetime64) or texts.

        Missing cells are NaN, NaT or None.
        """
        column = self.columns[j]
        if self.table is None or column is None:
            return np.asarray(self.X[:, self.owner == j][:, 0])

        cells = get_column(self.table, self.names[j])
        if isinstance(column, Category | Text):
            return np.array(to_text(cells).to_pylist(), dtype=object)
        if isinstance(column, Date):
            days = to_days(cells, column.order, column.name, 0)
            return (days * DAY * 1e6).round().astype("datetime64[us]")

        return to_numbers(cells, column.name, 0, getattr(column, "style", None))[0]

    def encode(self, j: int, values: NDArray[Any]) -> Floats:
        """Encode values of a column as its features, [K d]."""
        column = self.columns[j]
        if column is None or self.table is None:
            return np.asarray(values, dtype=np.float64)[:, None]

        arrow = import_pyarrow()
        kinds = {
            "category": "string",
            "date": arrow.timestamp("us"),
            "number": "float64",
        }
        cells = arrow.array(values, type=kinds[self.kind(j)], from_pandas=True)
        return column.encode(cells, EncodingContext(0, Counter()))

    def replace(self, j: int, block: Floats, rows: Floats) -> Floats:
        """Return a copy of rows [n D] with a column's features set to [n d] or [d]."""
        changed = rows.copy()
        changed[:, self.owner == j] = block
        return changed


def find_column(column: Any, names: tuple[str, ...]) -> int:
    """Return the number of a column, by number or name."""
    if isinstance(column, int | np.integer) and not isinstance(column, bool):
        if not -len(names) <= column < len(names):
            raise BadInput(
                f"there is no column {column}: the table has {len(names)} columns."
            )

        return int(column) % len(names)
    if str(column) not in names:
        raise BadInput(
            f"there is no column {column!r}; {suggest_column(str(column), list(names))}"
        )

    return names.index(str(column))


def find_columns(features: Features) -> tuple[tuple[str, ...], Ints]:
    """Return the column names of the table, and the column number of each feature."""
    prepare = features.encoder
    names = tuple(map(str, prepare.feature_names_in_))
    known = {name: j for j, name in enumerate(names)}
    place = np.array([known[name] for name in prepare.inputs])
    return names, place[group_features(prepare.columns_)[1]]


def read_raw_rows(X: Any, features: Features, model: FittedModel) -> RawRows:
    """Read rows of any kind that predictions take, except sources in pieces."""
    if isinstance(X, RawRows):
        return X

    names, owner = find_columns(features)
    prepare = features.preparation
    if prepare is None or isinstance(X, Prepared):
        is_arrow = type(X).__module__.startswith("pyarrow")
        if is_arrow and hasattr(X, "to_pandas"):
            X = X.to_pandas()
        rows = check_rows(X, features, lambda: as_array(model.center))
        return RawRows(rows, names, owner, (None,) * len(names), None)

    rows = check_rows(X, features)
    known = {column.name: column for column in prepare.columns_}
    columns = tuple(known.get(name) for name in names)
    return RawRows(rows, names, owner, columns, to_chunk(X, list(names)).table)


def count_affordable(
    predict: Callable[[Floats], Any], X: Floats, times: int, seconds: float = SECONDS
) -> int:
    """Return how many rows of X can be predicted so many times in these seconds.

    All, or PROBED · 2^k: the number rarely changes between runs. Two predictions tell
    the speed, after a first one that loads what is needed.
    """
    if len(X) <= PROBED:
        return len(X)

    n = PROBED
    predict(X[:n])
    began = perf_counter()
    predict(X[:n])
    pace = (perf_counter() - began) / n
    n = min(len(X), max(n, int(0.02 * seconds / pace)))
    began = perf_counter()
    predict(X[:n])
    pace = (perf_counter() - began) / n
    room = seconds / (pace * times)
    if room >= len(X):
        return len(X)

    return min(len(X), PROBED * 2 ** max(0, int(np.log2(room / PROBED))))


def choose_rows(n: int, most: int, seed: int) -> Ints:
    """Choose at most `most` of n rows at random, in their order."""
    if n <= most:
        return np.arange(n)

    return np.sort(np.random.default_rng(seed).choice(n, most, replace=False))
