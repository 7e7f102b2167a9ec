"""EP's fixed point on a small table of probit factors, by sweeps in NumPy. NUTS asks for it thousands of times. [METHOD 4]

The equations are those of `Engine.visit_rows` with a site per factor on t and no weights. With 30 rows a sweep takes a tenth of the
engine's time, which goes into calls. The engine computes log Z_q and its gradient at the sites that are found here.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import erfcx

from cavity.inference import State
from cavity.inference.engine import CachedProjection
from cavity.inference.posterior import Sums
from cavity.inference.sites import LEAST_KEEP
from cavity.likelihoods import BinaryProbit, ProbitPairs
from cavity.likelihoods.normal_tails import SQRT_2_OVER_PI, SQRT_HALF, hazard_slope
from cavity.training.fixed_point import MEMORY, WORSE
from cavity.training.loop import Run

Array = NDArray[np.float64]

MOST_VALUES = 50_000  # C·M·N: above it the arithmetic of a sweep takes longer than the calls
FAR = -50.0  # of α: left of it β(β + α) cancels


def has_small_table(run: Run) -> bool:
    """Return whether the table is small, and the sites are those of EP with probit factors."""
    engine, N = run.engine, run.rows.n_rows
    C, M = engine.shape
    return (
        C * M * N <= MOST_VALUES
        and N <= engine.chunk
        and run.reduce.world == 1
        and engine.has_plain_sites
        and type(engine.factor) in (ProbitPairs, BinaryProbit)
    )


class ProbitSweeps:
    """Sweeps over the rows of a run. A factor has K sites: own class and rival (K = 2), or one signed latent function (K = 1).

    Sites are an array [2 N S], τ and then ν, with S = K F as in a state.
    """

    def __init__(self, run: Run) -> None:
        y = next(iter(run.whole.split(run.engine.chunk))).y
        classes = run.engine.factor.sites(y).numpy()  # [N S]
        N, S = classes.shape
        two = run.engine.factor.two_classes
        self.shape = (N, 1, S) if two else (N, 2, S // 2)  # [N K F]
        self.sign = 2.0 * y.numpy()[:, None, None] - 1 if two else np.array([[1.0], [-1.0]])
        self.place = classes * N + np.arange(N)[:, None]  # [N S], of a site in a table [C N]

    def converge(self, begin: State, cached: CachedProjection, tol: float, most: int) -> State | None:
        """Sweep as `find_fixed_point` does; None if k(Z, Z) has no factor, or the sites do not converge."""
        a, r = cached.projection.a.detach().numpy(), cached.r.numpy()
        if bool(cached.projection.failed) or not np.isfinite(r).all():
            return None
        sites = safe = np.stack([x.numpy() for x in begin.sites[:2]])
        moves, ends = list[Array](), list[Array]()
        best = math.inf
        for _ in range(most):
            new = self.sweep(sites, a, r)
            move, end = (new - sites).ravel(), new.ravel()
            size = math.sqrt(move @ move) / (1 + math.sqrt(end @ end))
            if size < tol:
                return self._with_sites(begin, new, a)
            if not size <= WORSE * best:  # NaN too
                if not moves:
                    return None
                moves, ends, sites = [], [], safe
                continue
            if size < best:
                best, safe = size, new
            moves, ends = [*moves[1 - MEMORY :], move], [*ends[1 - MEMORY :], end]
            w = np.linalg.lstsq(np.diff(moves, axis=0).T, move)[0]
            sites = (end - w @ np.diff(ends, axis=0)).reshape(new.shape)
            np.maximum(sites[0], 0, out=sites[0])  # log-concave factors have no other sites
        return None

    def sweep(self, sites: Array, a: Array, r: Array) -> Array:
        r"""Return the sites after a full sweep without damping, given the projection a [C M N] and r [C N].

            Λ = I + Σ τ a aᵀ,  Λ μ = Σ ν a        v\ = v / (1 − τ v),  m\ = (m − ν v) / (1 − τ v)
            Z = Φ(α),  α = Σ ± m\ / √b        τ = −d₂ / (1 + v\ d₂),  ν = (d₁ − m\ d₂) / (1 + v\ d₂)

        Sites that leave no cavity stay.
        """
        tau, nu = self._per_class(sites, len(a))
        a_t = a.transpose(0, 2, 1)
        cov_a = np.linalg.inv((a * tau[:, None]) @ a_t + np.eye(a.shape[1])) @ a
        mean, var = a_t @ (cov_a @ nu[..., None]), (a * cov_a).sum(1)
        m, v, residual = (x.ravel()[self.place].reshape(self.shape) for x in (mean, var, r))
        old_tau, old_nu = sites.reshape(2, *self.shape)
        keep = 1 - old_tau * v
        usable, keep = keep > LEAST_KEEP, np.maximum(keep, LEAST_KEEP)
        m, v = (m - old_nu * v) / keep, v / keep
        scale = 1 / np.sqrt((v + residual).sum(1))  # [N F]
        alpha = (self.sign * m).sum(1) * scale
        beta = SQRT_2_OVER_PI / erfcx(-SQRT_HALF * alpha)
        slope = beta * (beta + alpha)
        if not alpha.min() > FAR:
            slope = hazard_slope(torch.from_numpy(alpha), torch.from_numpy(beta)).numpy()
        d1, minus_d2 = self.sign * (beta * scale)[:, None], (slope * scale * scale)[:, None]
        new = np.array([np.broadcast_to(minus_d2, m.shape), d1 + m * minus_d2]) / (1 - v * minus_d2)
        return np.asarray(np.where(usable, new, (old_tau, old_nu)).reshape(sites.shape))

    def _per_class(self, sites: Array, C: int) -> Array:
        """Sum τ and ν over the sites on each class, [2 C N]."""
        N = len(self.place)
        place, each = self.place.ravel(), sites.reshape(2, -1)
        return np.stack([np.bincount(place, x, C * N).reshape(C, N) for x in each])

    def _with_sites(self, begin: State, sites: Array, a: Array) -> State:
        tau, nu = self._per_class(sites, len(a))
        P, h = (a * tau[:, None]) @ a.transpose(0, 2, 1), (a @ nu[..., None])[..., 0]
        stored = begin.sites._replace(tau=torch.from_numpy(sites[0]), nu=torch.from_numpy(sites[1]))
        return begin._replace(sites=stored, sums=Sums(torch.from_numpy(P), torch.from_numpy(h)))
