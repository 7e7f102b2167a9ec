"""log Z_q of EP with probit factors on a small table, with its gradient: sweeps in NumPy. NUTS asks thousands of times. [METHOD 4]

With 30 rows a sweep takes a tenth of the engine's time, which goes into calls. Cavities, moments, sites and cotangents are the
functions that the engine calls, with arrays in place of tensors.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from cavity.explain.nuts_projection import Projected, fix_rows
from cavity.inference import State
from cavity.inference.posterior import Normal, Sums
from cavity.inference.sites import Cavity, Share, Site, log_site_integral, refresh, remove, site_cotangents
from cavity.likelihoods import BinaryProbit, Moments, ProbitPairs
from cavity.likelihoods.probit import match_probit
from cavity.training.fixed_point import MEMORY, WORSE
from cavity.training.loop import Run

Array = NDArray[np.float64]

MOST_VALUES = 50_000  # C·M·N: above it the arithmetic of a sweep takes longer than the calls
RIDGE = 1e-10  # relative, of the least-squares problem of an extrapolation
WHOLE = Share(1.0, None, 1.0)


def has_small_table(run: Run) -> bool:
    """Return whether the table is small, and the sites are those of EP with probit factors."""
    engine, N = run.engine, run.rows.n_rows
    C, M = engine.shape
    small = C * M * N <= MOST_VALUES and N <= engine.chunk and run.reduce.world == 1
    return small and engine.has_plain_sites and type(engine.factor) in (ProbitPairs, BinaryProbit)


class Visit(NamedTuple):
    """q of given sites, and what `Engine.visit_rows` finds there."""

    mean: Array  # [C M 1]
    nu: Array  # [C N], of all sites of a row
    precision: Array  # [C M M], Λ
    cov_a: Array  # [C M N], Σa
    t: Normal  # [K N F]
    cavity: Cavity
    moments: Moments


class ProbitSweeps:
    """The converged objective of a run as a function of its hyper-parameters.

    A factor has K sites: own class and rival (K = 2), or one signed latent function (K = 1). Sites are an array [2 K N F], τ and
    then ν; a state has them as [N KF].
    """

    def __init__(self, run: Run) -> None:
        engine, rows = run.engine, next(iter(run.whole.split(run.engine.chunk)))
        self.run, self.project = run, fix_rows(engine, rows.X)
        y, two, N = rows.y.numpy(), engine.factor.two_classes, len(rows.y)
        # [K N F]
        self.sign: Any = 2.0 * y[None, :, None] - 1 if two else np.array([1.0, -1.0])[:, None, None]
        self.split = (N, len(self.sign), -1)
        classes = engine.factor.sites(rows.y).numpy().reshape(self.split).transpose(1, 0, 2)
        # [K N F], of a site in a table [C N]
        self.place = np.array(classes * N + np.arange(N)[:, None], order="C")
        self.tables = np.stack([self.place + i * engine.shape[0] * N for i in range(3)])  # in tables [3 C N]
        self.eye = np.eye(engine.shape[1])
        each = torch.eye(len(run.state.theta), dtype=torch.float64)
        self.precision = torch.stack([engine.hyper_prior.multiply(e) for e in each]).numpy()  # [P P]

    def evaluate(self, theta: Array, tol: float, most: int) -> tuple[float, Array] | None:
        """Return value and gradient; None if k(Z, Z) has no factor, or the sites do not converge."""
        found = self._converge_at(theta, tol, most)
        if found is None:
            return None
        p, sites = found
        value, *cotangents = self.slope(sites, p.a, self.residual(p.r))
        gap = self.run.engine.hyper_prior.mean.numpy() - theta
        pull = self.precision @ gap
        return value - 0.5 * float(pull @ gap), p.pull_back(*cotangents) + pull

    def at(self, theta: Array, tol: float, most: int) -> State | None:
        """Return the run's state at other hyper-parameters, with converged sites."""
        found = self._converge_at(theta, tol, most)
        if found is None:
            return None
        p, sites = found
        q, state = self._visit(sites, p.a, self.residual(p.r)), self.run.state
        h = (p.a @ q.nu[..., None])[..., 0]
        sums = Sums(torch.from_numpy(q.precision - self.eye), torch.from_numpy(h))
        tau, nu = (torch.from_numpy(x.transpose(1, 0, 2).reshape(len(x[0]), -1)) for x in sites)
        stored = state.sites._replace(tau=tau, nu=nu)
        return state._replace(theta=torch.from_numpy(theta), sites=stored, sums=sums)

    def _converge_at(self, theta: Array, tol: float, most: int) -> tuple[Projected, Array] | None:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                p = self.project(theta, self.run.state.jitter)
        except np.linalg.LinAlgError:
            return None
        sites = self.converge(p.a, self.residual(p.r), tol, most) if np.isfinite(p.r).all() else None
        return None if sites is None else (p, sites)

    def residual(self, r: Array) -> Array:
        """Return the residual variance of each factor, [C N] → [N F]."""
        return np.asarray(r.ravel()[self.place].sum(0))

    def pack(self, state: State) -> Array:
        """Return a state's sites."""
        return np.array([x.numpy().reshape(self.split).transpose(1, 0, 2) for x in state.sites[:2]])

    def converge(self, a: Array, residual: Array, tol: float, most: int) -> Array | None:
        """Sweep as `find_fixed_point` does, given a [C M N] and the residuals [N F]; None if the sites do not converge."""
        sites = safe = self.pack(self.run.state)
        known, best = Anderson(sites.size), math.inf
        for _ in range(most):
            new = self.sweep(sites, a, residual)
            move, end = (new - sites).ravel(), new.ravel()
            size = math.sqrt(move @ move) / (1 + math.sqrt(end @ end))
            if not size <= WORSE * best:  # NaN too
                if not known.count:
                    return None
                known.count, sites = 0, safe
                continue
            if size < best:
                best, safe = size, new
            sites = known.extrapolate(move, end).reshape(new.shape)
            np.maximum(sites[0], 0, out=sites[0])  # log-concave factors have no other sites
            if size < tol:
                return sites
        return None

    def sweep(self, sites: Array, a: Array, residual: Array) -> Array:
        """Return the sites after a full sweep without damping. Sites that leave no cavity stay."""
        found = self._visit(sites, a, residual)
        new = np.array(refresh(found.cavity.t, found.moments, WHOLE))
        return new if found.cavity.usable.all() else np.where(found.cavity.usable, new, sites)

    def slope(self, sites: Array, a: Array, residual: Array) -> tuple[float, Array, Array]:
        """Return log Z_q with its cotangents in a [C M N] and k(x, x) + s [C N], which are exact at the fixed point."""
        q, site = self._visit(sites, a, residual), Site(*sites)
        g = 0.5 * float((q.nu * (a * q.mean).sum(1)).sum() - np.linalg.slogdet(q.precision)[1].sum())
        value = g + float(q.moments.value.sum() - log_site_integral(q.cavity.t, site).sum())
        parts = np.empty((3, *self.place.shape))
        parts[0], parts[1], parts[2] = site_cotangents(q.moments, q.t, q.cavity, site, WHOLE)
        of_mean, of_cov, G_r = self._per_class(parts, a)[:, :, None]
        return value, of_mean * q.mean + of_cov * q.cov_a - 2 * G_r * a, G_r[:, 0]

    def _visit(self, sites: Array, a: Array, residual: Array) -> Visit:
        tau, nu = self._per_class(sites, a)
        a_t = a.transpose(0, 2, 1)
        precision = (a * tau[:, None]) @ a_t + self.eye
        cov_a = np.linalg.inv(precision) @ a
        mean = cov_a @ nu[..., None]
        t = Normal(*np.array([(a_t @ mean)[..., 0], np.add.reduce(a * cov_a, 1)]).ravel()[self.tables[:2]])
        cavity = remove(t, Site(*sites), WHOLE)
        gaps = np.add.reduce(self.sign * cavity.t.mean, 0)
        gap = match_probit(gaps, np.add.reduce(cavity.t.var, 0) + residual)
        moments = Moments(gap.value, gap.dm * self.sign, gap.dv, gap.dr)
        return Visit(mean, nu, precision, cov_a, t, cavity, moments)

    def _per_class(self, values: Array, like: Array) -> Array:
        """Sum tables over the sites on each class, [T K N F] → [T C N]."""
        shape = len(values), len(like), like.shape[2]
        total = np.bincount(self.tables[: len(values)].ravel(), values.ravel(), math.prod(shape))
        return np.asarray(total.reshape(shape), np.float64)


class Anderson:
    """Extrapolates the last sweeps of a fixed-point iteration, kept as the difference of each to the one before it."""

    def __init__(self, size: int) -> None:
        self.count = 0  # sweeps since the last restart
        self.moves, self.ends = np.empty((2, MEMORY - 1, size))
        self.last: tuple[Array, Array]

    def extrapolate(self, move: Array, end: Array) -> Array:
        """Return the end minus Σ w_i (difference i of ends), with w chosen so that the same combination of moves is shortest."""
        n = min(self.count, MEMORY - 1)
        if n:
            row = (self.count - 1) % (MEMORY - 1)
            np.subtract(move, self.last[0], out=self.moves[row])
            np.subtract(end, self.last[1], out=self.ends[row])
        self.count, self.last = self.count + 1, (move, end)
        if not n:
            return end.copy()
        moves = self.moves[:n]
        gram = moves @ moves.T
        gram.ravel()[:: n + 1] *= 1 + RIDGE
        return np.asarray(end - dposv(gram, moves @ move)[1] @ self.ends[:n])
