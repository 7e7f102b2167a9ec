"""EP's full sweeps of probit factors in NumPy, for tables so small that torch calls cost more than their arithmetic. [METHOD 4]

The equations are those of `Engine.visit_rows` with a site per row of its own, no weights and sites on t: cavity, moments, sites,
log Z_q and its cotangents. A factor has K sites: own class and rival (K = 2), or one signed latent function (K = 1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr

from cavity.inference.sites import LEAST_KEEP
from cavity.numerics import SQRT_2_OVER_PI, SQRT_HALF

Array = NDArray[np.float64]

FAR = -50.0  # left of it a series replaces β(β + α), which cancels


class Gaussian(NamedTuple):
    """q(w) of given sites, and the marginals of the projections under it."""

    mean: Array  # [C M 1]
    h: Array  # [C M 1]
    precision: Array  # [C M M], Λ
    cov_a: Array  # [C M N], Σa
    t_mean: Array  # [K N F] at the sites
    t_var: Array  # [K N F]

    def log_normaliser(self) -> float:
        """Return Σ_c g_c,  g = −½ log|Λ| + ½ hᵀμ."""
        return 0.5 * float((self.h * self.mean).sum() - np.linalg.slogdet(self.precision)[1].sum())


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
        self.sign = sign  # [K N F]
        N = classes.shape[1]
        self.index = classes * N + np.arange(N)[:, None]  # of a site in a table [C N]
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
        return new if found.usable.all() else np.where(found.usable, new, sites)

    def gaussian(self, sites: Array) -> Gaussian:
        """Λ = I + Σ τ a aᵀ,  Λ μ = Σ ν a        [METHOD 3]"""
        a, seen = self.a, self.seen
        tau, nu = np.bincount(self.flat, sites.ravel(), seen.size).reshape(seen.shape)
        precision = np.multiply(a, tau[:, None], out=self.work) @ self.a_t
        precision += self.eye
        h = a @ nu[..., None]
        cov = np.linalg.inv(precision)
        mean, cov_a = cov @ h, cov @ a
        np.matmul(self.a_t, mean, out=seen[0, ..., None])
        np.add.reduce(np.multiply(a, cov_a, out=self.work), 1, out=seen[1])
        return Gaussian(mean, h, precision, cov_a, *seen.ravel().take(self.pair))

    def _match(self, q: Gaussian, sites: Array) -> Matched:
        return match(q.t_mean, q.t_var, self.residual, sites, self.sign)

    def slope(self, sites: Array) -> Slope:
        r"""Return log Z_q with its cotangents, which are exact at the fixed point.        [METHOD 5, 6]"""
        q = self.gaussian(sites)
        found = self._match(q, sites)
        rows, along_cov = log_site_normaliser(found, sites), weigh_cov(found, q.t_mean, sites)
        of_mean, of_cov = self._per_class(found.dm), self._per_class(along_cov)
        G_r = self._per_class(np.broadcast_to(found.dv, found.dm.shape))
        G_a = of_mean * q.mean + of_cov * q.cov_a - 2 * G_r * self.a
        return Slope(q.log_normaliser() + rows, G_a, G_r[:, 0])

    def _per_class(self, x: Array) -> Array:
        """Sum over the sites on each class, [K N F] → [C 1 N]."""
        C, _, N = self.a.shape
        return np.asarray(
            np.bincount(self.index.ravel(), x.ravel(), C * N).reshape(C, 1, N), dtype=np.float64
        )


def match(mean: Array, var: Array, residual: Array, sites: Array, sign: Array) -> Matched:
    r"""Remove every site from its marginal [K N F], and ask the factor: log Φ(α), α = gap/√b.        [METHOD 4]

    `residual` [N F] is that of the gap. `sign` [K N F], or as much of it as differs, says how a latent value enters the gap.
    """
    tau, nu = sites
    keep = 1 - tau * var
    usable = keep > LEAST_KEEP
    np.maximum(keep, LEAST_KEEP, out=keep)
    mean, var = (mean - nu * var) / keep, var / keep
    scale = 1 / np.sqrt(sum_sites(var) + residual)
    alpha = sum_sites(sign * mean) * scale
    beta = SQRT_2_OVER_PI / erfcx(-SQRT_HALF * alpha)
    dm = beta * scale
    dv = 0.5 * (dm * dm - _hazard_slope(alpha, beta) * (scale * scale))
    return Matched(keep, mean, var, usable, alpha, sign * dm, dv)


def refresh(found: Matched) -> Array:
    r"""Return the sites that give q the tilted moments, [2 K N F].        [METHOD 4]

    d₂ = 2 ∂/∂v − d₁²      τ = −d₂ / (1 + v\ d₂)      ν = (d₁ − m\ d₂) / (1 + v\ d₂)
    """
    new = np.empty((2, *found.dm.shape))
    d2 = found.dm * found.dm
    d2 -= 2 * found.dv  # its negative
    scale = 1 / (1 - found.var * d2)
    np.multiply(d2, scale, out=new[0])
    np.multiply(found.dm + found.mean * d2, scale, out=new[1])
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
    slope = beta * (beta + alpha)
    if alpha.min() < FAR:
        far = alpha < FAR
        i2 = 1 / np.square(alpha[far])
        slope[far] = 1 - i2 * (1 - i2 * (6 - i2 * (50 - 518 * i2)))
    return np.minimum(np.maximum(slope, 0), 1)
