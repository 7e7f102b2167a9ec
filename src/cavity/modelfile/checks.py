"""Check what a model file holds before anything is made of it: shapes, types and values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.errors import BadFile
from cavity.intake.validation import Features
from cavity.prediction.estimate import Estimate

RECORDED = ("epoch", "objective", "log_evidence", "seconds", "repairs")  # of every epoch, whatever the method


def check_types(tensors: dict[str, Tensor]) -> None:
    """Refuse other types than models have."""
    for name, tensor in tensors.items():
        known = tensor.dtype in (torch.float32, torch.float64, torch.int64)
        known = known or (tensor.dtype == torch.int32 and name.startswith(("pool.", "prior_mean.")))
        if not known and not name.startswith("arguments."):
            raise BadFile(f"{name!r:.100} is of type {tensor.dtype}, which no model has.")


def check_finite(tensors: dict[str, Tensor]) -> None:
    """Refuse values that are not finite."""
    for name, tensor in tensors.items():
        if name.startswith("arguments."):
            continue
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise BadFile(f"{name!r:.100} holds NaN or infinity.")


def expect(name: str, tensor: Tensor, shapes: list[tuple[int, ...]], dtype: torch.dtype | None) -> None:
    """Refuse a tensor that has none of these shapes, or another type."""
    if tuple(tensor.shape) not in shapes or dtype not in (None, tensor.dtype):
        wanted = " or ".join(map(str, shapes))
        raise BadFile(
            f"{name:.100} has shape {tuple(tensor.shape)} and type {tensor.dtype}; expected {wanted}, {dtype}."
        )


def expect_factors(**factors: Tensor) -> None:
    """Refuse Cholesky factors without a positive diagonal."""
    for name, factor in factors.items():
        if not (factor.diagonal(dim1=-2, dim2=-1) > 0).all():
            raise BadFile(f"{name} is not a Cholesky factor.")


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


def relevance(weights: Tensor | None, n_columns: int) -> Any:
    """Return the share of each column."""
    if weights is None:
        return None
    expect("feature_relevance", weights, [(n_columns,)], torch.float64)
    if not math.isclose(float(weights.sum()), 1.0, rel_tol=1e-6):
        raise BadFile("feature_relevance does not sum to one.")
    return weights.numpy().copy()


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
