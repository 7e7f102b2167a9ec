"""Kernels of the scaled distance: RBF, Matérn, rational quadratic. One lengthscale per column (ARD)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from cavity.columns import Columns
from cavity.kernels.base import KERNELS, no_graph
from cavity.kernels.distance import gaussian_pair, half_square_distance, prepare_points
from cavity.kernels.parameters import log_parameter, per_class, to_numpy
from cavity.kernels.scaled import Given, Scaled, cell_limit
from cavity.onnx_graph import Covariance, Value


class Stationary(Scaled):
    """Base class of stationary kernels: k(x, x') = variance · shape(d²),   d² = Σ_d ((x_d − x'_d)/lengthscale_d)².

    A subclass writes `shape`, and `graph_shape` for ONNX export.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the columns. None: the median distance between
        rows times the spread of each column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.

    Examples
    --------
    >>> import torch
    >>> from cavity.kernels import Stationary
    >>> class Cauchy(Stationary):
    ...     def shape(self, d2):
    ...         return -torch.log1p(d2)
    >>> Cauchy(lengthscale=2.0)
    Cauchy(lengthscale=2.0, variance=1.0)
    """

    # Frequencies, in units of 1/lengthscale, follow Student's t with these degrees of freedom (∞: the normal); None: not known.
    spectral_degrees: ClassVar[float | None] = None

    def usual(self, columns: Columns) -> float:
        return columns.distance

    def shape(self, d2: Tensor) -> Tensor:
        """Return log(k / variance) as a function of the squared scaled distance.

        Parameters
        ----------
        d2 : Tensor
            Squared scaled distances d², of any shape.

        Returns
        -------
        Tensor
            Values, element by element.
        """
        raise NotImplementedError

    def full(self, Z: Tensor) -> Tensor:
        return self._value(half_square_distance(self._units(Z), None, self.log_scale))

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self._value(half_square_distance(self._units(Z), self._units(X), self.log_scale))

    def cross_from(self, Z: Tensor) -> Callable[[Tensor], Tensor]:
        points = prepare_points(self._units(Z), self.log_scale)
        if points is None or type(self).cross is not Stationary.cross:
            return super().cross_from(Z)
        return lambda X: self._value(points.half_square_distance(self._units(X)))

    def pair(self, Z: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        U, V, log_scale = self._units(Z), self._units(X), self.log_scale
        full, cross = (half_square_distance(U, other, log_scale, careful=False) for other in (None, V))
        return self._value(full), self._value(cross)

    def diag(self, X: Tensor) -> Tensor:
        return self.log_variance.exp()[:, None].expand(-1, X.shape[-2])

    def graph(self, Z: Tensor, X: Value) -> Covariance:
        rate = to_numpy((-self.log_scale).exp())[:, None, :]  # [C 1 D]
        U = to_numpy(self._units(Z)) * rate  # [C M D]
        most = cell_limit(torch.float64)
        units = ((X - to_numpy(self.center)) / to_numpy(self.unit)).at_least(-most).at_most(most)
        V = units.new_axis(0) * rate  # [C n D]
        inner = X.graph.value(U) @ V.turned(0, 2, 1)  # [C M n]
        v2 = (V * V).sum(2).new_axis(1)
        d2 = (v2 - inner * 2.0 + (U**2).sum(2)[:, :, None]).at_least(0.0)
        # the variance as a term of the exponent: onnxruntime may fuse a factor into a product, in single precision
        log_variance = X.graph.value(to_numpy(self.log_variance)[:, None, None])
        diag = X.graph.value(to_numpy(self.log_variance.exp())[:, None])
        return Covariance(self.graph_shape(d2, log_variance), diag)

    def graph_shape(self, d2: Value, log_variance: Value) -> Value:
        """Write variance · exp shape(d²) as nodes of an ONNX graph.

        Parameters
        ----------
        d2 : Value
            Squared scaled distances d², [C M n].
        log_variance : Value
            Logarithm of the variance, [C 1 1].

        Returns
        -------
        Value
            Covariances, [C M n].
        """
        raise no_graph(self)

    def _value(self, s: Tensor) -> Tensor:
        return self.shape(-2 * s).add_(self.log_variance[:, None, None]).exp_()


def _root(d2: Tensor) -> Tensor:
    """√d², with gradient 0 instead of ∞ where two points coincide."""
    return d2.clamp_min(1e-30 if d2.dtype == torch.float64 else 1e-14).sqrt()


@KERNELS.register
class RBF(Stationary):
    """The radial basis function (squared exponential), exp(−½ d²): infinitely smooth.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the columns. None: the median distance between
        rows times the spread of each column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier
    >>> from cavity.kernels import RBF
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier(kernel=RBF(), n_inducing=10, max_epochs=20, tol=1.0).fit(X, y)
    >>> bool(clf.score(X, y) > 0.9)
    True
    """

    spectral_degrees = math.inf

    def pair(self, Z: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        return gaussian_pair(self._units(Z), self._units(X), self.log_scale, self.log_variance)

    def _value(self, s: Tensor) -> Tensor:
        return s.add_(self.log_variance[:, None, None]).exp_()

    def graph_shape(self, d2: Value, log_variance: Value) -> Value:
        return (d2 * -0.5 + log_variance).exp()


@KERNELS.register
class Matern12(Stationary):
    """Matérn ½, exp(−d): continuous, nowhere differentiable.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the columns. None: the median distance between
        rows times the spread of each column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.

    Examples
    --------
    >>> from cavity.kernels import Matern12
    >>> Matern12(lengthscale=2.0)
    Matern12(lengthscale=2.0, variance=1.0)
    """

    spectral_degrees = 1.0

    def shape(self, d2: Tensor) -> Tensor:
        return -_root(d2)

    def graph_shape(self, d2: Value, log_variance: Value) -> Value:
        return (-d2.sqrt() + log_variance).exp()


@KERNELS.register
class Matern32(Stationary):
    """Matérn 3/2, (1 + √3 d) exp(−√3 d): once differentiable.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the columns. None: the median distance between
        rows times the spread of each column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.

    Examples
    --------
    >>> from cavity.kernels import Matern32
    >>> Matern32(lengthscale=2.0)
    Matern32(lengthscale=2.0, variance=1.0)
    """

    spectral_degrees = 3.0

    def shape(self, d2: Tensor) -> Tensor:
        d = math.sqrt(3.0) * _root(d2)
        return torch.log1p(d) - d

    def graph_shape(self, d2: Value, log_variance: Value) -> Value:
        d = d2.sqrt() * math.sqrt(3.0)
        return (d + 1.0) * (-d + log_variance).exp()


@KERNELS.register
class Matern52(Stationary):
    """Matérn 5/2, (1 + √5 d + 5d²/3) exp(−√5 d): twice differentiable.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the columns. None: the median distance between
        rows times the spread of each column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.

    Examples
    --------
    >>> from cavity.kernels import Matern52
    >>> Matern52(lengthscale=2.0)
    Matern52(lengthscale=2.0, variance=1.0)
    """

    spectral_degrees = 5.0

    def shape(self, d2: Tensor) -> Tensor:
        d = math.sqrt(5.0) * _root(d2)
        return torch.log1p(d + d * d / 3) - d

    def graph_shape(self, d2: Value, log_variance: Value) -> Value:
        d = d2.sqrt() * math.sqrt(5.0)
        return (d + d * d / 3.0 + 1.0) * (-d + log_variance).exp()


@KERNELS.register
class RationalQuadratic(Stationary):
    """Rational quadratic, (1 + d²/(2α))^(−α): a scale mixture of RBF kernels; α → ∞ is the RBF.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the columns. None: the median distance between
        rows times the spread of each column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.
    alpha : scalar or (C,)
        Exponent, one for all or one per class: the smaller, the heavier the tails.

    Examples
    --------
    >>> from cavity.kernels import RationalQuadratic
    >>> RationalQuadratic(lengthscale=2.0)
    RationalQuadratic(lengthscale=2.0, variance=1.0, alpha=1.0)
    """

    def __init__(self, lengthscale: Given = None, variance: Given = 1.0, alpha: Given = 1.0) -> None:
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

    def graph_shape(self, d2: Value, log_variance: Value) -> Value:
        alpha = to_numpy(self.log_alpha.exp())[:, None, None]
        return ((d2 / (2 * alpha) + 1.0).log() * -alpha + log_variance).exp()
