"""Values from the JSON of a model file that the schema has checked. Nothing here needs torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadFile
from cavity.prediction.estimate import Estimate
from cavity.prediction.regression_estimate import TargetEstimate
from cavity.rows.columns.encoder import ColumnEncoder
from cavity.rows.validation import Features, prepared_features

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMBERS = ("float16", "float32", "float64", *INTEGERS, "bool")


def read_estimate(value: Any) -> Estimate | None:
    """Return the estimate of the fit's quality, or None."""
    if value is None:
        return None
    found = Estimate(**{name: value[name] for name in Estimate._fields if name in value})
    return found._replace(true=tuple(found.true), predicted=tuple(found.predicted))


def read_target_estimate(value: Any) -> TargetEstimate | None:
    """Return the estimate of a regressor's quality, or None."""
    return None if value is None else TargetEstimate(**value | {"scores": tuple(value["scores"])})


def read_relevance(found: NDArray[Any] | None, features: Features) -> Any:
    """Return the share of each column of X."""
    prepare = features.preparation
    n = features.n if prepare is None else prepare.n_features_in_
    if found is not None and len(found) != n:
        raise BadFile(f"feature_relevance has {len(found)} values for {n} columns.")
    return None if found is None else found.copy()


def read_features(meta: dict[str, Any], owner: str, D: int) -> Features:
    """Return the columns that the model was fitted on, D features."""
    names = None if meta["names"] is None else tuple(np.array(meta["names"], dtype=object))
    if meta["preparation"] is None:
        return Features(owner, D, names)
    features = prepared_features(owner, ColumnEncoder.from_json(meta["preparation"]))
    if features.n != D:
        raise BadFile(f"the preparation makes {features.n} features, but the model has {D}.")
    return features


def read_units(units: list[float] | None) -> tuple[float, float]:
    """Return shift and scale of a regressor's targets; those of a classifier have none."""
    shift, scale = units or (0.0, 1.0)
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
