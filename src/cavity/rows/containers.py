"""What rows come in: frames, Arrow tables, tensors, masked and sparse arrays, without loading their libraries."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NoReturn

import numpy as np

from cavity.errors import BadInput

DENSE_BYTES = 128 << 20  # maximum size of a sparse table as a dense one
MAX_COLUMNS = 5_000  # of a sparse table that a model is fitted to


def from_torch(value: Any) -> Any:
    """Return a torch tensor, of any device and number type, as a NumPy array; anything else as it is."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return (value.float() if "bfloat16" in str(value.dtype) else value).numpy()  # NumPy has no bfloat16


def refuse_masked(value: Any, what: str) -> None:
    """Refuse a masked array with masked cells: they are missing values, and conversions would ignore the mask."""
    masked = int(np.ma.getmaskarray(value).sum()) if isinstance(value, np.ma.MaskedArray) else 0
    if masked:
        raise BadInput(
            f"{what} is a masked array with {masked} masked cells, which are missing values. Fill them in, for example with "
            f"{what}.filled(...) or a SimpleImputer on {what}.filled(numpy.nan), or drop these rows."
        )


def is_missing(value: Any) -> bool:
    """Return whether a cell is missing: None, NA, NaT or NaN."""
    unknown = value is None or type(value).__name__ in ("NAType", "NaTType")
    return unknown or bool(np.isscalar(value) and value != value)


def is_frame(X: Any) -> bool:
    """Return whether X is a data frame or an Arrow table: it has named columns."""
    return hasattr(X, "columns") and hasattr(X, "shape")


def is_arrow(X: Any) -> bool:
    """Return whether X is a table of pyarrow, without loading pyarrow."""
    return type(X).__module__.partition(".")[0] == "pyarrow"


def list_names(X: Any) -> list[Any]:
    """Return the names of a table's columns; none for an array or a dict."""
    return list(X.column_names if is_arrow(X) else getattr(X, "columns", ()))


def refuse_foreign(X: Any) -> None:
    """Refuse masked cells, two columns of one name, and complex numbers."""
    refuse_masked(X, "X")
    if isinstance(X, np.ndarray):
        if X.dtype.kind == "c":
            refuse_complex(int(np.atleast_2d(X).imag.any(0).argmax()))
        return
    names = list_names(X)
    twice = next((name for name, count in Counter(names).items() if name != "" and count > 1), None)
    if twice is not None:
        raise BadInput(f"two columns have the name {twice!r}: rename one of them.")
    for name in () if is_arrow(X) else names:
        if getattr(getattr(X[name], "dtype", None), "kind", "") == "c":
            refuse_complex(name)


def refuse_complex(name: Any) -> NoReturn:
    raise BadInput(
        f"Complex data not supported: column {name!r} has complex numbers; give their real and imaginary parts as two columns."
    )


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
    """Return a tensor or a sparse table as a dense array, anything else unchanged."""
    if not is_sparse(X):
        return from_torch(X)
    if is_large(X):
        raise BadInput(
            f"X is sparse with {X.shape[0]:,} rows and {X.shape[1]:,} columns, and all its rows are needed at once, but a dense "
            f"table would be larger than {DENSE_BYTES >> 20} MiB. Give fewer rows or columns; or fit with positive weights and a "
            "method that reads rows in batches (the default of GPClassifier, 'svi' of GPRegressor)."
        )
    return X.toarray()
