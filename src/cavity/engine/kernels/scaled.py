"""The base class of kernels with one lengthscale per column (ARD) and a variance."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from cavity.common.column_statistics import Columns
from cavity.common.torch_namespace import TORCH
from cavity.common.types import Floats, Ints
from cavity.engine.kernels import formulas
from cavity.engine.kernels.base import Kernel, log_parameter
from cavity.engine.kernels.formulas import ColumnsFormula, Formula, Scale
from cavity.engine.parameters import (
    Placed,
    Setting,
    is_learnt,
    keep_setting,
)
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
    columns : list of int or str, or None
        Columns that the kernel sees, by number or name. None: all.
    """

    positive = ("variance",)
    # arguments with a value per column
    per_column: ClassVar[tuple[str, ...]] = ("lengthscale",)
    unit: Tensor
    center: Tensor
    log_variance: nn.Parameter  # [C] or [1]
    log_lengthscale: nn.Parameter  # [C G]
    group: Tensor | None  # [D], number of each column's lengthscale, if some are shared
    index: Tensor | None  # [D], features that the kernel sees; None: all

    def __init__(
        self, lengthscale: Given = None, variance: Given = 1.0, columns: Any = None
    ) -> None:
        super().__init__()
        self.lengthscale = lengthscale
        self.variance = variance
        self.columns = columns

    @property
    def columns(self) -> Any:
        """The columns that the kernel sees, as given."""
        return self._columns

    @columns.setter
    def columns(self, value: Any) -> None:
        self._columns = value
        self.register_buffer("index", None)

    def usual(self, columns: Columns) -> float:
        """Return the lengthscale to start from, in units of the spread."""
        raise NotImplementedError

    def bind(self, classes: int, columns: Columns) -> None:
        if self.columns is not None:
            index = self._find_features(columns)
            self.register_buffer("index", torch.tensor(index))
            columns = columns.select(index)

        unit = columns.spread
        group = columns.group
        per_column = [self._has_columns(name, len(unit)) for name in self.per_column]
        if any(per_column) and columns.constant is not None:
            # constant columns, which new rows may not be, have the given ones, too
            group = None

        self.register_buffer("group", None if group is None else torch.tensor(group))
        self.register_buffer("unit", torch.tensor(unit))
        self.register_buffer("center", torch.tensor(columns.center))
        for name in self.per_column:
            self._bind_columns(name, classes, columns)
        super().bind(classes, columns)

    def _bind_columns(self, name: str, classes: int, columns: Columns) -> None:
        """Make the logarithms of an argument with a value per column, [C G]."""
        unit = self.units_of(name)
        title = f"{name} of {type(self).__name__}"
        given = getattr(self, name)
        value = np.asarray(self.start_of(name, self._usual(name, columns)))
        first = self._first()
        if value.ndim and value.shape[-1] == len(unit):
            value = value[..., first]
        own = unit[first]
        parameter = log_parameter(value, (classes, len(own)), own, title)
        setattr(self, f"log_{name}", parameter.requires_grad_(is_learnt(given)))

    def _usual(self, name: str, columns: Columns) -> Floats:
        return self.units_of(name) * self.usual(columns)

    def units_of(self, name: str) -> Floats:
        """Return the unit of each column in which an argument is stepped, [D]."""
        return np.asarray(TORCH.host(self.unit))

    def _first(self) -> Any:
        """Return the first column of every group that shares a value."""
        if self.group is None:
            return slice(None)

        return np.unique(self.group.cpu().numpy(), return_index=True)[1]

    def _has_columns(self, name: str, size: int) -> bool:
        shape = np.shape(self.start_of(name, 1.0))
        return bool(shape) and shape[-1] == size

    def _find_features(self, columns: Columns) -> Ints:
        """Return the features that the kernel sees."""
        if columns.places is None and self.index is not None:
            return np.asarray(self.index.cpu().numpy())

        return columns.find(self.columns, f"columns= of {type(self).__name__}")

    def settings(self) -> dict[str, Placed]:
        found = super().settings()
        first = self._first()
        for name in self.per_column:
            given = getattr(self, name)
            if isinstance(given, Setting):
                unit = self.units_of(name)
                own = given.pick(first, len(unit))
                found[f"log_{name}"] = Placed(own, np.log(unit[first]))
        return found

    def _count_sets(self) -> int:
        starts = [self.start_of(name, 1.0) for name in self.per_column]
        sets = [len(start) for start in starts if np.ndim(start) == 2]
        return max(super()._count_sets(), *sets, 1)

    def settle(self, classes: int) -> None:
        for name in self.per_column:
            unit = torch.as_tensor(self.units_of(name)).to(self.unit)
            log: Any = getattr(self, f"log_{name}")
            log = self._expand(log)
            value = TORCH.host(unit * log.exp())
            value = np.repeat(value, classes // len(value), axis=0)
            setattr(self, name, keep_setting(getattr(self, name), value))
        super().settle(classes)

    @property
    def log_scale(self) -> Tensor:
        """Logarithm of each column's lengthscale in units of its spread, [C D]."""
        return self._expand(self.log_lengthscale)

    def _expand(self, log: Tensor) -> Tensor:
        """Return the value of each column, [C D], of values per group, [C G]."""
        if self.group is None:
            return log

        return log[:, self.group]

    def _scale(self, xp: Any) -> Scale:
        values = (self.center, self.unit, self.log_scale, self.log_variance)
        return Scale(*map(xp.array, values))

    def _select(self, formula: Formula, xp: Any) -> Formula:
        """Return the formula for rows with all columns."""
        if self.index is None:
            return formula

        return ColumnsFormula(formula, xp.array(self.index))

    def to_units(self, X: Tensor) -> Tensor:
        """Centre the columns of rows or points [... D], and divide by their spread.

        Cells too far away are limited.
        """
        if self.index is not None:
            X = X[..., self.index]
        if X.shape[-1] != len(self.unit):
            raise BadOption(
                f"this kernel was made for {len(self.unit)} columns, but was given "
                f"{X.shape[-1]}."
            )

        return formulas.to_units(X, self.center, self.unit)

    def relevance(self, columns: Columns) -> np.ndarray:
        index: Any = slice(None)
        if self.index is not None:
            index = self.index.cpu().numpy()
        own = self._weigh_columns(columns.spread[index])
        weight = np.zeros((len(own), len(columns.spread)))
        weight[:, index] = own
        if columns.constant is None:
            return weight

        return np.where(columns.constant, 0.0, weight)

    def _weigh_columns(self, spread: Floats) -> Floats:
        """Return the weight of each column that the kernel sees, [C D]."""
        return np.atleast_2d(spread / np.asarray(self.lengthscale))

    def __repr__(self) -> str:
        """Leave out `columns` if the kernel sees all."""
        given = super().__repr__()
        if self.columns is None:
            return given.replace(", columns=None", "")

        return given
