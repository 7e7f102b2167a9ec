"""The base class of kernels with one lengthscale per column (ARD) and a variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity import array_kernels
from cavity.array_kernels import CELL_POWER
from cavity.columns import Columns
from cavity.errors import BadOption
from cavity.kernels.base import Kernel
from cavity.kernels.parameters import log_parameter, per_class, to_numpy

ROW_REACH = {torch.float64: array_kernels.ROW_REACH, torch.float32: 1e5}
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
    group: Tensor | None  # [D], number of each column's lengthscale, if columns share some

    def __init__(self, lengthscale: Given = None, variance: Given = 1.0) -> None:
        super().__init__()
        self.lengthscale = lengthscale
        self.variance = variance

    def usual(self, columns: Columns) -> float:
        """Return the lengthscale to start from, in units of the spread."""
        raise NotImplementedError

    def bind(self, classes: int, columns: Columns) -> None:
        unit, name = columns.spread, type(self).__name__
        value = unit * self.usual(columns) if self.lengthscale is None else np.asarray(self.lengthscale)
        first = slice(None) if columns.group is None else np.unique(columns.group, return_index=True)[1]
        if np.ndim(value) and np.shape(value)[-1] == len(unit):
            value = value[..., first]
        shape = (classes, len(unit[first]))
        self.log_lengthscale = log_parameter(value, shape, unit[first], f"lengthscale of {name}")
        variance = per_class(self.variance, classes, f"variance of {name}")
        self.log_variance = log_parameter(variance, (classes,), 1.0, f"variance of {name}")
        self.register_buffer("group", None if columns.group is None else torch.tensor(columns.group))
        self.register_buffer("unit", torch.tensor(unit))
        self.register_buffer("center", torch.tensor(columns.center))

    def settle(self, classes: int) -> None:
        lengthscale = to_numpy(self.unit * self.log_scale.exp())
        self.lengthscale = np.repeat(lengthscale, classes // len(lengthscale), axis=0)
        variance = to_numpy(self.log_variance.exp())
        self.variance = np.repeat(variance, classes // len(variance))

    @property
    def log_scale(self) -> Tensor:
        """Logarithm of each column's lengthscale in units of its spread, [C D]."""
        return self.log_lengthscale if self.group is None else self.log_lengthscale[:, self.group]

    def _units(self, X: Tensor) -> Tensor:
        """Centre the columns and divide them by their spread, so that distances do not depend on the units of the data."""
        if X.shape[-1] != len(self.unit):
            raise BadOption(f"this kernel was made for {len(self.unit)} columns and was given {X.shape[-1]}.")
        return limit_cells((X - self.center) / self.unit)

    def to_units(self, X: Tensor) -> Tensor:
        """Centre the columns and divide them by their spread, as the kernel sees them.

        Parameters
        ----------
        X : Tensor
            Rows or points, [... D].

        Returns
        -------
        Tensor
            The same in units of the spread; cells too far from the centre are limited.
        """
        return self._units(X)

    def relevance(self, columns: Columns) -> np.ndarray:
        return np.asarray(columns.spread / self.lengthscale)


def cell_limit(dtype: torch.dtype) -> float:
    """Return the distance from the centre, in spreads, beyond which a cell counts as being at that distance."""
    return float(torch.finfo(dtype).max ** CELL_POWER)


def limit_cells(units: Tensor) -> Tensor:
    """Limit cells in units of the spread, so that squared distances stay finite for every finite cell."""
    most = cell_limit(units.dtype)
    return units.clamp(-most, most)


def shrink_far_rows(X: Tensor, center: Tensor, unit: Tensor) -> Tensor:
    """Move rows that are too far from the centre straight towards it, to a distance at which functions that grow stay finite.

    All other rows keep their bits. Class probabilities of a linear function have a limit along each line; this is that limit.
    """
    most = ROW_REACH[X.dtype]
    size = ((X - center) / unit).abs().amax(-1, keepdim=True)
    if X.is_cuda or bool((size > most).any()):
        largest = torch.finfo(X.dtype).max
        far = (X - center).clamp(-largest, largest) * (most / size.clamp(most, largest))
        return torch.where(size > most, center + far, X)
    return X
