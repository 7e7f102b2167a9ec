r"""Normal priors on the logarithms of hyper-parameters.

They are independent, or pooled partially across classes. The pooled prior of an array
[C D] of logarithms, such as the lengthscales, is centred at its starting value:

    gap_cd = all + class_c + column_d + own_cd

The four parts are independent normals, with the standard deviations in `Spread`. The
covariance has the four eigenspaces of a two-way layout: the overall mean, the class
means and the column means around it, and the remainder. Multiplying by its inverse
needs only means, not a matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Spread(NamedTuple):
    """Standard deviations of the parts of a pooled prior."""

    all: float
    each_class: float
    column: float
    own: float


class PooledBlock(NamedTuple):
    """An array [rows, columns] within θ that has a pooled prior."""

    start: int
    rows: int
    columns: int
    inverse: Spread  # inverse eigenvalues of the covariance

    def add(self, gap: Tensor, found: Tensor) -> None:
        """Complete the product of inverse covariance and gap in `found`.

        There `found` holds `own` times the gap.
        """
        part = slice(self.start, self.start + self.rows * self.columns)
        x = gap[part].view(self.rows, self.columns)
        into = found[part].view(self.rows, self.columns)
        by_class = x.mean(1, keepdim=True)
        by_column = x.mean(0, keepdim=True)
        total, each_class, column, own = self.inverse
        into.add_(by_class, alpha=each_class - own)
        into.add_(by_column, alpha=column - own)
        into.add_(by_class.mean(), alpha=total - each_class - column + own)


def pool(start: int, shape: tuple[int, ...], spread: Spread) -> PooledBlock:
    """Return the pool of an array, [C] or [C D], that begins at `start`."""
    C, D, *_ = (*shape, 1, 1)
    own = spread.own**2
    each_class = D * spread.each_class**2 + own
    column = C * spread.column**2 + own
    total = C * D * spread.all**2 + D * spread.each_class**2 + column
    inverse = Spread(1 / total, 1 / each_class, 1 / column, 1 / own)
    return PooledBlock(start, C, D, inverse)


class HyperPrior(NamedTuple):
    """Normals on the logs of kernel parameters and noise, centred at the start."""

    mean: Tensor  # [P]
    precision: Tensor  # [P], 0 without a prior; of the own part if pooled
    pools: tuple[PooledBlock, ...] = ()

    def gradient(self, theta: Tensor) -> Tensor:
        return self.multiply(self.mean - theta)

    def multiply(self, gap: Tensor) -> Tensor:
        """Return the product of the inverse covariance and a vector."""
        found = self.precision * gap
        for each in self.pools:
            each.add(gap, found)
        return found

    def root_covariance(self, without: float) -> HyperPrior:
        """Return the symmetric root of the covariance in place of its inverse.

        Entries without a prior have standard deviation `without`.
        """
        sd = self.precision.clamp_min(1e-300).rsqrt()
        pools = []
        for block in self.pools:
            root = Spread(*(x**-0.5 for x in block.inverse))
            pools.append(block._replace(inverse=root))
        sd = torch.where(self.precision > 0, sd, without)
        return HyperPrior(self.mean, sd, tuple(pools))

    def extend(self, count: int) -> HyperPrior:
        """Return the prior of θ with that many more values, which have none."""
        rest = self.mean.new_zeros(count)
        mean = torch.cat([self.mean, rest])
        return HyperPrior(mean, torch.cat([self.precision, rest]), self.pools)

    def log_density(self, theta: Tensor, gradient: Tensor) -> Tensor:
        """Return the log density up to a constant, given the gradient at theta."""
        return 0.5 * gradient.dot(theta - self.mean)

    def to(self, device: torch.device) -> HyperPrior:
        return HyperPrior(self.mean.to(device), self.precision.to(device), self.pools)
