"""p(y|f) for given latent values with noise: the probability that each class is the largest, by a short sum over its position.

The sums are in single precision, accurate to about 1e-6. They are averaged over lattice points, whose error is far larger. Arrays
are torch's or NumPy's; this module does not load torch.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from cavity.common.namespaces import SQRT_HALF, Array, namespace
from cavity.likelihoods.quadrature.probabilities import log_largest

REACH = 5.0  # standard deviations of noise that the sum covers: Φ(−5) is 3e-7
STEP = 0.8  # of the sum, in the smallest standard deviation: probabilities are accurate to about 1e-6
MOST = 200  # terms of the sum; if noises differ so much that it needs more, the general grid is used
LEAST = 1e-30  # of a distribution function, which is divided by


class Largest(NamedTuple):
    """y = argmax_c f_c + e_c,  e_c ~ N(0, s_c)."""

    noise: Array  # [C], s

    def duel(self, d: Array, noise: Array) -> Array:
        """Return P(a wins against b | f_a − f_b = d), [n Q]; `noise` is the variance of the difference's noise, [n]."""
        return 0.5 * namespace(d).erfc(-SQRT_HALF * d / (noise**0.5)[:, None])

    def width(self, noise: Array) -> Array:
        """Return the length over which that probability rises."""
        return noise**0.5

    @property
    def terms(self) -> int:
        """Number of terms that `among` computes per value of f."""
        ratio = math.sqrt(float(self.noise.max()) / float(self.noise.min()))
        return 1 + math.ceil(min(2 * REACH * ratio / STEP, 1e9))

    def among(self, f: Array, chosen: Array) -> Array:
        """Return P(each wins | f), [n K S] → [n K S], for the classes `chosen` [n K] of each row.

        p_k ∝ Σ_j density_k Π_{c≠k} below_c over places j of the largest value.
        """
        xp, noise = namespace(f), self.noise[chosen]
        if self.terms > MOST:
            var = xp.maximum(noise, 1e-8 * float(self.noise.max()))[..., None] + 0 * f
            rows, variances = (xp.swap(x).reshape(-1, f.shape[1]) for x in (f, var))
            p = xp.exp(log_largest(rows, variances))
            return xp.swap(p.reshape(len(f), -1, f.shape[1]))

        # latent values are measured from the largest: only differences matter, and noise must not be lost beside large values
        f, s = f - xp.max_over(f, 1), (noise**0.5)[..., None]
        low, high = (xp.max_over(f + side * REACH * s, 1)[..., None] for side in (-1, 1))
        place = low + (high - low) * (xp.arange(self.terms, f) / (self.terms - 1))
        rate, t = xp.single(SQRT_HALF / s)[..., None], xp.single(place - f[..., None])
        t *= rate
        # half of erf + 1: a distribution function is at most 1, so that a product of hundreds cannot overflow
        below = xp.erf(t)
        below += 1
        below *= 0.5
        t *= -t
        density = xp.exp_(t)
        density *= rate / xp.max_over(rate, 1)
        below = xp.maximum(below, LEAST)
        density /= below
        density *= below.prod(1)[:, None]
        p = density.sum(-1) + 0 * f  # in double precision
        return p / p.sum(1)[:, None]
