"""The softmax of correlated normals, averaged over fixed Sobol points. [docs/decisions/0016]"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import torch
from torch import Tensor

from cavity.quadrature.information import Uncertainty

LOG2_POINTS = 11
BYTES = 32 << 20


@cache
def _points(C: int) -> Tensor:
    """Return scrambled Sobol points as standard normals, each with its mirror image, [2P C]."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    uniform = qmc.Sobol(C, scramble=True, seed=0).random_base2(LOG2_POINTS)
    z = torch.tensor(ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)))
    return torch.cat([z, -z])


def log_softmax_probability(mean: Tensor, cov: Tensor) -> Tensor:
    r"""Return log E softmax(f) for f ~ N(mean, cov), [n C] and [n C C], normalised.

    Every row uses the same 4096 points, so that batching changes nothing. Accurate to about 1e-3.
    """
    return torch.cat([_average(f) for f in _samples(mean, cov)])


def softmax_uncertainty(mean: Tensor, cov: Tensor) -> Uncertainty:
    """Return the entropy of the label, its mean under f, and their difference as a mean divergence, over the same points."""
    parts = [_entropies(f.log_softmax(-1)) for f in _samples(mean, cov)]
    return Uncertainty(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _entropies(log_p: Tensor) -> Uncertainty:
    """Return the entropies from [n P C]; the divergence of each point from the mean is never negative."""
    p, log_mean = log_p.exp(), log_p.logsumexp(1) - math.log(log_p.shape[1])
    total = -(log_mean.exp() * log_mean).sum(-1)
    aleatoric = -(p * log_p).sum(-1).mean(1)
    epistemic = (p * (log_p - log_mean[:, None])).sum(-1).mean(1)
    return Uncertainty(total, aleatoric, epistemic.clamp_min(0))


def _samples(mean: Tensor, cov: Tensor) -> Iterator[Tensor]:
    """Yield values of f at the points, [n P C], a few rows at a time."""
    z = _points(mean.shape[1]).to(mean)
    size = max(1, BYTES // (8 * mean.shape[1] * len(z)))
    for m, S in zip(torch.split(mean, size), torch.split(cov, size), strict=True):
        yield _transform(m, S, z)


def _transform(mean: Tensor, cov: Tensor, z: Tensor) -> Tensor:
    """Map points along the axes of each row's covariance, widest first. The signs make relabelled classes a permutation."""
    values, vectors = torch.linalg.eigh(cov)
    sense = torch.where(vectors.pow(3).sum(-2) < 0, -1.0, 1.0)
    root = (vectors * (sense * values.clamp_min(0).sqrt())[:, None]).flip(-1)
    f: Tensor = mean[:, None] + z @ root.mT
    return f


def _average(f: Tensor) -> Tensor:
    averaged: Tensor = f.log_softmax(-1).logsumexp(1)
    return averaged.log_softmax(-1)
