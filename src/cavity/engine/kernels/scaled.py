"""The base class of kernels with one lengthscale per column (ARD) and a variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.column_statistics import Columns
from cavity.common.torch_namespace import TORCH
from cavity.engine.kernels import formulas
from cavity.engine.kernels.base import Kernel, log_parameter
from cavity.engine.kernels.formulas import Scale
from cavity.errors import BadOption

ROW_REACH = {
    torch.float64: formulas.ROW_REACH,
    torch.float32: formulas.ROW_REACH_SINGLE,
}
# scalar, or an array that broadcasts to [C D] (lengthscales) or [C] (variances)
Given = Any


class Scaled(Kernel):
    """Base class of kernels with lengthscales and a variance.

    Both are stepped as logarithms, lengthscales in units of each column's spread.

    Parameters
    ----------
    lengthscale : None, scalar, (D,) or (C, D)
        In the units of the columns. None: start from a value that suits the data.
    variance : scalar or (C,)
        Prior variance of the latent functions.
    """

    positive = ("variance",)
    unit: Tensor
    center: Tensor
    log_variance: nn.Parameter  # [C] or [1]
    group: Tensor | None  # [D], number of each column's lengthscale, if some are shared

    def __init__(self, lengthscale: Given = None, variance: Given = 1.0) -> None:
        super().__init__()
        self.lengthscale = lengthscale
        self.variance = variance

    def usual(self, columns: Columns) -> float:
        """Return the lengthscale to start from, in units of the spread."""
        raise NotImplementedError

    def bind(self, classes: int, columns: Columns) -> None:
        unit = columns.spread
        if self.lengthscale is None:
            value = unit * self.usual(columns)
        else:
            value = np.asarray(self.lengthscale)

        per_column = bool(np.ndim(value)) and np.shape(value)[-1] == len(unit)
        group = columns.group
        given = per_column and self.lengthscale is not None
        if given and columns.constant is not None:
            # constant columns, which new rows may not be, have the given ones, too
            group = None
        first: Any = slice(None)
        if group is not None:
            _, first = np.unique(group, return_index=True)
        if per_column:
            value = value[..., first]
        own = unit[first]
        title = f"lengthscale of {type(self).__name__}"
        self.log_lengthscale = log_parameter(value, (classes, len(own)), own, title)
        super().bind(classes, columns)
        self.register_buffer("group", None if group is None else torch.tensor(group))
        self.register_buffer("unit", torch.tensor(unit))
        self.register_buffer("center", torch.tensor(columns.center))

    def _count_sets(self) -> int:
        of_class = np.ndim(self.lengthscale) == 2
        return max(super()._count_sets(), len(self.lengthscale) if of_class else 1)

    def settle(self, classes: int) -> None:
        lengthscale = TORCH.host(self.unit * self.log_scale.exp())
        self.lengthscale = np.repeat(lengthscale, classes // len(lengthscale), axis=0)
        super().settle(classes)

    @property
    def log_scale(self) -> Tensor:
        """Logarithm of each column's lengthscale in units of its spread, [C D]."""
        if self.group is None:
            return self.log_lengthscale

        return self.log_lengthscale[:, self.group]

    def _scale(self, xp: Any) -> Scale:
        values = (self.center, self.unit, self.log_scale, self.log_variance)
        return Scale(*map(xp.array, values))

    def to_units(self, X: Tensor) -> Tensor:
        """Centre the columns of rows or points [... D], and divide by their spread.

        Cells too far away are limited.
        """
        if X.shape[-1] != len(self.unit):
            raise BadOption(
                f"this kernel was made for {len(self.unit)} columns, but was given "
                f"{X.shape[-1]}."
            )

        return formulas.to_units(X, self.center, self.unit)

    def relevance(self, columns: Columns) -> np.ndarray:
        weight = np.asarray(columns.spread / self.lengthscale)
        if columns.constant is None:
            return weight

        return np.where(columns.constant, 0.0, weight)
