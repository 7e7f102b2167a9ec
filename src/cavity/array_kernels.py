"""Covariances between fixed points and rows in NumPy, for predictions that do not load torch; `kernels` has the formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput

Array = NDArray[np.float64]
CELL_POWER = (
    0.25  # cells reach the largest number to this power, in spreads: a sum of their squares stays finite
)
ROW_REACH = 1e30  # of rows of a kernel that grows, in spreads: products of a few such kernels stay finite
FAR = 1e4  # lengthscales from the centre beyond which distances need differences: there a product errs by about 1e-8
LARGEST = float(np.finfo(np.float64).max)


class Covariance(Protocol):
    """One kernel at fixed points. A leading 1 instead of C is shared by all classes."""

    def cross(self, X: Array) -> Array:
        """Return k(Z, X), [C M N]."""

    def diag(self, X: Array) -> Array:
        """Return k(x, x), [C N]."""


class Scale(NamedTuple):
    """Centre and spread of the columns, and the hyper-parameters of a kernel with lengthscales."""

    center: Array  # [D]
    unit: Array  # [D]
    log_lengthscale: Array  # [C D], in units of the spread
    log_variance: Array  # [C]


def _root(d2: Array, factor: float) -> Array:
    return np.sqrt(factor * d2)


def _matern32(d2: Array) -> Array:
    d = _root(d2, 3.0)
    return np.log1p(d) - d


def _matern52(d2: Array) -> Array:
    d = _root(d2, 5.0)
    return np.log1p(d + d * d / 3) - d


Shape = Callable[[Array], Array]
SHAPES: dict[str, Shape] = {  # log(k/variance) as a function of the squared scaled distance
    "RBF": lambda d2: -0.5 * d2,
    "Matern12": lambda d2: -np.sqrt(d2),
    "Matern32": _matern32,
    "Matern52": _matern52,
}


def rational_quadratic(log_alpha: Array) -> Shape:
    """Return the shape (1 + d²/(2α))^(−α), given log α [C]."""
    alpha = np.exp(log_alpha)[:, None, None]
    return lambda d2: -alpha * np.log1p(d2 / (2 * alpha))


class Stationary:
    """σ² exp shape(d²),   d² = Σ_d ((z_d − x_d)/ℓ_d)²."""

    def __init__(self, shape: Shape, scale: Scale, Z: Array) -> None:
        self.shape, self.scale = shape, scale
        self.inverse = np.exp(-2 * scale.log_lengthscale)  # [C D]
        U = self._to_units(Z)
        self.weighted = U * self.inverse[:, None]
        self.u2 = (U * self.weighted).sum(-1)
        if self.u2.max() > FAR**2:
            raise BadInput("some points are too far from the centre for products.")

    def cross(self, X: Array) -> Array:
        V = self._to_units(X)
        d2 = self.u2[..., None] + (self.inverse @ (V * V).T)[:, None] - 2 * self.weighted @ V.T
        return np.exp(self.shape(np.maximum(d2, 0)) + self.scale.log_variance[:, None, None])

    def diag(self, X: Array) -> Array:
        return np.repeat(np.exp(self.scale.log_variance)[:, None], len(X), 1)

    def _to_units(self, X: Array) -> Array:
        most = LARGEST**CELL_POWER
        return np.clip((X - self.scale.center) / self.scale.unit, -most, most)


class Linear:
    """σ² Σ_d (z_d − o_d)(x_d − o_d)/ℓ_d²."""

    def __init__(self, scale: Scale, Z: Array) -> None:
        self.scale = scale
        self.rate = np.exp(0.5 * scale.log_variance[:, None] - scale.log_lengthscale)  # [C D]
        self.points = self._to_units(Z) * self.rate[:, None]

    def cross(self, X: Array) -> Array:
        return np.asarray(self.points @ (self._to_units(X) * self.rate[:, None]).transpose(0, 2, 1))

    def diag(self, X: Array) -> Array:
        return np.asarray(self.rate**2 @ (self._to_units(X) ** 2).T)

    def _to_units(self, X: Array) -> Array:
        """Return rows in spreads; those beyond ROW_REACH are moved straight towards the centre."""
        off = np.clip(X - self.scale.center, -LARGEST, LARGEST)
        size = np.clip(np.abs(off / self.scale.unit).max(-1, keepdims=True), ROW_REACH, LARGEST)
        return np.asarray(off * (ROW_REACH / size) / self.scale.unit)


class Constant:
    """σ²."""

    def __init__(self, log_variance: Array, Z: Array) -> None:
        self.variance, self.M = np.exp(log_variance), Z.shape[-2]

    def cross(self, X: Array) -> Array:
        return np.broadcast_to(self.variance[:, None, None], (len(self.variance), self.M, len(X)))

    def diag(self, X: Array) -> Array:
        return np.broadcast_to(self.variance[:, None], (len(self.variance), len(X)))


class Pair:
    """The sum or the product of two kernels."""

    def __init__(
        self, combine: Callable[[Array, Array], Array], first: Covariance, second: Covariance
    ) -> None:
        self.combine, self.first, self.second = combine, first, second

    def cross(self, X: Array) -> Array:
        return self.combine(self.first.cross(X), self.second.cross(X))

    def diag(self, X: Array) -> Array:
        return self.combine(self.first.diag(X), self.second.diag(X))


class Knots(NamedTuple):
    """Normal scores of some columns: linear between knots, constant outside them."""

    place: NDArray[np.int64]  # [d], the columns
    left: Array  # [d K-1]
    height: Array  # [d K-1]
    slope: Array  # [d K-1]
    last: Array  # [d]

    def score(self, X: Array) -> Array:
        """Return rows with the scores of their cells."""
        out = X.copy()
        for column, left, height, slope, last in zip(*self, strict=True):
            cells = X[:, column]
            i = np.maximum(np.searchsorted(left, cells, side="right") - 1, 0)
            out[:, column] = height[i] + slope[i] * (np.clip(cells, left[0], last) - left[i])
        return out


class Ranked:
    """A kernel on normal scores of the columns."""

    def __init__(self, base: Covariance, knots: Knots) -> None:
        self.base, self.knots = base, knots

    def cross(self, X: Array) -> Array:
        return self.base.cross(self.knots.score(X))

    def diag(self, X: Array) -> Array:
        return self.base.diag(self.knots.score(X))
