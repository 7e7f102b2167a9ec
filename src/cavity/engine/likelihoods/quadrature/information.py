"""Split a prediction's entropy into noise and uncertainty about f.

The parts are called aleatoric and epistemic.

This module does not load torch. [docs/decisions/0014]
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from cavity.common.namespaces import TINY, Array
from cavity.common.slices import slices
from cavity.common.types import Floats
from cavity.engine.likelihoods.quadrature.grid import (
    ORDER,
    SPREAD,
    bumps,
    piecewise_legendre,
)
from cavity.engine.likelihoods.quadrature.noisy_argmax import Largest, Softened
from cavity.engine.likelihoods.quadrature.probabilities import with_random_labels

# lattice for three and more contenders
POINTS = 1021
GENERATOR = 455
# above this number of contenders, four times as many points in random order are better
MANY = 16
DROPPED = 1e-5  # total probability of the classes that a row may ignore
BYTES = 4 << 20  # size of an array over the nodes of a few rows
Choice = Largest | Softened  # how the label follows from f without noise


class EntropyParts(NamedTuple):
    """Entropy of the label, H(p(y)), and its parts in nats, [n]."""

    total: Array
    aleatoric: Array  # E_f H(p(y|f))
    epistemic: Array  # E_f KL(p(y|f) ‖ p(y)), the mutual information of y and f


class Latent(NamedTuple):
    """Noise-free latent values and the class probabilities that they predict."""

    mean: Array  # [n C], or [n 1], the difference of two
    var: Array  # [n C], or [n 1]
    log_p: Array  # [n C] or [n 2], log p(y), without random labels
    epsilon: float  # share of labels drawn at random

    def rows(self, index: Array | slice) -> Latent:
        return Latent(
            self.mean[index], self.var[index], self.log_p[index], self.epsilon
        )

    def log_mean(self) -> Array:
        """Return log p(y), with random labels."""
        return with_random_labels(self.log_p, self.epsilon, self.log_p.shape[1])


def uncertainty(f: Latent, choice: Choice) -> EntropyParts:
    r"""Return the entropy of the label, in total and split into two parts.

        total H(p(y)) = aleatoric + epistemic        p(y) = E_f p(y|f)

    The aleatoric part would remain if f were known; knowing f would remove the
    epistemic part. The equation holds exactly for the integrals. Both parts are
    averages over the same f, so that neither is a small difference of large numbers.

    One latent function or two contenders need a one-dimensional grid, near machine
    precision. With more contenders a lattice is used, and each average is accurate to a
    few 1e-3. Without noise p(y|f) is one class, and the entropy is epistemic except for
    random labels.
    """
    log_mean = f.log_mean()
    first = f.mean[:, 0]
    total = -(np.exp(log_mean) * log_mean).sum(1)
    if choice.is_sure:
        sure = np.ones((len(first), 1, 1))
        aleatoric = _find_nats(sure, f)[0][:, 0]
        return EntropyParts(total, aleatoric, np.maximum(total - aleatoric, 0))

    if f.mean.shape[1] == 1:  # a positive value favours the second class
        turned = f._replace(log_p=f.log_p[:, [1, 0]])
        noise = choice.noise + 0 * first
        return EntropyParts(total, *_duel(turned, first, f.var[:, 0], noise, choice))

    order = np.argsort(-f.log_p, 1, kind="stable")
    kept = np.exp(np.take_along_axis(f.log_p, order, 1)).cumsum(1)
    contenders = np.clip((kept < 1 - DROPPED).sum(1) + 1, 2, order.shape[1])
    parts = np.empty((2, len(total)))
    for K in sorted(set(contenders.tolist())):
        rows = np.flatnonzero(contenders == K)
        parts[:, rows] = _integrate_contenders(f.rows(rows), order[rows], K, choice)
    return EntropyParts(total, *parts)


def _integrate_contenders(f: Latent, order: Array, K: int, choice: Choice) -> Array:
    """Return both parts of rows with K contenders each, [2 n].

    `order` has the classes of each row by descending probability.
    """
    mean, var, log_p = (np.take_along_axis(x, order, 1) for x in f[:3])
    f = Latent(mean, var, log_p, f.epsilon)
    order = order[:, :K]
    if K == 2:
        gap = mean[:, 0] - mean[:, 1]
        gap_var = var[:, 0] + var[:, 1]
        return _duel(f, gap, gap_var, choice.noise[order].sum(1), choice)

    z = _make_points(K)
    bytes_per_point = 4 * K * choice.terms
    points = max(1, min(z.shape[1], BYTES // bytes_per_point))
    size = max(1, BYTES // (bytes_per_point * points))
    parts = []
    for piece in slices(len(order), size):
        some = f.rows(piece)
        m = some.mean[:, :K, None]
        sd = np.sqrt(some.var[:, :K, None])
        sums = 0.0
        for columns in slices(z.shape[1], points):
            p = choice.among(m + sd * z[:, columns], order[piece])
            sums = sums + _find_nats(p, some).sum(-1)
        parts.append(sums / z.shape[1])

    return np.concatenate(parts, 1)


def _make_points(K: int) -> Floats:
    """Return normal points, [K points], the same at every call.

    They form a lattice with the same quantiles in each coordinate.
    """
    n = POINTS
    if K > MANY:
        n = 4 * POINTS
    quantile = np.array([NormalDist().inv_cdf((i + 0.5) / n) for i in range(n)])
    if K > MANY:
        return np.random.default_rng(0).permuted(np.tile(quantile, (K, 1)), axis=1)

    steps = np.array([pow(GENERATOR, k, n) for k in range(K)])
    return np.asarray(quantile[steps[:, None] * np.arange(n) % n])


def _duel(f: Latent, mean: Array, var: Array, noise: Array, choice: Choice) -> Array:
    """Return both parts of rows with two contenders, [2 n].

    Only d = f_a − f_b matters: its mean, its variance and that of its noise are [n].
    """
    parts = []
    size = max(1, BYTES // (8 * 2 * len(SPREAD) * ORDER * 48))
    for piece in slices(len(mean), size):
        m = mean[piece, None]
        s = noise[piece]
        width = choice.width(s)[:, None]
        sd = np.maximum(np.sqrt(var[piece, None]), 1e-8 * width)
        edges = bumps(np.hstack([m, 0 * m]), np.hstack([sd, width]))
        d, log_weight = piecewise_legendre(edges)
        z = (d - m) / sd
        weight = np.exp(log_weight - 0.5 * z * z) / (math.sqrt(2 * math.pi) * sd)
        p = np.stack([choice.duel(d, s), choice.duel(-d, s)], 1)
        parts.append((weight * _find_nats(p, f.rows(piece))).sum(-1))

    return np.concatenate(parts, 1)


def _find_nats(p: Array, f: Latent) -> Array:
    """Return the entropy of p(y|f) and its divergence from p(y), [n K S] → [2 n S].

    With random labels, contenders have (1−ε) p + ε/C and all other classes ε/C.
    """
    C = f.log_p.shape[1]
    K = p.shape[1]
    eps = f.epsilon
    log_mean = f.log_mean()
    floor = eps / C
    p = (1 - eps) * p + floor
    negative = (p * np.log(np.maximum(p, TINY))).sum(1)
    cross = (p * log_mean[:, :K, None]).sum(1)
    if eps:
        negative = negative + (C - K) * floor * math.log(floor)
        cross = cross + (floor * log_mean[:, K:]).sum(1)[:, None]
    return np.stack([-negative, np.maximum(negative - cross, 0)])
