"""Hyper-parameters of kernels: values in the units of the data, and the torch parameters that are learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from cavity.errors import BadOption


def log_parameter(value: Any, shape: tuple[int, ...], unit: Any, name: str) -> nn.Parameter:
    """Make a parameter log(value / unit), broadcast to `shape`: positive values are stepped as logarithms in data units."""
    array = np.asarray(value, dtype=np.float64)
    if not (np.isfinite(array).all() and (array > 0).all()):
        raise BadOption(f"{name} must be positive and finite, got {value!r}.")
    try:
        log = np.broadcast_to(np.log(array / unit), shape)
    except ValueError:
        raise BadOption(
            f"{name} has shape {array.shape}, which does not fit {shape} (classes, columns): "
            "give a scalar, one value per column, or one row per class; two classes have one latent function."
        ) from None
    return nn.Parameter(torch.tensor(log.copy(), dtype=torch.float64))


def per_class(value: Any, classes: int, name: str) -> np.ndarray:
    """Return a scalar or one value per class as [C] or [1]."""
    array = np.asarray(value, dtype=np.float64).reshape(-1)
    if array.size not in (1, classes):
        raise BadOption(
            f"{name} has {array.size} values for {classes} latent functions; give one, or one each."
        )
    return array
