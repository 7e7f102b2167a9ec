"""Check labels, targets and weights in memory, and convert them to arrays."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.text_tables import format_label
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput, BadOption, as_bad_input
from cavity.tables.arrow_tables import is_arrow, is_missing

FEW_CLASSES = 10  # so few classes may have a single row each without a warning
MAX_CLASSES = 10_000

HEAVY = 2.0**53  # the largest number of rows that float64 counts exactly
LIGHT = 0.1  # a fit warns if the mean weight of rows is below this


@as_bad_input()
def check_labels(y: Any, n_rows: int) -> NDArray[Any]:
    """Return y as a one-dimensional array of class labels, one per row."""
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise BadInput(
            "This classifier requires y to be passed, but the target y is None."
        )

    if isinstance(y, str):
        raise BadInput(
            f"y={y!r:.60} is a text: give the labels, such as table[{y!r:.60}], and "
            "drop their column from X."
        )

    y = column_or_1d(to_array(y), warn=True)
    if len(y) != n_rows:
        raise BadInput(
            f"X has {n_rows} rows but y has {len(y)}: give one label per row."
        )

    missing = 0
    if y.dtype.kind == "O":
        missing = sum(map(is_missing, y))
    elif y.dtype.kind == "f":
        missing = int(np.isnan(y).sum())
    if missing:
        raise BadInput(
            f"y contains NaN or None in {missing} rows: drop them, or make them a class."
        )
    if y.dtype.kind == "O":
        sort_labels(set(y))  # raises if labels cannot be ordered

    with warnings.catch_warnings():
        # `fit` itself warns of many classes
        warnings.simplefilter("ignore", UserWarning)
        try:
            check_classification_targets(y)
        except ValueError as error:
            raise BadInput(f"{error} GPRegressor predicts numbers.") from error

    return np.asarray(y)


def to_array(y: Any) -> Any:
    """Convert labels in a frame or in Arrow to an array; leave anything else."""
    if is_arrow(y):
        return y.to_numpy(zero_copy_only=False)
    if hasattr(y, "to_numpy"):
        return y.to_numpy()

    return y


def sort_labels(labels: Iterable[Any]) -> list[Any]:
    """Sort labels. Raises BadInput for labels of several types."""
    try:
        return sorted(labels)
    except TypeError:
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise BadInput(
            f"y mixes labels that cannot be ordered ({kinds}): give labels of one type, "
            "for example y.astype(str)."
        ) from None


def check_weights(sample_weight: Any, X: Floats) -> Floats:
    from sklearn.utils.validation import _check_sample_weight

    try:
        weight = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"sample_weight must have one finite number per row, not all 0: {error}"
        ) from error

    negative = int((weight < 0).sum())
    if negative:
        raise BadInput(
            f"sample_weight has {negative} negative values: use weights of 0 or more. "
            "A row of weight w counts as w rows."
        )
    if not weight.any():
        raise BadInput("sample_weight is zero for every row: nothing can be learnt.")

    refuse_heavy_rows(weight, "sample_weight")
    return weight


def refuse_heavy_rows(weight: Floats, name: str) -> None:
    """Raise BadInput if float64 cannot represent sums of the weights to a whole row."""
    if weight.max(initial=0.0) > HEAVY or weight.sum() > HEAVY:
        raise BadInput(
            f"{name} is up to {weight.max():.3g} per row, but all rows together may "
            f"count as {HEAVY:.0e} at most: divide weights by their mean."
        )


def warn_of_light_rows(sample_weight: Any) -> None:
    """Warn if weights are tiny, for example normalised to add up to 1."""
    if sample_weight is None:
        return

    weight = np.asarray(sample_weight, dtype=np.float64)
    total = weight.sum()
    rows = np.count_nonzero(weight)
    if total < LIGHT * rows:
        warnings.warn(
            f"sample_weight adds up to {total:.3g} for {rows} rows. A row of weight w "
            f"counts as w rows, so the model learns as much as from {total:.3g} rows. "
            "If you normalised the weights, divide them by their mean.",
            stacklevel=2,
        )


def weight_of_class(class_weight: Any, labels: NDArray[Any], weight: Floats) -> Floats:
    """Return the factor of each row's class, [N].

    "balanced" is H / n_c: n_c is the total weight of class c, and H the harmonic mean
    of all n_c. The rows then weigh as much as the effective number of rows,
    (Σω)² / Σω² = C H. With n / (C n_c), as in scikit-learn, a row of a rare class would
    count as many rows, and a model would learn its noise. [decision 6]
    """
    if isinstance(class_weight, dict):
        from sklearn.utils.class_weight import compute_sample_weight

        return np.asarray(compute_sample_weight(class_weight, labels), dtype=np.float64)

    classes, place = np.unique(labels, return_inverse=True)
    counts = np.bincount(place, weights=weight, minlength=len(classes))
    present = counts > 0
    share = 1 / np.where(present, counts, np.inf)
    factor = share * present.sum() / share.sum()
    return np.asarray(factor[place])


def read_labels(
    y: Any, sample_weight: Any, class_weight: Any, rows: Floats
) -> tuple[NDArray[Any], Floats]:
    """Return the labels of rows, and their weights times the factors of classes."""
    labels = check_labels(y, len(rows))
    weight = check_weights(sample_weight, rows)
    if class_weight is not None:
        weight = weight * weight_of_class(class_weight, labels, weight)
        refuse_heavy_rows(weight, "class_weight times sample_weight")
    if not (weight > 0).any():
        raise BadInput("every row has the weight 0: nothing can be learnt.")

    return labels, weight


def read_groups(groups: Any, n_rows: int) -> Ints:
    """Return the number of each row's group; labels of groups may have any type."""
    if isinstance(groups, list | tuple):
        values = np.asarray(groups, dtype=object)
    else:
        values = np.asarray(groups)

    if values.shape != (n_rows,):
        raise BadInput(
            f"`groups` has shape {values.shape}, but there are {n_rows} rows: give one "
            "label per row."
        )

    plain = values.dtype.kind != "O"
    if plain:
        missing = values != values
    else:
        missing = np.array([is_missing(value) for value in values])

    if missing.any():
        raise BadInput(
            f"`groups` has no label for row {int(missing.argmax())} (from 0): give each "
            "row without a group a label of its own."
        )
    if plain:
        return np.unique(values, return_inverse=True)[1]

    try:
        names = sorted(dict.fromkeys(values), key=str)
    except TypeError as error:
        raise BadInput(
            "`groups` must contain numbers, texts or other labels that can be compared."
        ) from error

    number = {name: i for i, name in enumerate(names)}
    return np.array([number[value] for value in values])


def refuse_one_class(classes: NDArray[Any], where: str) -> None:
    if len(classes) < 2:
        raise BadInput(
            f"{where} has only one class, {str(classes[0])!r} (rows of weight 0 do not "
            "count): a classifier needs at least two. Check how the rows were selected."
        )


def refuse_many_classes(labels: Sized, name: str = "the target") -> None:
    if len(labels) > MAX_CLASSES:
        raise BadInput(
            f"{name} has more than {MAX_CLASSES} different values: is it the right "
            "column? A classifier needs classes."
        )


def warn_of_single_rows(labels: NDArray[Any]) -> None:
    """Warn, before a long fit, if most of many classes have a single row."""
    _, rows = np.unique(labels, return_counts=True)
    single = int((rows == 1).sum())
    if len(rows) > FEW_CLASSES and 2 * single > len(rows):
        warnings.warn(
            f"{single} of {len(rows)} classes have a single row, too few to learn from: "
            "predict a number with GPRegressor (command line: --regression), merge rare "
            "classes, or check which column is the target.",
            stacklevel=2,
        )


def find_places(
    order: tuple[Any, ...] | None, classes: NDArray[Any]
) -> tuple[int, ...] | None:
    """Return the place of each class in the user's order, from 0 for the lowest.

    None without an order. Labels that no row has are left out. A text may stand for a
    number.
    """
    if order is None:
        return None

    known = {label: place for place, label in enumerate(order)}
    by_text = {format_label(label): place for label, place in known.items()}
    found = []
    for label in classes.tolist():
        place = known.get(label, by_text.get(format_label(label)))
        if place is None:
            raise BadOption(
                f"order={list(order)!r:.200} lacks the class {label!r}: name all "
                f"classes of y from lowest to highest, {classes.tolist()!s:.200}."
            )

        found.append(place)

    return tuple(sorted(found).index(place) for place in found)


def encode(labels: NDArray[Any], classes: NDArray[Any], what: str = "y") -> Ints:
    """Return the number of each label's class."""
    unknown = np.setdiff1d(labels, classes).tolist()
    if unknown:
        raise BadInput(
            f"{what} has the label {unknown[0]!r}, which the training rows do not have."
        )

    return np.asarray(np.searchsorted(classes, labels))


@as_bad_input()
def check_targets(y: Any, n_rows: int) -> Floats:
    """Return y as a one-dimensional array of finite numbers, one per row."""
    from sklearn.utils.validation import check_array, column_or_1d

    if y is None:
        raise BadInput(
            "This regressor requires y to be passed, but the target y is None."
        )

    y = to_array(y)
    if np.asarray(y).dtype.kind in "USmM":
        raise BadInput(
            f"y must contain numbers, but its type is {np.asarray(y).dtype}: for class "
            "labels use GPClassifier, or convert y first."
        )

    values = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
    if values.ndim > 1 and values.shape[1] > 1:
        raise BadInput(
            f"y should be a 1d array, got an array of shape {values.shape} instead: "
            "fit one model per target (MultiOutputRegressor)."
        )

    values = column_or_1d(values, warn=True)
    if len(values) != n_rows:
        raise BadInput(
            f"X has {n_rows} rows but y has {len(values)}: give one target per row."
        )

    return np.asarray(values)
