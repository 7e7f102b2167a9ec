"""p(y|f) of a softmax of noisy latent values: what `noisy_argmax` computes, with tables of the distribution of noise and Gumbel."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.likelihoods.quadrature.noisy_argmax import REACH, sum_places
from cavity.likelihoods.quadrature.softmax import INNER, WIDE, find_distribution

GUMBEL = (-3.0, 14.0)  # range that holds the mass of a Gumbel variable
GUMBEL_STEP = 0.7
TABLE = 0.005  # step of the table of a distribution function


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
            tables = self.below.flatten(), self.density.flatten()
            below, density = (torch.lerp(table[index], table[index + 1], share) for table in tables)
            return below, density

        return sum_places(f, self.noise[chosen], self.terms, GUMBEL, look_up)


def softened(noise: Tensor) -> Softened:
    r"""Return the choice with tables of F(t) = E exp(−exp(e − t)) and of its derivative."""
    reach = REACH * float(noise.max().sqrt())
    t = torch.arange(GUMBEL[0] - reach - 0.1, GUMBEL[1] + 2 * reach + 0.1, TABLE, dtype=noise.dtype)
    below, density = torch.empty(2, len(noise), len(t))
    for c, s in enumerate(noise.sqrt()[:, None, None]):
        below[c], density[c], _ = find_distribution(0 * s, s, t[None], wide=bool(s > WIDE))
    return Softened(noise, t[0], below, density)
