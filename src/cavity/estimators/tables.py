"""Training rows as a fit begins with them: what the engine needs to know of them, and starting values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cavity import inducing
from cavity.columns import Columns, distinct_rows, summarize
from cavity.data import Arrays, Divisible, Rows, Stream
from cavity.estimators.options import Options

Array = NDArray[np.float64]

ROOM = 0.5  # of a GPU's free memory that a table may take


class Facts(Protocol):
    """What the engine needs to know of the training rows; their weights are positive."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_classes(self) -> int: ...

    @property
    def n_latent(self) -> int:
        """Latent functions: one a class, a single one for two classes."""
        ...

    @property
    def class_totals(self) -> Array:
        """Σ weights of each class, [C]."""
        ...

    @property
    def lightest(self) -> float: ...

    @property
    def heaviest(self) -> float: ...

    def sample(self) -> tuple[Any, ...]:
        """Arrays that tell this table from others."""
        ...

    def start(self, rng: np.random.Generator) -> Start: ...

    def rows(self, options: Options) -> Divisible: ...


class Start(NamedTuple):
    """Starting values that depend on the rows but not on the method."""

    columns: Columns
    pool: inducing.Candidates


@dataclass(frozen=True)
class InMemory:
    """Rows in memory, whatever y is."""

    X: Array  # [N D]
    y: NDArray[Any]  # [N]
    weight: Array  # [N], positive

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def lightest(self) -> float:
        return float(self.weight.min())

    @property
    def heaviest(self) -> float:
        return float(self.weight.max())

    def sample(self) -> tuple[Any, ...]:
        return self.X, self.y, self.weight

    def seen(self) -> NDArray[Any]:
        """y as the factor has it."""
        return self.y

    def rows(self, options: Options) -> Divisible:
        return self.on_device(options)

    def on_device(self, options: Options) -> Rows:
        """The table as tensors."""
        X = torch.tensor(self.X, dtype=options.dtype, device=options.device)
        y, weight = (torch.tensor(a, device=options.device) for a in (self.seen(), self.weight))
        return Rows(X, y, weight)


@dataclass(frozen=True)
class Table(InMemory):
    """Rows with encoded labels, 0..C−1."""

    n_classes: int

    @property
    def n_latent(self) -> int:
        """Latent functions: one a class, a single one for two classes."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def class_totals(self) -> Array:
        totals = np.bincount(self.y, weights=self.weight, minlength=self.n_classes)
        return np.asarray(totals, dtype=np.float64)

    def rows(self, options: Options) -> Divisible:
        """On the device; where a GPU has no room for them, batch by batch through pinned memory."""
        if has_room(options.device, self.X.size * options.dtype.itemsize):
            return self.on_device(options)
        source = Arrays(self.X, self.y, self.weight)
        classes, factor = np.arange(self.n_classes), np.ones(self.n_classes)
        N, D = self.X.shape
        return Stream(source, classes, factor, N, D, options.dtype, options.device)

    def start(self, rng: np.random.Generator) -> Start:
        """Column statistics and candidate rows; blind to the order of rows and to repeating versus weighting."""
        distinct, place = _distinct(self.X)
        weight = np.asarray(
            np.bincount(place, weights=self.weight, minlength=len(distinct)), dtype=np.float64
        )
        columns = summarize(distinct, weight, rng)
        pool = inducing.candidates(self.X, self.y, self.weight, self.n_classes, columns, rng)
        return Start(columns, pool)


def has_room(device: torch.device, size: int) -> bool:
    """Whether a table of so many bytes leaves a device room to work."""
    return device.type != "cuda" or size <= ROOM * torch.cuda.mem_get_info(device)[0]


def _distinct(X: Array) -> tuple[Array, NDArray[np.int64]]:
    return (X, np.arange(len(X))) if len(X) > inducing.CANDIDATES else distinct_rows(X)
