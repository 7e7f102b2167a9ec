"""A mini-batch step of plain EP in NumPy, for steps so small that torch calls cost more than their arithmetic. [METHOD 4, 6]

The equations are those of `Engine.step` with probit factors, a site per row of its own, no weights and sites on t. Unlike the
engine's, this step reads values, so it stays on the CPU.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.data import Batch
from cavity.factors import BinaryProbit, ProbitPairs
from cavity.inference.array_batch import BatchPrior, diagonal, knows_prior, sum_squares
from cavity.inference.array_projection import Array, Projected
from cavity.inference.array_sweeps import Matched, log_site_normaliser, match, refresh, sum_sites, weigh_cov
from cavity.inference.engine import Engine
from cavity.inference.optimiser import Optimiser
from cavity.inference.placement import OnT
from cavity.inference.sites import Own
from cavity.inference.state import Info, Sites, State
from cavity.posterior import Sums

# C·M²·rows, above which the engine is faster: torch with MKL solves with a batch of factors faster than SciPy's BLAS one by one.
MOST_WORK = 4 * 10**6 if torch.backends.mkl.is_available() else 10**8  # type: ignore[no-untyped-call]


class Gaussian(NamedTuple):
    """q(w) with Λ = L Lᵀ."""

    mean: Array  # [C M]
    upper: Array  # [C M M], Lᵀ; the lower triangles hold other numbers
    log_normaliser: float  # Σ_c g_c


class View(NamedTuple):
    """A batch as its sites see it."""

    place: NDArray[np.int64]  # [K B F], of a site in a table [C B]
    half: Array  # [C M B], L⁻¹a
    mean: Array  # [K B F], marginals of q
    var: Array  # [K B F]
    residual: Array  # [B F], of a factor's gap
    sites: Array  # [2 K B F], what the sums hold of the stored sites


class ArrayStep:
    """`Engine.step` for mini-batches; `make_array_step` says of which engines."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.prior = engine, BatchPrior(engine.prior, engine.parameters)
        self.total = float(engine.total)
        one_latent, labels = engine.factor.two_classes, torch.arange(engine.factor.n_classes or 2)
        classes = engine.factor.sites(labels).numpy().reshape(len(labels), 1 if one_latent else 2, -1)
        self.classes = np.ascontiguousarray(classes.transpose(1, 0, 2))  # [K C F], by label
        self.signs = (
            np.array([[-1.0, 1.0]]) if one_latent else np.array([[1.0], [-1.0]]).repeat(len(labels), 1)
        )

    def __call__(self, state: State, batch: Batch, optimiser: Optimiser) -> tuple[State, Info] | None:
        """Return what `Engine.step` would; None if a factorisation fails or rows are very far away: the engine handles these."""
        with np.errstate(all="ignore"):
            projected = self.prior.project(state.theta.numpy(), batch.X.numpy(), float(state.jitter))
            q = self._gaussian(state.sums)
            return (
                None if projected is None or q is None else self._step(state, batch, optimiser, projected, q)
            )

    def _step(
        self, state: State, batch: Batch, optimiser: Optimiser, projected: Projected, q: Gaussian
    ) -> tuple[State, Info]:
        index, y, store = batch.index.numpy(), batch.y.numpy(), [x.numpy() for x in state.sites]
        old, damping, clock = [x[index] for x in store], float(state.damping), float(state.clock)
        view = self._view(q, projected, y, old, clock)
        found = match(view.mean, view.var, view.residual, view.sites, self.signs[:, y, None])
        new = refresh(found)
        added = damping * found.usable * new
        keep = max(0.0, 1 - damping * len(index) / self.total)
        sums = self._collect(state.sums, keep, projected.a, self._per_class(added, view.place, len(q.mean)))
        clock += math.log(max(keep, 1e-300))
        tau, nu = (keep * view.sites + added).transpose(0, 2, 1, 3).reshape(2, len(index), -1)
        for x, value in zip(store, (tau, nu, clock), strict=True):
            x[index] = value
        scale = self.total / len(index)
        evidence = q.log_normaliser + scale * log_site_normaliser(found, new)
        pull = self.engine.hyper_prior.gradient(state.theta)
        log_prior = float(self.engine.hyper_prior.log_density(state.theta, pull))
        slope = torch.from_numpy(scale * self._gradient(projected, q, view, found)).add_(pull)
        theta, memory = optimiser.step(state.optimiser, state.theta, slope, state.rate)
        promise = float(slope.dot(theta - state.theta))
        finite = math.isfinite(float(sums.h.sum()) + float(theta.sum()) + evidence)
        skipped = found.usable.size - np.count_nonzero(found.usable)
        numbers = (clock, evidence + log_prior, evidence, promise)
        now, objective, evidence_, promise_ = torch.tensor(numbers, dtype=torch.float64).unbind()
        undo = batch.index, Sites(*map(torch.from_numpy, old))
        info = Info(objective, evidence_, torch.tensor(skipped), torch.tensor(not finite), promise_, undo)
        return state._replace(theta=theta, sums=sums, optimiser=memory, clock=now), info

    def _gaussian(self, sums: Sums) -> Gaussian | None:
        """Λ = I + P,  Λ μ = h,  g = −½ log|Λ| + ½ hᵀμ        [METHOD 3]"""
        h, upper, lapack = sums.h.numpy(), sums.P.numpy().copy(), self.prior.double
        on_diagonal = diagonal(upper)
        on_diagonal += 1
        if not lapack.factorise(upper):
            return None
        mean = np.stack([lapack.potrs(L.T, x, lower=1)[0] for L, x in zip(upper, h, strict=True)])
        return Gaussian(mean, upper, 0.5 * float((h * mean).sum()) - float(np.log(on_diagonal).sum()))

    def _view(
        self, q: Gaussian, projected: Projected, y: NDArray[np.int64], old: list[Array], clock: float
    ) -> View:
        """Read the marginals, t = a·w, and the stored sites at each site of the batch.        [METHOD 3]"""
        a, C, B = projected.a, len(q.mean), len(y)
        half = a.copy() if len(a) == C else np.repeat(a, C, 0)
        self.prior.own.solve(q.upper.astype(a.dtype, copy=False), half)
        seen = np.empty((3, C, B))
        seen[0] = (q.mean.astype(a.dtype, copy=False)[:, None] @ a)[:, 0]
        seen[1] = sum_squares(half)
        seen[2] = projected.r
        place = self.classes[:, y] * B + np.arange(B)[:, None]
        mean, var, residual = seen.reshape(3, -1).take(place, 1)
        sites = np.stack(old[:2]) * np.exp(clock - old[2])[:, None]
        sites = sites.reshape(2, B, len(place), -1).transpose(0, 2, 1, 3)
        return View(place, half, mean, var, sum_sites(residual), sites)

    def _collect(self, sums: Sums, keep: float, a: Array, added: Array) -> Sums:
        """Add Σ τ a aᵀ and Σ ν a to the sums; probit sites have τ ≥ 0, but for rounding.        [METHOD 4]"""
        tau, nu = added.astype(a.dtype, copy=False)
        rooted = a * np.sqrt(np.maximum(tau, 0))[:, None]
        P, h = keep * sums.P.numpy(), keep * sums.h.numpy()
        P += rooted @ rooted.transpose(0, 2, 1)
        h += (a @ nu[..., None])[..., 0]
        return Sums(torch.from_numpy(P), torch.from_numpy(h))

    def _gradient(self, projected: Projected, q: Gaussian, view: View, found: Matched) -> Array:
        r"""Return the gradient at fixed cavities from the cotangents of `Engine._gradient`; overwrites L⁻¹a.        [METHOD 6]"""
        a, G_a = projected.a, view.half
        parts = np.empty((3, *found.dm.shape))
        parts[0], parts[1], parts[2] = found.dm, weigh_cov(found, view.mean, view.sites), found.dv
        parts = self._per_class(parts, view.place, len(q.mean)).astype(a.dtype, copy=False)
        self.prior.own.solve_t(q.upper.astype(a.dtype, copy=False), G_a)
        mean, rows = (torch.from_numpy(x) for x in (q.mean.astype(a.dtype, copy=False), a))
        along_mean, along_cov, G_r = torch.from_numpy(parts)[:, :, None]
        fused = torch.from_numpy(G_a).mul_(along_cov).addcmul_(mean[..., None], along_mean)  # without copies
        fused.addcmul_(rows, G_r, value=-2.0)
        return projected.pull_back(G_a, parts[2])

    def _per_class(self, x: Array, place: NDArray[np.int64], C: int) -> Array:
        """Sum J tables over the sites of each class, [J K B F] → [J C B]."""
        J, B = len(x), place.shape[1]
        cells = place + C * B * np.arange(J)[:, None, None, None]
        found = np.bincount(cells.ravel(), x.ravel(), J * C * B)
        return np.asarray(found, dtype=np.float64).reshape(J, C, B)


def make_array_step(engine: Engine, state: State, rows: int) -> ArrayStep | None:
    """Return a step for batches of up to `rows` rows; None for large ones, which gain nothing, or if the engine does not suit."""
    C, M = engine.shape
    small = C * M * M * rows <= MOST_WORK and rows <= engine.chunk
    return ArrayStep(engine) if small and _suits(engine, state) else None


def _suits(engine: Engine, state: State) -> bool:
    """Return whether the engine is that of plain EP with probit factors and usual kernels on the CPU."""
    return (
        type(engine) is Engine
        and type(engine.factor) in (ProbitPairs, BinaryProbit)
        and type(engine.sites) is Own
        and type(engine.placement) is OnT
        and engine.cached is None
        and not (engine.exact or engine.sites.weighted)
        and engine.removal == 1.0
        and state.theta.device.type == "cpu"
        and knows_prior(engine.prior, engine.parameters)
    )
