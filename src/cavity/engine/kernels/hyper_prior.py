r"""Priors of hyper-parameters, and their bounds.

Weak normals on logarithms are independent, or pooled partially across classes. The
pooled prior of an array [C D] of logarithms, such as the lengthscales, is centred at
its starting value:

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
from torch.nn.functional import logsigmoid

from cavity.engine.parameters import Density


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


class GivenPrior(NamedTuple):
    r"""The prior p(x) that the user gave a part of θ, as a density of θ.

        log p(θ) = log p(x) + log dx/dθ        ∂/∂θ = (∂ log p/∂ log x + 1) d log x/dθ

    with log x = θ + shift. A logit has x = σ(θ), so d log x/dθ = 1 − x, and
    ∂ log(dx/dθ)/∂θ = 1 − 2x.
    """

    place: slice  # in θ
    density: type[Density]
    numbers: tuple[Tensor, Tensor]  # of the density
    shift: Tensor
    is_logit: bool

    def log_density(self, theta: Tensor) -> Tensor:
        part = theta[self.place]
        log_x = self._log_x(part)
        jacobian = log_x
        if self.is_logit:
            jacobian = log_x + logsigmoid(-part)
        return (self.density.log_density(log_x, *self.numbers) + jacobian).sum()

    def add_slope(self, theta: Tensor, found: Tensor) -> None:
        """Add the derivative in θ to `found`."""
        part = theta[self.place]
        slope = self.density.slope(self._log_x(part), *self.numbers)
        if self.is_logit:
            x = part.sigmoid()
            found[self.place] += slope * (1 - x) + 1 - 2 * x
        else:
            found[self.place] += slope + 1

    def _log_x(self, part: Tensor) -> Tensor:
        if self.is_logit:
            return logsigmoid(part)

        return part + self.shift

    def to(self, like: Tensor) -> GivenPrior:
        first, second = self.numbers
        numbers = (first.to(like), second.to(like))
        return self._replace(numbers=numbers, shift=self.shift.to(like))


class Box(NamedTuple):
    """Bounds of θ; those of parameters without bounds are infinite."""

    low: Tensor  # [P]
    high: Tensor  # [P]


class HyperPrior(NamedTuple):
    """Priors of the hyper-parameters: weak normals, given densities, bounds.

    Normals are on the logs of kernel parameters and noise, centred at the start.
    """

    mean: Tensor  # [P]
    precision: Tensor  # [P], 0 without a normal; of the own part if pooled
    pools: tuple[PooledBlock, ...] = ()
    given: tuple[GivenPrior, ...] = ()
    box: Box | None = None

    @property
    def is_proper(self) -> bool:
        """Whether every hyper-parameter has a prior."""
        has_prior = self.precision > 0
        for each in self.given:
            has_prior[each.place] = True
        return bool(has_prior.all())

    def gradient(self, theta: Tensor) -> Tensor:
        found = self.multiply(self.mean - theta)
        for each in self.given:
            each.add_slope(theta, found)
        return found

    def multiply(self, gap: Tensor) -> Tensor:
        """Return the product of the inverse covariance of the normals and a vector."""
        found = self.precision * gap
        for each in self.pools:
            each.add(gap, found)
        return found

    def clip(self, theta: Tensor) -> Tensor:
        """Return the nearest hyper-parameters within the bounds."""
        if self.box is None:
            return theta

        return theta.clamp(*self.box)

    def contains(self, theta: Tensor) -> bool:
        """Return whether hyper-parameters are within the bounds."""
        return bool((self.clip(theta) == theta).all())

    def root_covariance(self, without: float) -> HyperPrior:
        """Return the symmetric root of the covariance in place of its inverse.

        Entries without a normal have standard deviation `without`. With bounds it is
        diagonal, so that a box stays a box.
        """
        sd = self.precision.clamp_min(1e-300).rsqrt()
        pools = []
        if self.box is None:
            for block in self.pools:
                root = Spread(*(x**-0.5 for x in block.inverse))
                pools.append(block._replace(inverse=root))
        sd = torch.where(self.precision > 0, sd, without)
        return HyperPrior(self.mean, sd, tuple(pools))

    def extend(self, count: int) -> HyperPrior:
        """Return the prior of θ with that many more values, which have none."""
        rest = self.mean.new_zeros(count)
        mean = torch.cat([self.mean, rest])
        precision = torch.cat([self.precision, rest])
        box = None
        if self.box is not None:
            far = torch.full_like(rest, torch.inf)
            low = torch.cat([self.box.low, -far])
            box = Box(low, torch.cat([self.box.high, far]))
        return self._replace(mean=mean, precision=precision, box=box)

    def log_density(self, theta: Tensor, gradient: Tensor) -> Tensor:
        """Return the log density, given the gradient at theta.

        The normals leave their constant out.
        """
        if not self.given:
            return 0.5 * gradient.dot(theta - self.mean)

        gap = theta - self.mean
        value = -0.5 * self.multiply(gap).dot(gap)
        for each in self.given:
            value = value + each.log_density(theta)
        return value

    def to(self, like: torch.device | Tensor) -> HyperPrior:
        """Return the same on another device, or of another type and device."""
        if isinstance(like, torch.device):
            like = self.mean.to(like)
        box = None
        if self.box is not None:
            box = Box(*(limit.to(like) for limit in self.box))
        return HyperPrior(
            self.mean.to(like),
            self.precision.to(like),
            self.pools,
            tuple(each.to(like) for each in self.given),
            box,
        )
