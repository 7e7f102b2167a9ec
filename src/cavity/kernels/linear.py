"""Kernels without a distance: linear functions and constants."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from cavity.columns import Columns
from cavity.kernels.base import KERNELS, Kernel, log_parameter, per_class, to_numpy
from cavity.kernels.scaled import ROW_REACH, Given, Scaled, shrink_far_rows
from cavity.onnx_graph import Covariance, Value


@KERNELS.register
class Linear(Scaled):
    """Linear functions: k(x, x') = variance · Σ_d (x_d − o_d)(x'_d − o_d)/lengthscale_d², with o the centre of the columns.

    Add `Constant()` for a free intercept. A row further from the centre than 1e30 spreads (1e5 in float32) counts as being at that
    distance in the same direction, so that every finite row has finite values.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the columns. None: √D times the spread of each
        column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.

    Examples
    --------
    >>> from cavity.kernels import Constant, Linear
    >>> Linear() + Constant()
    Linear(lengthscale=None, variance=1.0) + Constant(variance=1.0)
    """

    def usual(self, columns: Columns) -> float:
        return math.sqrt(len(columns.spread) if columns.group is None else columns.group.max() + 1)

    def _scaled(self, X: Tensor) -> Tensor:
        scale = self.unit * (self.log_scale - 0.5 * self.log_variance[:, None]).exp()
        return (shrink_far_rows(X, self.center, self.unit) - self.center) / scale[:, None, :]

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

    def graph(self, Z: Tensor, X: Value) -> Covariance:
        scale = self.unit * (self.log_scale - 0.5 * self.log_variance[:, None]).exp()
        unit, most = to_numpy(self.unit), ROW_REACH[self.center.dtype]
        largest = float(np.finfo(np.float64).max)
        d = (X - to_numpy(self.center)).at_least(-largest).at_most(largest)
        size = X.graph.op("Abs", d / unit).max(1, keep=True).at_least(most).at_most(largest)
        V = (d * (X.graph.value(most) / size)).new_axis(0) / to_numpy(scale)[:, None]  # [C n D]
        return Covariance(X.graph.value(to_numpy(self._scaled(Z))) @ V.turned(0, 2, 1), (V * V).sum(2))


@KERNELS.register
class Constant(Kernel):
    """Constant functions, a random offset: k(x, x') = variance.

    Parameters
    ----------
    variance : scalar or (C,)
        Prior variance of the offset, one for all classes or one per class.

    Examples
    --------
    >>> from cavity.kernels import Constant
    >>> Constant(2.0).get_params()
    {'variance': 2.0}
    """

    def __init__(self, variance: Given = 1.0) -> None:
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

    def graph(self, Z: Tensor, X: Value) -> Covariance:
        variance = to_numpy(self.log_variance.exp())[:, None]  # [C 1]
        ones = X.part(1, 0, 1).turned(1, 0) * 0.0 + 1.0  # [1 n]
        return Covariance(ones * np.repeat(variance, Z.shape[-2], 1)[:, :, None], X.graph.value(variance))
