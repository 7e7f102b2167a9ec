"""Kernels of the scaled distance: RBF, Matérn, rational quadratic. One lengthscale a column (ARD)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from cavity.columns import Columns
from cavity.errors import BadOption
from cavity.kernels.base import log_parameter, per_class, to_numpy
from cavity.kernels.distance import gaussian_pair, half_square_distance
from cavity.kernels.scaled import Scaled, Value


class Stationary(Scaled):
    """k(x, x') = variance · shape(d²),   d² = Σ_d ((x_d − x'_d)/lengthscale_d)².

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        In the units of the columns. None: median distance between rows times the spread of each column.
    variance : scalar or (C,)
    """

    def usual(self, columns: Columns) -> float:
        return columns.distance

    def shape(self, d2: Tensor) -> Tensor:
        """log k / variance as a function of the squared scaled distance."""
        raise NotImplementedError

    def full(self, Z: Tensor) -> Tensor:
        return self._value(half_square_distance(self._units(Z), None, self.log_lengthscale))

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self._value(half_square_distance(self._units(Z), self._units(X), self.log_lengthscale))

    def diag(self, X: Tensor) -> Tensor:
        return self.log_variance.exp()[:, None].expand(-1, X.shape[-2])

    def _value(self, s: Tensor) -> Tensor:
        return self.shape(-2 * s).add_(self.log_variance[:, None, None]).exp_()

    def _units(self, X: Tensor) -> Tensor:
        """Centred, in units of the spread: where distances are taken, free of the user's units."""
        if X.shape[-1] != len(self.unit):
            raise BadOption(f"this kernel was made for {len(self.unit)} columns and was given {X.shape[-1]}.")
        return (X - self.center) / self.unit


def _root(d2: Tensor) -> Tensor:
    """√d², with gradient 0 instead of ∞ where two points coincide."""
    return d2.clamp_min(1e-30 if d2.dtype == torch.float64 else 1e-14).sqrt()


class RBF(Stationary):
    """exp(−½ d²): infinitely smooth."""

    def pair(self, Z: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        return gaussian_pair(self._units(Z), self._units(X), self.log_lengthscale, self.log_variance)

    def _value(self, s: Tensor) -> Tensor:
        return s.add_(self.log_variance[:, None, None]).exp_()


class Matern12(Stationary):
    """exp(−d): continuous, nowhere smooth."""

    def shape(self, d2: Tensor) -> Tensor:
        return -_root(d2)


class Matern32(Stationary):
    """(1 + √3 d) exp(−√3 d): once differentiable."""

    def shape(self, d2: Tensor) -> Tensor:
        d = math.sqrt(3.0) * _root(d2)
        return torch.log1p(d) - d


class Matern52(Stationary):
    """(1 + √5 d + 5d²/3) exp(−√5 d): twice differentiable."""

    def shape(self, d2: Tensor) -> Tensor:
        d = math.sqrt(5.0) * _root(d2)
        return torch.log1p(d + d * d / 3) - d


class RationalQuadratic(Stationary):
    """(1 + d²/(2α))^(−α): a scale mixture of RBF kernels; α → ∞ is the RBF."""

    def __init__(self, lengthscale: Value = None, variance: Value = 1.0, alpha: Value = 1.0) -> None:
        super().__init__(lengthscale, variance)
        self.alpha = alpha

    def bind(self, classes: int, columns: Columns) -> None:
        super().bind(classes, columns)
        alpha = per_class(self.alpha, classes, "alpha of RationalQuadratic")
        self.log_alpha = log_parameter(alpha, (classes,), 1.0, "alpha of RationalQuadratic")

    def settle(self, classes: int) -> None:
        super().settle(classes)
        alpha = to_numpy(self.log_alpha.exp())
        self.alpha = np.repeat(alpha, classes // len(alpha))

    def shape(self, d2: Tensor) -> Tensor:
        alpha = self.log_alpha.exp()[:, None, None]
        return -alpha * torch.log1p(d2 / (2 * alpha))
