"""Check what a model file holds before anything is made of it: shapes, types and values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cavity.errors import BadFile


def check_types(tensors: dict[str, Tensor]) -> None:
    """Refuse other types than models have."""
    for name, tensor in tensors.items():
        known = tensor.dtype in (torch.float32, torch.float64, torch.int64)
        known = known or (tensor.dtype == torch.int32 and name.startswith("pool."))
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


def relevance(weights: Tensor | None, n_columns: int) -> Any:
    """Return the share of each column."""
    if weights is None:
        return None
    expect("feature_relevance", weights, [(n_columns,)], torch.float64)
    if not math.isclose(float(weights.sum()), 1.0, rel_tol=1e-6):
        raise BadFile("feature_relevance does not sum to one.")
    return weights.numpy().copy()
