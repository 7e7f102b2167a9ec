"""What a factor is: one integral, and where its sites sit."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor, nn

from cavity.errors import BadOption
from cavity.quadrature import Uncertainty


class Latents(NamedTuple):
    """Gaussian marginals of f at a batch's sites, [B S]."""

    mean: Tensor
    var: Tensor  # residual included
    residual: Tensor  # the part of `var` that does not come from w


class Moments(NamedTuple):
    """value = log ∫ φ(f)^e N(f) df of each row, or E log φ(f), and its derivatives at each site."""

    value: Tensor  # [B]
    dm: Tensor  # [B S], in the mean
    dv: Tensor  # [B S], in the variance that comes from w
    dr: Tensor  # [B S], in the residual variance (equal to dv for e = 1)
    own: Tensor | None = None  # [B K], in the factor's own parameters, flat


class LikelihoodFactor(Protocol):
    """What expectation propagation asks of a likelihood."""

    def sites(self, y: Tensor) -> Tensor:
        """On which latent function each site of a row sits, [B] → [B S]."""
        ...

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        """Normaliser and derivatives of φ^e under the marginals f; `exponent` [B], None for 1."""
        ...


class Likelihood:
    """A factor of the library: what variational inference and prediction ask besides."""

    parameters: tuple[nn.Parameter, ...] = ()  # of the likelihood itself, learnt
    bounds: bool = True  # `average` is E log φ or less
    linear: bool = False  # its sites are the same wherever they are asked: one sweep finds them
    tempers: bool = (
        True  # `moments` takes exponents; where not, a row of weight below 1 is a whole row that counts less
    )

    def sites(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        raise BadOption(f"{type(self).__name__} has no closed normaliser: use method='vi'.")

    def average(self, f: Latents, y: Tensor) -> Moments:
        """E log φ under the marginals f, and its derivatives."""
        raise BadOption(f"{type(self).__name__} has no average of its logarithm: use method='ep'.")

    def log_probability(self, mean: Tensor, var: Tensor) -> Tensor:
        """Logarithms of the class probabilities given marginals of new rows, normalised: [n C] → [n C], [n 1] → [n 2]."""
        raise NotImplementedError

    def uncertainty(self, mean: Tensor, var: Tensor, noise: Tensor) -> Uncertainty:
        """The label's entropy and its parts, given marginals of the latent values without `noise` [C], their noise's variance."""
        raise BadOption(
            f"{type(self).__name__} has no split of its entropy: give it uncertainty(mean, var, noise), as the library's have."
        )
