"""The base class of kernels with one lengthscale per column (ARD) and a variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.columns import Columns
from cavity.kernels.base import Kernel, log_parameter, per_class, to_numpy

Given = Any  # scalar, or an array that broadcasts to [C D] (lengthscales) or [C] (variances)


class Scaled(Kernel):
    """Base class: lengthscales are stepped as logarithms in units of each column's spread, variances as logarithms.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        In the units of the columns. None: start from a value that suits the data.
    variance : scalar or (C,)
        Prior variance of the latent functions.
    """

    unit: Tensor
    center: Tensor

    def __init__(self, lengthscale: Given = None, variance: Given = 1.0) -> None:
        super().__init__()
        self.lengthscale = lengthscale
        self.variance = variance

    def usual(self, columns: Columns) -> float:
        """Return the lengthscale to start from, in units of the spread."""
        raise NotImplementedError

    def bind(self, classes: int, columns: Columns) -> None:
        unit, name = columns.spread, type(self).__name__
        value = unit * self.usual(columns) if self.lengthscale is None else self.lengthscale
        self.log_lengthscale = log_parameter(value, (classes, len(unit)), unit, f"lengthscale of {name}")
        variance = per_class(self.variance, classes, f"variance of {name}")
        self.log_variance = log_parameter(variance, (classes,), 1.0, f"variance of {name}")
        self.register_buffer("unit", torch.tensor(unit))
        self.register_buffer("center", torch.tensor(columns.center))

    def settle(self, classes: int) -> None:
        lengthscale = to_numpy(self.unit * self.log_lengthscale.exp())
        self.lengthscale = np.repeat(lengthscale, classes // len(lengthscale), axis=0)
        variance = to_numpy(self.log_variance.exp())
        self.variance = np.repeat(variance, classes // len(variance))

    def relevance(self, columns: Columns) -> np.ndarray:
        return np.asarray(columns.spread / self.lengthscale)
