"""p(y|f) for given latent values with noise: the probability that each class is the largest, by a short sum over its position.

The sums are in single precision, accurate to about 1e-6. They are averaged over Sobol points, whose error is far larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.likelihoods.normal_tails import SQRT_HALF
from cavity.likelihoods.quadrature.argmax import log_argmax_probability
from cavity.likelihoods.quadrature.softmax import INNER, WIDE, find_distribution

REACH = 5.0  # standard deviations of noise that the sum covers: Φ(−5) is 3e-7
STEP = 0.8  # of the sum, in the smallest standard deviation: probabilities are accurate to about 1e-6
MOST = 200  # terms of the sum; if noises differ so much that it needs more, the general grid is used
GUMBEL = (-3.0, 14.0)  # range that holds the mass of a Gumbel variable
GUMBEL_STEP = 0.7
TABLE = 0.005  # step of the table of a distribution function


class Largest(NamedTuple):
    """y = argmax_c f_c + e_c,  e_c ~ N(0, s_c)."""

    noise: Tensor  # [C], s

    def duel(self, d: Tensor, noise: Tensor) -> Tensor:
        """Return P(a wins against b | f_a − f_b = d), [n Q]; `noise` is the variance of the difference's noise, [n]."""
        return 0.5 * torch.erfc(-SQRT_HALF * d / noise.sqrt()[:, None])

    def width(self, noise: Tensor) -> Tensor:
        """Return the length over which that probability rises."""
        return noise.sqrt()

    @property
    def terms(self) -> int:
        """Number of terms that `among` computes per value of f."""
        ratio = float((self.noise.max() / self.noise.min()).sqrt())
        return 1 + math.ceil(min(2 * REACH * ratio / STEP, 1e9))

    def among(self, f: Tensor, chosen: Tensor) -> Tensor:
        """Return P(each wins | f), [n K S] → [n K S], for the classes `chosen` [n K] of each row."""
        if self.terms > MOST:
            var = self.noise[chosen][..., None].clamp_min(1e-8 * self.noise.max()).expand_as(f)
            return log_argmax_probability(f.mT, var.mT).softmax(-1).mT

        def find_distribution(t: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
            rate = (SQRT_HALF / s)[..., None].float()
            t = t.float().mul_(rate)
            # half of erf + 1: a distribution function is at most 1, so that a product of hundreds cannot overflow
            below = torch.erf(t).add_(1).mul_(0.5)
            return below, t.square_().neg_().exp_().mul_(rate / rate.amax(1, keepdim=True))

        return _sum_places(f, self.noise[chosen], self.terms, (0.0, 0.0), find_distribution)


class Softened(NamedTuple):
    """y = argmax_c f_c + e_c + Gumbel: a softmax of the noisy latent values. The methods are those of `Largest`."""

    noise: Tensor
    start: Tensor  # [], where the tables begin
    below: Tensor  # [C T], distribution function of e_c + Gumbel
    density: Tensor  # [C T]

    def duel(self, d: Tensor, noise: Tensor) -> Tensor:
        z = torch.linspace(-8.5, 8.5, INNER, dtype=d.dtype)
        s = noise.sqrt()[:, None, None]
        narrow = (d[..., None] + s * z).sigmoid() @ torch.softmax(-0.5 * z * z, 0)
        if not bool((s > WIDE).any()):
            return narrow
        x = torch.linspace(-24.0, 24.0, 2 * INNER, dtype=d.dtype)  # of the difference of two Gumbel variables
        weight = torch.softmax(logsigmoid(x) + logsigmoid(-x), 0)
        wide = torch.special.ndtr((d[..., None] - x) / s.clamp_min(1.0)) @ weight
        return torch.where(s[..., 0] > WIDE, wide, narrow)

    def width(self, noise: Tensor) -> Tensor:
        return (1 + noise).sqrt()

    @property
    def terms(self) -> int:
        length = GUMBEL[1] - GUMBEL[0] + 2 * REACH * float(self.noise.max().sqrt())
        return 1 + math.ceil(length / GUMBEL_STEP)

    def among(self, f: Tensor, chosen: Tensor) -> Tensor:
        if not self.noise.any():
            return f.softmax(1)
        length = self.below.shape[1]

        def look_up(t: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
            place = (t - self.start).float().div_(TABLE).clamp_(0, length - 1)
            index = place.int().clamp_(max=length - 2)
            share = place - index
            index += (chosen * length).int()[..., None, None]
            below, density = (
                torch.lerp(flat[index], flat[index + 1], share)
                for flat in (self.below.flatten(), self.density.flatten())
            )
            return below, density

        return _sum_places(f, self.noise[chosen], self.terms, GUMBEL, look_up)


Choice = Largest | Softened  # how the label follows from noise-free latent values


def softened(noise: Tensor) -> Softened:
    r"""Return the choice with tables of F(t) = E exp(−exp(e − t)) and of its derivative."""
    reach = REACH * float(noise.max().sqrt())
    t = torch.arange(GUMBEL[0] - reach - 0.1, GUMBEL[1] + 2 * reach + 0.1, TABLE, dtype=noise.dtype)
    below, density = torch.empty(2, len(noise), len(t))
    for c, s in enumerate(noise.sqrt()[:, None, None]):
        below[c], density[c], _ = find_distribution(0 * s, s, t[None], wide=bool(s > WIDE))
    return Softened(noise, t[0], below, density)


def _sum_places(
    f: Tensor,
    noise: Tensor,
    terms: int,
    ends: tuple[float, float],
    find_distribution: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
) -> Tensor:
    """Return p_k ∝ Σ_j density_k Π_{c≠k} below_c over places j of the largest value, [n K S] → [n K S].

    `find_distribution` gives both at distances [n K S J] from f. Latent values are measured from the largest of them: only
    differences matter, and noise must not be lost beside large values.
    """
    f, s = f - f.amax(1, keepdim=True), noise[..., None].sqrt()
    low, high = ((f + side * REACH * s).amax(1, keepdim=True)[..., None] for side in (-1, 1))
    low, high = low + ends[0], high + ends[1]
    place = low + (high - low) * torch.linspace(0, 1, terms, dtype=f.dtype)
    below, density = find_distribution(place - f[..., None], s)
    below.clamp_min_(1e-30)
    p = (below.prod(1, keepdim=True) * density.div_(below)).sum(-1).double()
    return p / p.sum(1, keepdim=True)
