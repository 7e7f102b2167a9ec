"""A kernel of functions that repeat themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import nn

from cavity.common.column_statistics import Columns
from cavity.common.types import Floats
from cavity.engine.kernels.base import KERNELS
from cavity.engine.kernels.formulas import Formula, PeriodicFormula
from cavity.engine.kernels.scaled import Given, Scaled


@KERNELS.register
class Periodic(Scaled):
    r"""Periodic functions of every column.

        k(x, x') = variance · exp(−2 Σ_d sin²(π (x_d − x'_d)/period_d)/lengthscale_d²)

    The objective has many optima in the period: start near it, or fix it. Functions
    that slowly change their form are `Periodic(...) * RBF(...)`.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        Smoothness within a period, without a unit. None: 1.
    period : scalar, (D,) or (C, D)
        In the units of the columns.
    variance : scalar or (C,)
        Prior variance of the latent functions, one for all or one per class.
    columns : list of int or str, or None
        Columns that the kernel sees, by number or name. None: all.

    Examples
    --------
    >>> from cavity.kernels import RBF, Fixed, Periodic
    >>> daily = Periodic(period=Fixed(24.0), columns=["hour"])
    >>> daily
    Periodic(lengthscale=None, period=Fixed(24.0), variance=1.0, columns=['hour'])
    >>> kernel = daily + RBF(columns=["temperature"])
    """

    per_column = ("lengthscale", "period")
    log_period: nn.Parameter  # [C G]

    def __init__(
        self,
        lengthscale: Given = None,
        period: Given = 1.0,
        variance: Given = 1.0,
        columns: Any = None,
    ) -> None:
        super().__init__(lengthscale, variance, columns)
        self.period = period

    def _usual(self, name: str, columns: Columns) -> Any:
        return 1.0

    def units_of(self, name: str) -> Floats:
        units = super().units_of(name)
        if name == "lengthscale":
            return np.ones_like(units)

        return units

    def formula(self, xp: Any) -> Formula:
        log_period = xp.array(self._expand(self.log_period))
        return self._select(PeriodicFormula(self._scale(xp), log_period), xp)

    def _weigh_columns(self, spread: Floats) -> Floats:
        """Return the largest slopes in units of the spread, [C D]."""
        period = np.asarray(self.period) * np.asarray(self.lengthscale)
        return np.atleast_2d(2 * math.pi * spread / period)
