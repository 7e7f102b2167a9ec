"""What a factor is: one integral, and where its sites sit."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class Latents(NamedTuple):
    """Gaussian marginals of f at a batch's sites, [B S]."""

    mean: Tensor
    var: Tensor  # residual included
    residual: Tensor  # the part of `var` that does not come from w


class Moments(NamedTuple):
    """value = log ∫ φ(f)^e N(f) df of each row, and its derivatives at each site."""

    value: Tensor  # [B]
    dm: Tensor  # [B S], in the mean
    dv: Tensor  # [B S], in the variance that comes from w
    dr: Tensor  # [B S], in the residual variance (equal to dv for e = 1)


class LikelihoodFactor(Protocol):
    """A likelihood, seen by the engine."""

    def sites(self, y: Tensor) -> Tensor:
        """On which latent function each site of a row sits, [B] → [B S]."""
        ...

    def moments(self, f: Latents, y: Tensor, exponent: Tensor | None) -> Moments:
        """Normaliser and derivatives of φ^e under the marginals f; `exponent` [B], None for 1."""
        ...
