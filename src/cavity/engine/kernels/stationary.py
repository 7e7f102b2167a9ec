"""Kernels of the scaled distance: RBF, Matérn, rational quadratic.

One lengthscale per column (ARD).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor

from cavity.common.column_statistics import Columns
from cavity.common.torch_namespace import TORCH
from cavity.engine.kernels import formulas
from cavity.engine.kernels.base import KERNELS
from cavity.engine.kernels.distance import half_square_distance
from cavity.engine.kernels.formulas import Formula, StationaryFormula
from cavity.engine.kernels.scaled import Given, Scaled


class Stationary(Scaled):
    """Base class of stationary kernels.

        k(x, x') = variance · shape(d²)        d² = Σ_d ((x_d − x'_d)/lengthscale_d)²

    A subclass writes `shape`, for torch, NumPy and ONNX alike. `own` names
    hyper-parameters that it takes beside d². The other parameters are as for `RBF`.

    Examples
    --------
    >>> from cavity.engine.kernels import Stationary
    >>> class Cauchy(Stationary):
    ...     @staticmethod
    ...     def shape(xp, d2):
    ...         return -xp.log1p(d2)
    >>> Cauchy(lengthscale=2.0)
    Cauchy(lengthscale=2.0, variance=1.0)
    """

    # Frequencies for a lengthscale of 1 follow Student's t with these degrees of
    # freedom. None: not known. Not inherited: a subclass may have another shape.
    spectral_degrees: ClassVar[float | None] = None

    def usual(self, columns: Columns) -> float:
        return columns.distance

    @staticmethod
    def shape(xp: Any, d2: Any, *own: Any) -> Any:
        """Return log(k / variance), element by element, of squared scaled distances d².

        They have any shape. `xp` has the functions of the array's kind: `exp`, `log1p`,
        `sqrt`, `abs`, `tanh`, `maximum`, `minimum`. `own` are the values of the
        hyper-parameters `own`, [C 1 1].
        """
        raise NotImplementedError

    def formula(self, xp: Any) -> Formula:
        return self._select(self._of_columns(xp), xp)

    def _of_columns(self, xp: Any) -> StationaryFormula:
        """Return the formula for rows with the kernel's own columns."""
        logs = tuple(xp.array(getattr(self, f"log_{name}")) for name in self.own)
        return StationaryFormula(self.shape, self._scale(xp), logs)

    def full(self, Z: Tensor) -> Tensor:
        return self._covariance(self.to_units(Z), None)

    def cross(self, Z: Tensor, X: Tensor) -> Tensor:
        return self._covariance(self.to_units(Z), self.to_units(X))

    def _covariance(self, U: Tensor, V: Tensor | None) -> Tensor:
        S = half_square_distance(U, V, self.log_scale)
        return self._of_columns(TORCH).value(S)


@KERNELS.register
class RBF(Stationary):
    """Radial basis function (squared exponential), exp(−½ d²): infinitely smooth.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the
        columns. None: the median distance between rows times the spread of each column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.
    columns : list of int or str, or None
        Columns that the kernel sees, by number or name. None: all. An estimator knows
        names; for it, a category stands for all of its features.
    """

    spectral_degrees = math.inf
    shape = staticmethod(formulas.rbf)


@KERNELS.register
class Matern12(Stationary):
    """Matérn ½, exp(−d): continuous, nowhere differentiable.

    Its parameters are those of `RBF`.
    """

    spectral_degrees = 1.0
    shape = staticmethod(formulas.matern12)


@KERNELS.register
class Matern32(Stationary):
    """Matérn 3/2, (1 + √3 d) exp(−√3 d): once differentiable.

    Its parameters are those of `RBF`.
    """

    spectral_degrees = 3.0
    shape = staticmethod(formulas.matern32)


@KERNELS.register
class Matern52(Stationary):
    """Matérn 5/2, (1 + √5 d + 5d²/3) exp(−√5 d): twice differentiable.

    Its parameters are those of `RBF`.
    """

    spectral_degrees = 5.0
    shape = staticmethod(formulas.matern52)


@KERNELS.register
class RationalQuadratic(Stationary):
    """Rational quadratic, (1 + d²/(2α))^(−α): a scale mixture of RBF kernels.

    The limit α → ∞ is the RBF. The other parameters are those of `RBF`.

    Parameters
    ----------
    alpha : scalar or (C,)
        Exponent, one for all or one per class: the smaller, the heavier the tails.
    """

    own = ("alpha",)
    shape = staticmethod(formulas.rational_quadratic)

    def __init__(
        self,
        lengthscale: Given = None,
        variance: Given = 1.0,
        alpha: Given = 1.0,
        columns: Any = None,
    ) -> None:
        super().__init__(lengthscale, variance, columns)
        self.alpha = alpha
