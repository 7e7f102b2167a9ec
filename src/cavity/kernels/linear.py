"""Kernels without a distance: linear functions and constants."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cavity.columns import Columns
from cavity.kernels.base import Kernel, log_parameter, per_class, to_numpy
from cavity.kernels.stationary import Value


class Linear(Kernel):
    """k(x, x') = variance · Σ_d (x_d − o_d)(x'_d − o_d)/lengthscale_d², with o the centre of the columns.

    Add `Constant()` for a free intercept. `lengthscale` None: √D times the spread of each column.
    """

    unit: Tensor
    center: Tensor

    def __init__(self, lengthscale: Value = None, variance: Value = 1.0) -> None:
        super().__init__()
        self.lengthscale = lengthscale
        self.variance = variance

    def bind(self, classes: int, columns: Columns) -> None:
        unit = columns.spread
        value = unit * np.sqrt(len(unit)) if self.lengthscale is None else self.lengthscale
        self.log_lengthscale = log_parameter(value, (classes, len(unit)), unit, "lengthscale of Linear")
        variance = per_class(self.variance, classes, "variance of Linear")
        self.log_variance = log_parameter(variance, (classes,), 1.0, "variance of Linear")
        self.register_buffer("unit", torch.tensor(unit))
        self.register_buffer("center", torch.tensor(columns.center))

    def settle(self, classes: int) -> None:
        lengthscale = to_numpy(self.unit * self.log_lengthscale.exp())
        self.lengthscale = np.repeat(lengthscale, classes // len(lengthscale), axis=0)
        variance = to_numpy(self.log_variance.exp())
        self.variance = np.repeat(variance, classes // len(variance))

    def relevance(self, columns: Columns) -> np.ndarray:
        return np.asarray(columns.spread / self.lengthscale)

    def _scaled(self, X: Tensor) -> Tensor:
        scale = self.unit * (self.log_lengthscale - 0.5 * self.log_variance[:, None]).exp()
        return (X - self.center) / scale[:, None, :]

    def full(self, Z: Tensor) -> Tensor:
        U = self._scaled(Z)
        return U @ U.mT

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self._scaled(Z) @ self._scaled(X).mT

    def pair(self, Z: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        U = self._scaled(Z)
        return U @ U.mT, U @ self._scaled(X).mT

    def diag(self, X: Tensor) -> Tensor:
        return self._scaled(X).square().sum(-1)


class Constant(Kernel):
    """k(x, x') = variance: a random offset."""

    def __init__(self, variance: Value = 1.0) -> None:
        super().__init__()
        self.variance = variance

    def bind(self, classes: int, columns: Columns) -> None:
        variance = per_class(self.variance, classes, "variance of Constant")
        self.log_variance = log_parameter(variance, (classes,), 1.0, "variance of Constant")

    def settle(self, classes: int) -> None:
        variance = to_numpy(self.log_variance.exp())
        self.variance = np.repeat(variance, classes // len(variance))

    def full(self, Z: Tensor) -> Tensor:
        return self.log_variance.exp()[:, None, None].expand(-1, Z.shape[-2], Z.shape[-2])

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self.log_variance.exp()[:, None, None].expand(-1, Z.shape[-2], X.shape[-2])

    def diag(self, X: Tensor) -> Tensor:
        return self.log_variance.exp()[:, None].expand(-1, X.shape[-2])
