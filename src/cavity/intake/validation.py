"""Validate X, y and weights in memory. Errors name the column and say what to do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

from cavity.data.source import refuse_masked
from cavity.errors import BadInput
from cavity.tabular.preparation import Preparation

Array = NDArray[np.float64]


class Features(NamedTuple):
    """The columns that a model was fitted on."""

    owner: str  # class of the estimator, for messages
    n: int
    names: tuple[str, ...] | None = None
    preparation: Preparation | None = None  # how the command line prepared raw columns


def read_rows(X: Any, owner: str) -> tuple[Array, Features]:
    """Return X as a finite float64 table, and its features."""
    reader = _reader(owner)
    rows = _validate(X, reader, reset=True)
    names = getattr(reader, "feature_names_in_", None)
    return rows, Features(owner, rows.shape[1], None if names is None else tuple(names))


def check_rows(X: Any, features: Features) -> Array:
    """Return X as a finite float64 table with these features."""
    reader = _reader(features.owner)
    reader.n_features_in_ = features.n
    if features.names is not None:
        reader.feature_names_in_ = np.array(features.names, dtype=object)
    return _validate(X, reader, reset=False)


def _reader(owner: str) -> Any:
    """Return an object of the estimator's name that scikit-learn's validation can remember features on."""
    return type(owner, (BaseEstimator,), {})()


def _validate(X: Any, reader: Any, reset: bool) -> Array:
    owner = type(reader).__name__
    refuse_masked(X, "X")
    _refuse_nothing(X)
    _refuse_text(X, owner)
    X = validate_data(reader, X, reset=reset, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1)
    _refuse_missing(X, getattr(reader, "feature_names_in_", None), owner)
    return np.ascontiguousarray(X)  # sums, to the last bit, must not depend on the layout


def check_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """Return y as a one-dimensional array of class labels, one per row."""
    if y is None:
        raise BadInput("This classifier requires y to be passed, but the target y is None.")
    refuse_masked(y, "y")
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    y = column_or_1d(y, warn=True)
    if len(y) != n_rows:
        raise BadInput(f"X has {n_rows} rows and y has {len(y)}: give one label per row.")
    if y.dtype.kind == "O":
        _refuse_odd_labels(y)
    elif y.dtype.kind == "f" and not np.isfinite(y).all():
        raise BadInput(f"y contains NaN or infinity in {int((~np.isfinite(y)).sum())} rows: drop these rows.")
    check_classification_targets(y)
    return np.asarray(y)


def _refuse_odd_labels(y: NDArray[Any]) -> None:
    missing = np.array([_is_missing(label) for label in y], dtype=bool)
    if missing.any():
        raise BadInput(
            f"y contains NaN or None in {int(missing.sum())} rows: drop them, or give them a class of their own."
        )
    try:
        np.unique(y)
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in y}))
        raise BadInput(
            f"y mixes labels that cannot be ordered ({kinds}): give labels of one type, for example y.astype(str)."
        ) from None


def check_weights(sample_weight: Any, X: Array) -> Array:
    """Return weights [N], not negative and not all zero."""
    refuse_masked(sample_weight, "sample_weight")
    try:
        weight = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise BadInput(f"sample_weight must be one finite number per row, not all 0: {error}") from error
    if (weight < 0).any():
        raise BadInput(
            f"sample_weight has {int((weight < 0).sum())} negative values; a row of weight w stands for w rows."
        )
    if not (weight > 0).any():
        raise BadInput("every sample_weight is zero: there is nothing to learn from.")
    return weight


def weight_of_class(class_weight: Any, labels: NDArray[Any], weight: Array) -> Array:
    """Return the factor of each row's class, [N]; "balanced" counts weights, not rows: n / (C n_c)."""
    if isinstance(class_weight, dict):
        return np.asarray(compute_sample_weight(class_weight, labels), dtype=np.float64)
    classes, place = np.unique(labels, return_inverse=True)
    counts = np.bincount(place.reshape(-1), weights=weight, minlength=len(classes))
    present = counts > 0
    factor = counts.sum() / present.sum() / np.where(present, counts, np.inf)
    return np.asarray(factor[place.reshape(-1)])


def read_labels(y: Any, sample_weight: Any, class_weight: Any, rows: Array) -> tuple[NDArray[Any], Array]:
    """Return the labels of rows, and their weights with the factors of their classes."""
    labels, weight = check_labels(y, len(rows)), check_weights(sample_weight, rows)
    if class_weight is not None:
        weight = weight * weight_of_class(class_weight, labels, weight)
    if not (weight > 0).any():
        raise BadInput("every row has the weight 0: there is nothing to learn from.")
    return labels, weight


def encode(labels: NDArray[Any], classes: NDArray[Any], what: str = "y") -> NDArray[np.int64]:
    """Return labels as numbers of the fit's classes."""
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise BadInput(f"{what} has the label {unknown.tolist()[0]!r}, which the training rows do not have.")
    return np.asarray(np.searchsorted(classes, labels))


def _names(X: Any) -> list[str] | None:
    columns = getattr(X, "columns", None)
    return None if columns is None else [str(c) for c in columns]


def _refuse_nothing(X: Any) -> None:
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2 and 0 in shape:
        what = "sample" if shape[0] == 0 else "feature"
        raise BadInput(
            f"X has 0 {what}(s) (shape=({shape[0]}, {shape[1]})) while a minimum of 1 is required: "
            "check how rows and columns were selected."
        )


def _refuse_text(X: Any, estimator: str) -> None:
    """Refuse columns that are not numbers, by name."""
    names = _names(X)
    if names is not None:
        if len(set(names)) == len(names):  # otherwise scikit-learn's message is about the names
            _refuse_columns(
                [n for n, c in zip(names, X.columns, strict=True) if _is_categorical(X[c])], estimator
            )
        return
    array = _object_array(X) if isinstance(X, list | tuple) else X
    if isinstance(array, np.ndarray) and array.ndim == 2 and not _converts(array):
        _refuse_columns(
            [j for j in range(array.shape[1]) if not all(map(_is_number, array[:, j]))], estimator, array
        )


def _refuse_columns(bad: list[Any], estimator: str, array: NDArray[Any] | None = None) -> None:
    """Name the columns, show a cell (scikit-learn says "could not convert ..."), and say how to encode them."""
    if not bad:
        return
    quoted = ", ".join(map(repr, bad))
    example = None if array is None else next(v for v in array[:, bad[0]] if not _is_number(v))
    why = "" if array is None else f" (could not convert string to float: {str(example)!r})"
    raise BadInput(
        f"column{'' if len(bad) == 1 else 's'} {quoted}: categories, dates or text, not numbers{why}; encode first, "
        "for example make_pipeline(ColumnTransformer([('onehot', OneHotEncoder(sparse_output=False, handle_unknown='ignore'), "
        f"[{quoted}])], remainder='passthrough'), {estimator}())."
    )


def _object_array(X: Any) -> NDArray[Any]:
    try:
        return np.array(X, dtype=object)
    except ValueError:  # ragged: scikit-learn's message is about that
        return np.empty(0)


def _converts(array: NDArray[Any]) -> bool:
    if array.dtype.kind in "bcfiumM":
        return array.dtype.kind not in "mM"  # complex ones are for scikit-learn to refuse
    try:
        array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        return False
    return True


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)


def _is_number(value: Any) -> bool:
    """Return whether a cell is a number, the text of one, or missing; dates are not."""
    if hasattr(value, "isoformat") or isinstance(value, np.datetime64 | np.timedelta64):
        return False
    if _is_missing(value) or not np.isscalar(value):
        return True  # nested cells are for scikit-learn to refuse
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _is_categorical(column: Any) -> bool:
    kind = str(getattr(column, "dtype", "")).lower()
    if any(word in kind for word in ("categor", "enum", "str", "utf8", "date", "time", "duration")):
        return True
    return kind == "object" and not all(map(_is_number, column))


def _refuse_missing(X: Array, names: Any, estimator: str) -> None:
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
        f"Impute them, for example with make_pipeline(SimpleImputer(add_indicator=True), {estimator}()), or drop these rows."
    )
