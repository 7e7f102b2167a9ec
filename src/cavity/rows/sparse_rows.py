"""Sparse rows of SciPy: dense at once if the table is small, otherwise a block at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput

DENSE_BYTES = 128 << 20  # maximum size of a sparse table as a dense one
MAX_COLUMNS = 5_000  # of a sparse table that a model is fitted to


class SparseRows:
    """Rows that are indexed like those of an array and are dense only when they are read."""

    def __init__(self, X: Any) -> None:
        self.ndim, self.shape, self.dtype = X.ndim, X.shape, X.dtype
        self._rows = X.tocsr()

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        return np.asarray(self._rows[rows].toarray())


def is_sparse(X: Any) -> bool:
    """Return whether X is a sparse array or matrix of SciPy, without loading SciPy."""
    return hasattr(type(X), "tocsr")  # not of X: a frame may have a column of that name


def is_large(X: Any) -> bool:
    return bool(8 * math.prod(X.shape) > DENSE_BYTES)


def check_columns(X: Any) -> None:
    """Refuse to fit a model to a sparse table with too many columns."""
    if is_sparse(X) and X.shape[-1] > MAX_COLUMNS:
        raise BadInput(
            f"X is sparse and has {X.shape[-1]:,} columns; a model takes up to {MAX_COLUMNS:,} of them. Reduce them first, for "
            "example with make_pipeline(TruncatedSVD(100), ...), SelectKBest, or max_features= of TfidfVectorizer."
        )


def to_dense(X: Any) -> Any:
    """Return a sparse table as a dense array, anything else unchanged."""
    if not is_sparse(X):
        return X
    if is_large(X):
        raise BadInput(
            f"X is sparse with {X.shape[0]:,} rows and {X.shape[1]:,} columns, and all its rows are needed at once, but a dense "
            f"table would be larger than {DENSE_BYTES >> 20} MiB. Give fewer rows or columns; or fit with positive weights and a "
            "method that reads rows in batches (the default of GPClassifier, 'svi' of GPRegressor)."
        )
    return X.toarray()
