"""Validate X, y and weights in memory. Errors name the column and say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput
from cavity.rows.batches.source import refuse_masked
from cavity.rows.columns.conversion import refuse_foreign
from cavity.rows.columns.encoder import ColumnEncoder
from cavity.rows.columns.group_shares import insert_shares
from cavity.rows.frames import (
    Prepared,
    apply_preparation,
    fill_missing,
    find_mixed_columns,
    find_nested_columns,
    has_row_numbers,
    is_frame,
    is_missing,
    is_number,
    learn_preparation,
)

Array = NDArray[np.float64]


class Features(NamedTuple):
    """The columns that a model was fitted on, after preparation."""

    owner: str  # class of the estimator, for messages
    n: int
    names: tuple[str, ...] | None = None
    preparation: ColumnEncoder | None = None  # how raw columns become these


def prepared_features(owner: str, preparation: ColumnEncoder) -> Features:
    """Return the features that a preparation makes."""
    names = preparation.names
    return Features(owner, len(names), names, preparation)


def read_rows(X: Any, owner: str) -> tuple[Array, Features]:
    """Return X as a finite float64 table, and its features. A frame with mixed columns or missing cells is prepared."""
    if isinstance(X, Prepared):
        assert X.preparation is not None
        features = prepared_features(owner, X.preparation)
        return check_rows(X, features), features
    reader, frame = _reader(owner), is_frame(X)
    _refuse_nothing(X)
    if not frame or not (find_mixed_columns(X) or has_row_numbers(X)):
        rows = _convert(X, reader, reset=True)
        names = getattr(reader, "feature_names_in_", None)
        if not frame or names is None or np.isfinite(rows).all() or np.isinf(rows).any():
            _refuse_missing(rows, names, owner)
            return rows, Features(owner, rows.shape[1], None if names is None else tuple(names))
    rows, preparation = learn_preparation(X)
    return rows, prepared_features(owner, preparation)


def check_rows(X: Any, features: Features, center: Callable[[], Array] | None = None) -> Array:
    """Return X as a finite float64 table with these features.

    With `center`, a missing cell of a frame becomes the column's centre, and one warning counts such cells.
    """
    reader = _reader(features.owner)
    reader.n_features_in_ = features.n
    if isinstance(X, Prepared):
        X = _add_shares(X.X, features)
    elif features.preparation is not None:
        X = apply_preparation(X, features.preparation, features.owner)
    elif features.names is not None:
        reader.feature_names_in_ = np.array(features.names, dtype=object)
    rows = _convert(X, reader, reset=False)
    if center is not None and features.names is not None and is_frame(X) and not np.isinf(rows).any():
        rows = fill_missing(rows, features.names, center)
    _refuse_missing(rows, features.names, features.owner)
    return rows


def _add_shares(rows: Array, features: Features) -> Array:
    """Add the shares of groups to rows that were prepared before a fit found the groups."""
    if features.preparation is None or rows.shape[1] == features.n:
        return rows
    return insert_shares(rows, features.preparation.columns_)


def _reader(owner: str) -> Any:
    """Return an object of the estimator's name that scikit-learn's validation can remember features on."""
    from sklearn.base import BaseEstimator

    return type(owner, (BaseEstimator,), {})()


def _convert(X: Any, reader: Any, reset: bool) -> Array:
    """Return X as float64, with NaN for missing cells."""
    from sklearn.utils.validation import validate_data

    refuse_masked(X, "X")
    _refuse_nothing(X)
    refuse_foreign(X)
    _refuse_text(X, type(reader).__name__)
    X = validate_data(reader, X, reset=reset, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1)
    return np.ascontiguousarray(X)  # sums, to the last bit, must not depend on the layout


def check_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """Return y as a one-dimensional array of class labels, one per row."""
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

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
    missing = np.array([is_missing(label) for label in y], dtype=bool)
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
    from sklearn.utils.validation import _check_sample_weight

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
        from sklearn.utils.class_weight import compute_sample_weight

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


def _refuse_nothing(X: Any) -> None:
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2 and 0 in shape:
        what = "sample" if shape[0] == 0 else "feature"
        raise BadInput(
            f"X has 0 {what}(s) (shape=({shape[0]}, {shape[1]})) while a minimum of 1 is required: "
            "check how rows and columns were selected."
        )


def _refuse_text(X: Any, estimator: str) -> None:
    """Refuse columns that are not numbers: in an array always, in a frame if the model was fitted on numbers."""
    if is_frame(X):
        nested = find_nested_columns(X)
        if nested:
            raise BadInput(
                f"column {nested[0]!r} has lists, dicts or arrays in its cells, not numbers: spread them over columns of numbers, "
                "or drop the column."
            )
        bad = find_mixed_columns(X)
        if bad:
            raise BadInput(
                f"column{_plural(bad)} {_quote(bad)}: categories, dates or text, but {estimator} was fitted on numbers only; give "
                "numbers, or fit it on a frame with such columns."
            )
        return
    array = _object_array(X) if isinstance(X, list | tuple) else X
    if isinstance(array, np.ndarray) and array.ndim == 2 and not _converts(array):
        bad = [j for j in range(array.shape[1]) if not all(map(is_number, array[:, j]))]
        if bad:
            example = next(v for v in array[:, bad[0]] if not is_number(v))
            raise BadInput(
                f"column{_plural(bad)} {_quote(bad)}: categories, dates or text, not numbers (could not convert string to float: "
                f"{str(example)!r}); give a data frame, whose columns are prepared: {estimator}().fit(pandas.DataFrame(X), y)."
            )


def _plural(items: list[Any]) -> str:
    return "" if len(items) == 1 else "s"


def _quote(items: list[Any]) -> str:
    return ", ".join(map(repr, items))


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
        f"Impute them, for example with make_pipeline(SimpleImputer(add_indicator=True), {estimator}()), drop these rows, or fit "
        "on a data frame with missing cells."
    )
