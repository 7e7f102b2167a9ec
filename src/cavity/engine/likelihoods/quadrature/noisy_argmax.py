"""p(y|f) for given latent values, by a softmax or with noise on f.

With noise it is a short sum over the position of the largest, in single precision,
accurate to about 1e-6. These sums are averaged over lattice points, whose error is far
larger. This module does not load torch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cavity.common.namespaces import NUMPY, SQRT_HALF, Array

REACH = 5.0  # standard deviations of noise that the sum covers: Φ(−5) is 3e-7
# step of the sum, in the smallest standard deviation: p is accurate to about 1e-6
STEP = 0.8
# Largest ratio of two standard deviations of noise. A smaller one counts as this: it
# moves p(y|f) only where two latent values are near.
MOST_RATIO = 16.0
LEAST = 1e-30  # smallest value of a distribution function, which is a divisor


class Largest(NamedTuple):
    """y = argmax_c f_c + e_c,  e_c ~ N(0, s_c)."""

    noise: Array  # [C], s

    @property
    def is_sure(self) -> bool:
        """Whether f decides the label."""
        return not self.noise.any()

    def duel(self, d: Array, noise: Array) -> Array:
        """Return P(a wins against b | f_a − f_b = d), [n Q].

        `noise` is the variance of the noise of the difference, [n].
        """
        return 0.5 * NUMPY.erfc(-SQRT_HALF * d / np.sqrt(noise)[:, None])

    def width(self, noise: Array) -> Array:
        """Return the length over which the probability of `duel` rises."""
        return np.sqrt(noise)

    @property
    def terms(self) -> int:
        """Number of terms that `among` computes per value of f."""
        noise = self._evened()
        ratio = math.sqrt(noise.max() / noise.min())
        return 1 + math.ceil(2 * REACH * ratio / STEP)

    def _evened(self) -> Array:
        """Return the noise without variances that are too small beside the largest."""
        return np.maximum(self.noise, self.noise.max() / MOST_RATIO**2)

    def among(self, f: Array, chosen: Array) -> Array:
        """Return P(each wins | f), [n K S] → [n K S], for the classes `chosen` [n K] of
        each row.

        p_k ∝ Σ_j density_k Π_{c≠k} below_c over places j of the largest value.
        """
        # latent values are measured from the largest: only differences matter, and
        # noise must not be lost beside large values
        f = f - f.max(1, keepdims=True)
        s = np.sqrt(self._evened()[chosen])[..., None]
        low = (f - REACH * s).max(1)[:, None, :, None]
        high = (f + REACH * s).max(1)[:, None, :, None]
        terms = self.terms
        place = low + (high - low) * (np.arange(terms) / (terms - 1))
        rate = (SQRT_HALF / s).astype(np.float32)[..., None]
        t = (place - f[..., None]).astype(np.float32) * rate
        # a distribution function is at most 1, so that a product of hundreds cannot
        # overflow
        below = np.maximum(0.5 * (NUMPY.erf(t) + 1), np.float32(LEAST))
        density = np.exp(-t * t) * (rate / rate.max(1, keepdims=True)) / below
        density *= below.prod(1)[:, None]
        p = density.sum(-1) + 0 * f  # in double precision
        return p / p.sum(1)[:, None]


class Softened(NamedTuple):
    """y ~ softmax(f), with the methods of `Largest`."""

    noise: Array  # zeros
    terms: int = 1
    is_sure: bool = False

    def duel(self, d: Array, noise: Array) -> Array:
        return np.exp(NUMPY.log_sigmoid(d))

    def width(self, noise: Array) -> Array:
        return np.ones_like(noise)

    def among(self, f: Array, chosen: Array) -> Array:
        return np.exp(NUMPY.log_softmax(f.swapaxes(1, 2))).swapaxes(1, 2)
