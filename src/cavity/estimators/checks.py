"""Reading the user's table: errors that name the column and say what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from cavity.errors import BadInput

Array = NDArray[np.float64]


def check_rows(estimator: Any, X: Any, reset: bool) -> Array:
    """X as a finite float64 table; at fit (`reset`) its columns are remembered, later they are compared."""
    _refuse_text(X)
    X = validate_data(
        estimator, X, reset=reset, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1
    )
    _refuse_missing(X, getattr(estimator, "feature_names_in_", None))
    return np.asarray(X)


def check_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """y as a one-dimensional array of class labels, one a row."""
    if y is None:
        raise BadInput("This classifier requires y to be passed, but the target y is None.")
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    y = column_or_1d(y, warn=True)
    if len(y) != n_rows:
        raise BadInput(f"X has {n_rows} rows and y has {len(y)}: give one label a row.")
    if y.dtype.kind == "O":
        missing = np.array([label is None or label != label for label in y])
        if missing.any():
            raise BadInput(
                f"y contains NaN or None in {int(missing.sum())} rows: drop them, or give them a class of their own."
            )
    elif y.dtype.kind == "f" and not np.isfinite(y).all():
        raise BadInput(f"y contains NaN or infinity in {int((~np.isfinite(y)).sum())} rows: drop these rows.")
    check_classification_targets(y)
    return np.asarray(y)


def check_weights(sample_weight: Any, X: Array) -> Array:
    """Weights [N], not negative and not all zero."""
    weight = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64))
    if (weight < 0).any():
        raise BadInput(
            f"sample_weight has {int((weight < 0).sum())} negative values; a row of weight w stands for w rows."
        )
    if not (weight > 0).any():
        raise BadInput("every sample_weight is zero: there is nothing to learn from.")
    return weight


def _names(X: Any) -> list[str] | None:
    columns = getattr(X, "columns", None)
    return None if columns is None else [str(c) for c in columns]


def _refuse_text(X: Any) -> None:
    """Columns that are not numbers, by name."""
    names = _names(X)
    if names is not None and len(names) == len(X.columns):
        bad = [name for name, column in zip(names, X.columns, strict=True) if _is_categorical(X[column])]
        if bad:
            quoted = ", ".join(map(repr, bad))
            raise BadInput(
                f"column {quoted} holds categories or text, not numbers: encode first, for example make_pipeline("
                f"ColumnTransformer([('onehot', OneHotEncoder(), [{quoted}])], remainder='passthrough'), GPClassifier())."
            )
        return
    array = X if isinstance(X, np.ndarray) else None
    if array is not None and array.ndim == 2 and array.dtype.kind in "OUS":
        for j in range(array.shape[1]):
            _refuse_text_column(array[:, j], j)


def _refuse_text_column(column: NDArray[Any], j: int) -> None:
    try:
        column.astype(np.float64)
    except ValueError:
        example = next(str(v) for v in column if not _is_number(v))
        raise BadInput(
            f"column {j} holds text (for example {example!r}) and could not convert string to float: encode it first, for example with "
            f"ColumnTransformer([('onehot', OneHotEncoder(), [{j}])], remainder='passthrough')."
        ) from None
    except TypeError:
        return  # scikit-learn's own message is about the cell's type


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _is_categorical(column: Any) -> bool:
    kind = str(getattr(column, "dtype", "")).lower()
    if any(word in kind for word in ("categor", "enum", "str", "utf8", "date", "time", "duration")):
        return True
    return kind == "object" and not all(_is_number(v) for v in column)


def _refuse_missing(X: Array, names: Any) -> None:
    wrong = ~np.isfinite(X)
    if not wrong.any():
        return
    label = (lambda j: repr(str(names[j]))) if names is not None else str
    what = []
    for j in np.flatnonzero(wrong.any(0))[:5]:
        nan, inf = int(np.isnan(X[:, j]).sum()), int(np.isinf(X[:, j]).sum())
        cells = " and ".join(f"{n} {word}" for n, word in ((nan, "NaN"), (inf, "infinite")) if n)
        what.append(f"column {label(j)}: {cells}")
    more = int(wrong.any(0).sum()) - len(what)
    raise BadInput(
        f"Input X contains NaN or infinity ({'; '.join(what)}{f'; and {more} more columns' if more > 0 else ''}). "
        "Impute them, for example with make_pipeline(SimpleImputer(add_indicator=True), GPClassifier()), or drop these rows."
    )
