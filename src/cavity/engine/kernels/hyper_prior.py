r"""Normal priors on the logarithms of hyper-parameters: independent, or with partial
pooling across classes.

The pooled prior of an array [C D] of logarithms, such as the lengthscales, is centred
at its starting value:

    gap_cd = all + class_c + column_d + own_cd,   independent normals with standard deviations (a, k, b, e)

Its covariance has the four eigenspaces of a two-way layout: the overall mean, the class
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
    """An array [rows, columns] within θ with a pooled prior, and the inverse
    eigenvalues of its covariance.
    """

    start: int
    rows: int
    columns: int
    inverse: Spread

    def add(self, gap: Tensor, found: Tensor) -> None:
        """Complete the product of inverse covariance and gap in `found`, which holds
        `own` times the gap.
        """
        of = self.inverse
        end = self.start + self.rows * self.columns
        x, into = (
            t[self.start : end].view(self.rows, self.columns) for t in (gap, found)
        )
        of_class = x.mean(1, keepdim=True)
        of_column = x.mean(0, keepdim=True)
        into.add_(of_class, alpha=of.each_class - of.own)
        into.add_(of_column, alpha=of.column - of.own)
        into.add_(of_class.mean(), alpha=of.all - of.each_class - of.column + of.own)


def pool(start: int, shape: tuple[int, ...], spread: Spread) -> PooledBlock:
    """Return the pool of an array of this shape, [C] or [C D], that begins at `start`."""
    (C, D, *_) = (*shape, 1, 1)
    own = spread.own**2
    of_class = D * spread.each_class**2 + own
    of_column = C * spread.column**2 + own
    of_all = C * D * spread.all**2 + D * spread.each_class**2 + of_column
    return PooledBlock(
        start, C, D, Spread(1 / of_all, 1 / of_class, 1 / of_column, 1 / own)
    )


class HyperPrior(NamedTuple):
    """Normals on the logs of kernel parameters and noise, centred where the run starts."""

    mean: Tensor  # [P]
    # [P], 0 without a prior; for a pooled entry, that of its own part
    precision: Tensor
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
        """Return the symmetric root of the covariance in place of its inverse; entries
        without a prior have sd `without`.
        """
        sd = torch.where(
            self.precision > 0, self.precision.clamp_min(1e-300).rsqrt(), without
        )
        pools = (
            each._replace(inverse=Spread(*(x**-0.5 for x in each.inverse)))
            for each in self.pools
        )
        return HyperPrior(self.mean, sd, tuple(pools))

    def log_density(self, theta: Tensor, gradient: Tensor) -> Tensor:
        """Return the log density up to a constant, from the gradient at the same point."""
        return 0.5 * gradient.dot(theta - self.mean)

    def to(self, device: torch.device) -> HyperPrior:
        return self._replace(
            mean=self.mean.to(device), precision=self.precision.to(device)
        )
