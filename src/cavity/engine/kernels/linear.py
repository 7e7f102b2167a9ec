"""Kernels without a distance: linear functions and constants."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from cavity.common.column_statistics import Columns
from cavity.engine.kernels.base import KERNELS, Kernel
from cavity.engine.kernels.formulas import ConstantFormula, Formula, LinearFormula
from cavity.engine.kernels.scaled import ROW_REACH, Given, Scaled


@KERNELS.register
class Linear(Scaled):
    """Linear functions around the centre o of the columns.

        k(x, x') = variance · Σ_d (x_d − o_d)(x'_d − o_d)/lengthscale_d²

    Add `Constant()` for a free intercept. A row further from the centre than 1e30
    spreads (1e5 in float32) counts as being at that distance in the same direction, so
    that every finite row has finite values.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        One for all columns, one per column, or one row per class, in the units of the
        columns. None: √D times the spread of each column.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.
    fades : bool, default=False
        Whether the functions fade to zero beyond the training rows. Their variance
        stays, so that the model does not claim to know what a straight line would say
        there. The kernel of `method="auto"` fades.
    columns : list of int or str, or None
        Columns that the kernel sees, by number or name. None: all.

    Examples
    --------
    >>> from cavity.engine.kernels import Constant, Linear
    >>> Linear() + Constant()
    Linear(lengthscale=None, variance=1.0, fades=False) + Constant(variance=1.0)
    """

    # [], squared distance that training rows reach, in spreads, if functions fade
    square_reach: Tensor

    def __init__(
        self,
        lengthscale: Given = None,
        variance: Given = 1.0,
        fades: bool = False,
        columns: Any = None,
    ) -> None:
        super().__init__(lengthscale, variance, columns)
        self.fades = fades

    def bind(self, classes: int, columns: Columns) -> None:
        super().bind(classes, columns)
        if self.fades:
            if self.index is not None:
                columns = columns.select(self.index.cpu().numpy())
            reach = torch.tensor(columns.square_reach, dtype=torch.float64)
            self.register_buffer("square_reach", reach)

    def usual(self, columns: Columns) -> float:
        if columns.group is None:
            return math.sqrt(len(columns.spread))

        return math.sqrt(columns.group.max() + 1)

    def formula(self, xp: Any) -> Formula:
        fade = None
        if self.fades:
            fade = xp.array((1 / self.square_reach).expand(len(self.unit), 1))
        reach = ROW_REACH[self.center.dtype]
        return self._select(LinearFormula(self._scale(xp), reach, fade), xp)


@KERNELS.register
class Constant(Kernel):
    """Constant functions, a random offset: k(x, x') = variance.

    Parameters
    ----------
    variance : scalar or (C,)
        Prior variance of the offset, one for all classes or one per class.
    """

    positive = ("variance",)
    log_variance: Tensor  # [C] or [1]

    def __init__(self, variance: Given = 1.0) -> None:
        super().__init__()
        self.variance = variance

    def formula(self, xp: Any) -> ConstantFormula:
        return ConstantFormula(xp.array(self.log_variance))
