"""The softmax of correlated normals, averaged over fixed Sobol points.
[docs/decisions/0016]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

from cavity.engine.likelihoods.quadrature.information import EntropyParts

LOG2_POINTS = 11
# for wide rows, where the softmax is nearly a step and Sobol points converge slowly
LOG2_MORE = 15
# a row is wide if the largest variance of f, without what all classes share, is above
WIDE = 4.0
# a wide row needs no more points if all but one of its classes have less than this
SURE = 1e-3
BYTES = 2 << 20  # size of an array over the points of a few rows


@cache
def _points(C: int, log2: int) -> Tensor:
    """Return scrambled Sobol points as standard normals, each with its mirror image,
    [2P C].
    """
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(C, scramble=True, seed=0).random_base2(log2)
    z = torch.tensor(ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)))
    return torch.cat([z, -z])


def log_softmax_probability(mean: Tensor, cov: Tensor) -> Tensor:
    """Return log E softmax(f), normalised, for f ~ N(mean, cov), [n C] and [n C C].

    The result is right to about 1e-3, and the same in any batch.
    """
    (log_p,) = _evaluate(mean, cov, _find_probabilities)
    return log_p


def softmax_uncertainty(mean: Tensor, cov: Tensor) -> EntropyParts:
    """Return the entropy of the label, its mean under f, and their difference.

    The difference is a mean divergence over the same points.
    """
    _, *parts = _evaluate(mean, cov, _find_entropies)
    return EntropyParts(*parts)


def _evaluate(
    mean: Tensor, cov: Tensor, function: Callable[[Tensor], tuple[Tensor, ...]]
) -> list[Tensor]:
    """Return a function of f [n C P] whose first value is log p(y).

    Rows that are wide and not sure get more points.
    """

    def join(m: Tensor, S: Tensor, log2: int) -> list[Tensor]:
        parts = (function(f) for f in _samples(m, S, log2))
        return [torch.cat(column) for column in zip(*parts, strict=True)]

    found = join(mean, cov, LOG2_POINTS)
    own = cov.mean(-1, keepdim=True)
    apart = cov - own - own.mT + own.mean(-2, keepdim=True)
    wide = torch.linalg.eigvalsh(apart)[:, -1] > WIDE
    unsure = found[0].max(-1).values.exp() < 1 - SURE
    place = (wide & unsure).nonzero()[:, 0]
    if len(place):
        more = join(mean[place], cov[place], LOG2_MORE)
        for whole, part in zip(found, more, strict=True):
            whole[place] = part

    return found


def _find_probabilities(f: Tensor) -> tuple[Tensor]:
    """Return log p(y), normalised."""
    return (f.log_softmax(1).logsumexp(-1).log_softmax(-1),)


def _find_entropies(f: Tensor) -> tuple[Tensor, ...]:
    """Return log p(y) and the three entropies.

    The divergence of each point from the mean is never negative.
    """
    log_p = f.log_softmax(1)
    p = log_p.exp()
    log_mean = log_p.logsumexp(-1) - math.log(log_p.shape[-1])
    total = -(log_mean.exp() * log_mean).sum(-1)
    aleatoric = -(p * log_p).sum(1).mean(-1)
    epistemic = (p * (log_p - log_mean[..., None])).sum(1).mean(-1)
    return log_mean, total, aleatoric, epistemic.clamp_min(0)


def _samples(mean: Tensor, cov: Tensor, log2: int) -> Iterator[Tensor]:
    """Yield values of f at the points, [n C P], a few rows at a time."""
    z = _points(mean.shape[1], log2).to(mean)
    size = max(1, BYTES // (8 * mean.shape[1] * len(z)))
    for m, S in zip(torch.split(mean, size), torch.split(cov, size), strict=True):
        # along the axes of each row's covariance, widest first; with these signs,
        # relabelling classes only permutes the result
        values, vectors = torch.linalg.eigh(S)
        sense = torch.where(vectors.pow(3).sum(-2) < 0, -1.0, 1.0)
        root = (vectors * (sense * values.clamp_min(0).sqrt())[:, None]).flip(-1)
        yield m[..., None] + root @ z.mT
