"""Check the JSON of a model file: numbers, names, labels, the history. Nothing here needs torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadFile
from cavity.intake.validation import Features, prepared_features
from cavity.prediction.estimate import Estimate
from cavity.tabular.encoder import ColumnEncoder

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = ("float16", "float32", "float64", *INTEGERS, "bool")
RECORDED = ("epoch", "objective", "log_evidence", "seconds", "repairs")  # of every epoch, whatever the method


class Kind(NamedTuple):
    """What a file says about its estimator, known without the estimator's class, which needs scikit-learn."""

    owner: str  # name of the class
    task: str
    method: Any  # default of the argument


KINDS = {
    "model": Kind("GPClassifier", "classification", "auto"),
    "regressor": Kind("GPRegressor", "regression", "exact"),
}  # by what a file calls itself


def refuse_prior_mean(meta: dict[str, Any]) -> None:
    """Raise BadFile for a model with trees as a prior mean, an option between versions 0.2.0 and 0.3.0."""
    if meta.get("prior_mean") is not None:
        raise BadFile(
            "this model has trees as a prior mean (mean=), which version 0.3.0 removed: fit again without mean=, or with "
            "effort='best' for a pool with trees. Only development versions between 0.2.0 and 0.3.0 read this file."
        )


def column_names(names: Any, n_columns: int) -> Any:
    """Return the names of the columns."""
    if not isinstance(names, list) or len(names) != n_columns or not all(isinstance(n, str) for n in names):
        raise BadFile(f"the names are not those of {n_columns} columns.")
    return np.array(names, dtype=object)


def texts(values: Any) -> list[str]:
    """Return the warnings of the fit."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("the warnings of the fit are not a list of texts")
    return values


def history(rows: Any) -> list[dict[str, Any]]:
    """Return one row per epoch: numbers by name, and what callbacks added."""
    for row in rows:
        recorded = all(isinstance(row.get(name), int | float) for name in RECORDED)
        if not recorded or not all(
            isinstance(k, str) and (v is None or isinstance(v, str | int | float)) for k, v in row.items()
        ):
            raise BadFile("the history is not a list of numbers by name.")
    return list(rows)


def finite(value: Any) -> float:
    """Return a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadFile(f"{value!r:.40} is not a number.")
    return float(value)


def read_class_prior(values: Any, n_classes: int | None) -> Any:
    """Return the class frequencies of the training rows, or None."""
    if values is None:
        return None
    found = np.array(_numbers(values, n_classes))
    if not (found >= 0).all() or not abs(found.sum() - 1) < 1e-6:
        raise BadFile("the class frequencies are not shares.")
    return found


def read_estimate(value: Any, n_classes: int | None) -> Estimate | None:
    """Return the estimate of the fit's quality, or None."""
    if value is None:
        return None
    if set(value) != set(Estimate._fields):
        raise BadFile("the estimate of the quality has unexpected fields.")
    numbers = ("log_loss", "standard_error", "accuracy", "baseline_log_loss", "baseline_accuracy")
    return Estimate(
        how=str(value["how"])[:100],
        rows=int(finite(value["rows"])),
        **{name: finite(value[name]) for name in numbers},
        true=tuple(_numbers(value["true"], n_classes)),
        predicted=tuple(_numbers(value["predicted"], n_classes)),
    )


def read_importance(values: Any, features: Features) -> Any:
    """Return the importance of each column of X, or None."""
    if values is None:
        return None
    prepare = features.preparation
    found = np.array(_numbers(values, features.n if prepare is None else prepare.n_features_in_, "column"))
    if not np.isfinite(found).all() or not (found >= 0).all():
        raise BadFile("the importance of the columns is not finite, or negative.")
    return found


def _numbers(values: Any, n: int | None, of: str = "class") -> list[float]:
    if not isinstance(values, list) or len(values) != n:
        raise BadFile(f"there should be {n} numbers, one per {of}.")
    return [finite(v) for v in values]


def read_features(meta: dict[str, Any], owner: str, D: int) -> Features:
    """Return the columns that the model was fitted on, D features."""
    names = None if meta["names"] is None else tuple(column_names(meta["names"], D))
    if meta["preparation"] is None:
        return Features(owner, D, names)
    features = prepared_features(owner, ColumnEncoder.from_json(meta["preparation"]))
    if features.n != D:
        raise BadFile(f"the preparation makes {features.n} features, but the model has {D}.")
    return features


def read_units(shift: Any, scale: Any) -> tuple[float, float]:
    """Return shift and scale of a regressor's targets."""
    if not np.isfinite([finite(shift), finite(scale)]).all() or not scale > 0:
        raise BadFile(f"y would be in units of {scale!r:.40} around {shift!r:.40}.")
    return float(shift), float(scale)


def unpack_labels(packed: Any) -> NDArray[Any]:
    """Return the array of labels that was packed: at least two, in order, none twice."""
    kind, values = packed["type"], packed["values"]
    if kind not in ("str", "object", *NUMBERS) or not isinstance(values, list):
        raise BadFile(f"the labels are of an unknown type, {kind!r:.40}.")
    if not all(isinstance(v, str if kind in ("str", "object") else bool | int | float) for v in values):
        raise BadFile(f"the labels are not all of type {kind}.")
    classes = np.array(values, dtype=kind)
    if len(classes) < 2 or not all(a < b for a, b in pairwise(values)):
        raise BadFile("the labels are fewer than two, or not in order.")
    return classes


def format_label(label: Any) -> str:
    """Format a label as text: whole numbers without a point, booleans in lower case as in Arrow."""
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
