"""EP's full sweeps of probit factors in NumPy, for `nuts_small_table`. [METHOD 4]

The equations are those of `Engine.visit_rows` with a site per row of its own, no weights and sites on t: cavity, moments, sites,
log Z_q and its cotangents. A factor has K sites: own class and rival (K = 2), or one signed latent function (K = 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from cavity.inference.sites import LEAST_KEEP
from cavity.likelihoods.normal_tails import SQRT_2_OVER_PI, SQRT_HALF

Array = NDArray[np.float64]

# as arrays: NumPy converts a Python number again in every call, which takes as long as the arithmetic of a small table
ZERO, HALF, ONE, LEAST = (np.array(x) for x in (0.0, 0.5, 1.0, LEAST_KEEP))
RATIO, TURN = np.array(SQRT_2_OVER_PI), np.array(-SQRT_HALF)
FAR = -50.0  # left of it a series replaces β(β + α), which cancels


class SweepPosterior(NamedTuple):
    """q(w) of given sites, and the marginals of the projections under it."""

    mean: Array  # [C M 1]
    nu: Array  # [C N], Σ ν over the sites of a row
    precision: Array  # [C M M], Λ
    cov_a: Array  # [C M N], Σa
    t_mean: Array  # [K N F] at the sites
    t_var: Array  # [K N F]

    def log_normaliser(self, a: Array) -> float:
        """Return Σ_c g_c,  g = −½ log|Λ| + ½ hᵀμ."""
        h = a @ self.nu[..., None]
        return 0.5 * float((h * self.mean).sum() - np.linalg.slogdet(self.precision)[1].sum())


class Matched(NamedTuple):
    """Cavities of all sites, and the factors' derivatives under them."""

    keep: Array  # [K N F]
    mean: Array  # [K N F]
    var: Array  # [K N F]
    usable: NDArray[np.bool_]  # [K N F]
    alpha: Array  # [N F]
    dm: Array  # [K N F]
    dv: Array  # [N F]


class Slope(NamedTuple):
    """log Z_q, and its cotangents at fixed cavities."""

    value: float
    a: Array  # [C M N]
    variance: Array  # [C N]


class ProbitSweeps:
    """Sweeps over the probit factors of one table. Sites are an array [2 K N F]: τ, then ν."""

    def __init__(self, classes: NDArray[np.int64], sign: Array, latents: int) -> None:
        self.shape = (2, *classes.shape)
        self.sign = np.ascontiguousarray(sign)  # [K N F]
        N = classes.shape[1]
        self.index = classes * N + np.arange(N)[:, None]  # of a site in a table [C N]
        self.place_of = self.index.ravel()
        self.pair = np.stack([self.index, self.index + latents * N])  # of τ and ν, or mean and variance
        self.flat = self.pair.ravel()
        self.seen = np.empty((2, latents, N))

    def place(self, a: Array, r: Array) -> None:
        """Take the projection of the rows: a [C M N] and residual variances r [C N]."""
        self.a, self.a_t = a, np.ascontiguousarray(a.transpose(0, 2, 1))
        self.eye = np.eye(a.shape[1])
        self.residual = sum_sites(r.ravel().take(self.index))
        self.work = np.empty(a.shape)

    def sweep(self, sites: Array) -> Array:
        """Return the sites after a full sweep without damping."""
        q = self.gaussian(sites)
        found = self._match(q, sites)
        new = refresh(found)
        return (
            new if np.count_nonzero(found.usable) == found.usable.size else np.where(found.usable, new, sites)
        )

    def gaussian(self, sites: Array) -> SweepPosterior:
        """Λ = I + Σ τ a aᵀ,  Λ μ = Σ ν a        [METHOD 3]"""
        a, seen = self.a, self.seen
        tau, nu = np.asarray(np.bincount(self.flat, sites.ravel(), seen.size).reshape(seen.shape), np.float64)
        precision = np.multiply(a, tau[:, None], out=self.work) @ self.a_t
        precision += self.eye
        cov_a = np.linalg.inv(precision) @ a
        mean = cov_a @ nu[..., None]
        np.matmul(self.a_t, mean, out=seen[0, ..., None])
        np.add.reduce(np.multiply(a, cov_a, out=self.work), 1, out=seen[1])
        return SweepPosterior(mean, nu, precision, cov_a, *seen.ravel().take(self.pair))

    def _match(self, q: SweepPosterior, sites: Array) -> Matched:
        return match(q.t_mean, q.t_var, self.residual, sites, self.sign)

    def slope(self, sites: Array) -> Slope:
        r"""Return log Z_q with its cotangents, which are exact at the fixed point.        [METHOD 5, 6]"""
        q = self.gaussian(sites)
        found = self._match(q, sites)
        rows, along_cov = log_site_normaliser(found, sites), weigh_cov(found, q.t_mean, sites)
        both = np.concatenate([found.dv.ravel()] * len(along_cov))
        of_mean, of_cov, G_r = (self._per_class(x.ravel()) for x in (found.dm, along_cov, both))
        G_a = of_mean * q.mean
        G_a += np.multiply(of_cov, q.cov_a, out=self.work)
        G_a -= np.multiply(G_r + G_r, self.a, out=self.work)
        return Slope(q.log_normaliser(self.a) + rows, G_a, G_r[:, 0])

    def _per_class(self, x: Array) -> Array:
        """Sum over the sites on each class, [KNF] → [C 1 N]."""
        C, _, N = self.a.shape
        return np.asarray(np.bincount(self.place_of, x, C * N).reshape(C, 1, N), dtype=np.float64)


def match(mean: Array, var: Array, residual: Array, sites: Array, sign: Array) -> Matched:
    r"""Remove every site from its marginal [K N F], and ask the factor: log Φ(α), α = gap/√b.        [METHOD 4]

    `residual` [N F] is that of the gap. `sign` [K N F] says how a latent value enters the gap.
    """
    tau, nu = sites
    keep = ONE - tau * var
    usable = keep > LEAST
    np.maximum(keep, LEAST, out=keep)
    mean, var = (mean - nu * var) / keep, var / keep
    scale = ONE / np.sqrt(sum_sites(var) + residual)
    alpha = sum_sites(sign * mean)
    alpha *= scale
    beta = RATIO / erfcx(TURN * alpha)
    dm = beta * scale
    bend = _hazard_slope(alpha, beta)
    bend *= scale * scale
    dv = dm * dm
    dv -= bend
    dv *= HALF
    return Matched(keep, mean, var, usable, alpha, sign * dm, dv)


def refresh(found: Matched) -> Array:
    r"""Return the sites that give q the tilted moments, [2 K N F].        [METHOD 4]

    d₂ = 2 ∂/∂v − d₁²      τ = −d₂ / (1 + v\ d₂)      ν = (d₁ − m\ d₂) / (1 + v\ d₂)
    """
    new = np.empty((2, *found.dm.shape))
    d2 = found.dm * found.dm
    d2 -= found.dv + found.dv  # its negative
    scale = ONE - found.var * d2
    np.divide(d2, scale, out=new[0])
    d2 *= found.mean
    d2 += found.dm
    np.divide(d2, scale, out=new[1])
    return new


def log_site_normaliser(found: Matched, sites: Array) -> float:
    """Return Σ log s̃ over all factors, as `sites.log_site_normaliser` does per row.        [METHOD 5]"""
    tau, nu = sites
    grown = 1 + tau * found.var
    square = nu * (nu * found.var + 2 * found.mean) - tau * found.mean * found.mean
    return float(log_ndtr(found.alpha).sum() + 0.5 * (np.log(grown) - square / grown).sum())


def weigh_cov(found: Matched, mean: Array, sites: Array) -> Array:
    """Return the coefficient of Σa in the cotangent of a, [K N F]; `mean` is that of q.        [METHOD 6]"""
    tau, nu = sites
    return np.asarray((found.dm * (tau * mean - nu) + 2 * found.dv) / found.keep)


def sum_sites(x: Array) -> Array:
    """Sum over the sites of a factor, [K N F] → [N F]."""
    return np.asarray(x[0] + x[1] if len(x) == 2 else x[0])


def _hazard_slope(alpha: Array, beta: Array) -> Array:
    """Return β(β + α) as `numerics.hazard_slope` does."""
    slope = beta + alpha
    slope *= beta
    if alpha.min() < FAR:
        far = alpha < FAR
        i2 = 1 / np.square(alpha[far])
        slope[far] = 1 - i2 * (1 - i2 * (6 - i2 * (50 - 518 * i2)))
    np.maximum(slope, ZERO, out=slope)
    np.minimum(slope, ONE, out=slope)
    return slope
