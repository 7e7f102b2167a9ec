"""One engine for every method: project, hand out cavities, ask the factor, take back sites and cotangents.

The methods differ in the factor, in how much of a site a cavity removes, in how sites are kept and where they sit; nothing here
knows their names. Data flow: X → (a, r) → marginals → cavity → moments → sites, cotangents → sums, gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from cavity.data import Batch, Data, Whole
from cavity.distributed import Local
from cavity.factors import Latents, Likelihood, Moments
from cavity.hyper_prior import HyperPrior
from cavity.inference.placement import AtMode, Cotangents, OnF, OnT
from cavity.inference.sites import (
    Fresh,
    Own,
    Share,
    Site,
    Tied,
    refresh,
    refresh_average,
    remove,
    times,
)
from cavity.inference.state import Info, State
from cavity.inference.variational import Averaged
from cavity.inference.view import View, flatten, gather, join, scatter, site_totals
from cavity.linalg import times_transpose
from cavity.posterior import Marginals, Normal, Posterior, Sums, marginals
from cavity.prior import Prior, Projection
from cavity.side_stream import run_on_side_stream


class Totals(NamedTuple):
    """Sums over a batch's rows, which add over pieces and over processes."""

    P: Tensor  # [C M M]
    h: Tensor  # [C M]
    gradient: Tensor  # [P]
    value: Tensor  # [], Σ log s̃ (own sites), Σ log Z (tied) or Σ E log φ (variational)
    weight: Tensor  # []
    counts: Tensor  # [C], weighted number of sites on each class
    skipped: Tensor  # []
    failed: Tensor  # []


class Known(NamedTuple):
    """The one piece of a table, projected at hyper-parameters that stay."""

    jitter: Tensor  # the very tensor of the state: another one asks for another projection
    projection: Projection


class Optimiser:
    """What the engine asks of an optimiser: pure `init` and `step` (ascent)."""

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def step(
        self, state: tuple[Tensor, ...], theta: Tensor, gradient: Tensor, rate: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        raise NotImplementedError


@dataclass(frozen=True)
class Engine:
    """The maths of a run, without its data and without its state."""

    prior: Prior  # a workspace: each step loads its parameters from the state
    parameters: tuple[nn.Parameter, ...]  # those that are learnt
    factor: Likelihood
    sites: Own | Tied | Averaged
    hyper_prior: HyperPrior
    total: Tensor  # [], Σ weights over all rows
    removal: float = 1.0  # of a copy's site: 1 EP, p power EP, 0 variational
    placement: OnT | OnF = field(default_factory=OnT)
    chunk: int = 1 << 62  # rows projected at a time
    exact: bool = False  # differentiate through q and the cavities at fixed (τ, ν)
    known: Known | None = None

    def load(self, theta: Tensor) -> None:
        """Put the state's hyper-parameters into the workspace."""
        if self.parameters:
            vector_to_parameters(theta, self.parameters)

    @property
    def shape(self) -> tuple[int, int]:
        """Independent blocks of q, and the values in each: [C M]."""
        return self.prior.n_latent, self.prior.size

    def at(self, state: State, theta: Tensor) -> State:
        """The state moved to other parameters."""
        return state._replace(theta=theta, sums=self.sites.place(theta, state.sums))

    def still(self, state: State, rows: Data) -> Engine:
        """The engine for sweeps at the state's hyper-parameters: rows that are one piece are projected now and never again."""
        pieces = list(rows.whole().split(self.chunk)) if rows.n_rows <= self.chunk else []
        if len(pieces) != 1:
            return self
        self.load(state.theta)
        with torch.no_grad():
            projection = self.prior.project(pieces[0].X, state.jitter)
        return replace(self, parameters=(), known=Known(state.jitter, projection))

    def project(self, state: State, batch: Batch) -> Projection:
        """The rows as seen from the inducing points."""
        if self.known is not None and self.known.jitter is state.jitter:
            return self.known.projection
        return self.prior.project(batch.X, state.jitter)

    def theta(self) -> Tensor:
        """The workspace's hyper-parameters as a vector."""
        free = torch.zeros(self.sites.size, dtype=torch.float64, device=self.total.device)
        if not self.parameters:
            return free
        vector = parameters_to_vector(self.parameters).detach().clone()
        return torch.cat([vector, free.to(vector.dtype)]) if len(free) else vector

    def step(
        self, state: State, batch: Batch | Whole, reduce: Local, optimiser: Optimiser | None, full: bool
    ) -> tuple[State, Info]:
        """One sweep over the batch's sites and, with an optimiser, one step of the hyper-parameters.

        `full`: the batch is the whole table, so the sums are rebuilt instead of averaged.
        """
        self.load(state.theta)
        q = run_on_side_stream(
            state.theta.device, lambda: self.sites.gaussian(state.sums)
        )  # while the rows are projected
        fresh: list[Fresh] = []
        totals: Totals | None = None
        learn = optimiser is not None and bool(self.parameters) and not self.exact
        for piece in batch.split(self.chunk):
            part, rows = self._local(state, q, piece, learn, full)
            fresh = [rows] if self.sites.tied else [*fresh, rows.kept() if full else rows]
            totals = part if totals is None else Totals(*(x + y for x, y in zip(totals, part, strict=True)))
        assert totals is not None
        if self.exact and optimiser is not None:
            totals = totals._replace(gradient=self.exact_gradient(state, batch))
        return self._finish(state, q(), batch, join(fresh), reduce.sum(totals), optimiser, full)

    def _local(
        self, state: State, found: Callable[[], Posterior], batch: Batch, learn: bool, full: bool
    ) -> tuple[Totals, Fresh]:
        """What this batch adds to the sums, the gradient and the objective."""
        with torch.set_grad_enabled(learn):
            projection = self.project(state, batch)
        with torch.no_grad():
            a, q = projection.a.detach(), found()
            m = marginals(q, a)
            r = Projection(a, projection.variance.detach(), projection.failed).r.double()
            view = self._view(state, m, r, batch)
            update = refresh_average if self.removal == 0 else refresh
            site = update(view.cavity.t, view.moments, view.share)
            added = self.sites.added(view.stored.site, site, view.cavity.usable, state.damping, full)
            fed = self.placement.feed(site_totals(added, view.classes, a, view.share), r)
            tau, nu = fed.tau.to(a.dtype), fed.nu.to(a.dtype)  # [C B]
            P, h = times_transpose(a * tau[:, None], a), torch.bmm(a, nu[..., None])[..., 0]
            gradient = (
                self._gradient(projection, q, m, r, view)
                if learn
                else torch.zeros_like(state.theta[: len(state.theta) - self.sites.size])
            )
            # a running average holds only a share of a row's sites: its objective is that of the sites just found
            judged = view.stored.site if full or self.sites.tied else site
            counts = self._counts(view.classes, batch.weight, len(a))
        totals = Totals(
            P.double(),
            h.double(),
            gradient,
            view.log_normaliser(judged).sum() + self.placement.evidence(view.totals, r),
            batch.weight.sum(),
            counts,
            (~view.cavity.usable).sum(),
            projection.failed.long(),
        )
        return totals, Fresh(view.stored, site, view.cavity.usable, added)

    def _counts(self, classes: Tensor, weight: Tensor, C: int) -> Tensor:
        """Weighted number of sites on each class [C]; only tied sites ask for it."""
        counts = torch.zeros(C, dtype=weight.dtype, device=weight.device)
        if not self.sites.tied:
            return counts
        return counts.scatter_add(0, classes.flatten(), weight[:, None].expand_as(classes).flatten())

    def _view(self, state: State, m: Marginals, r: Tensor, batch: Batch) -> View:
        """The batch as its factors see it: cavities of their sites, and their moments there."""
        classes = self.factor.sites(batch.y)
        stored = self.sites.stored(state, batch, classes)
        share = self._share(batch)
        totals = site_totals(stored.site, classes, m.t.mean, share) if self.placement.eliminates else None
        seen = self.placement.site_marginals(m.t, r, totals)
        mean, var, residual = gather(torch.stack([seen.t.mean, seen.t.var, seen.residual]), classes)
        t = Normal(mean, var)
        cavity = remove(t, stored.site, share)
        f = Latents(cavity.t.mean, cavity.t.var + residual, residual)
        return View(classes, t, stored, totals, share, cavity, self._moments(f, batch.y, share))

    def _moments(self, f: Latents, y: Tensor, share: Share) -> Moments:
        """The factor's answer; where autograd looks on, its value is linear in what it was asked."""
        with torch.no_grad():
            fixed = Latents(*(x.detach() for x in f))
            moments = (
                self.factor.average(fixed, y)
                if self.removal == 0
                else self.factor.moments(fixed, y, share.exponent)
            )
        if not torch.is_grad_enabled():
            return moments
        dm, dv, dr = moments.dm, moments.dv, moments.dr
        moved = (
            dm * (f.mean - fixed.mean) + dv * (f.var - fixed.var) + (dr - dv) * (f.residual - fixed.residual)
        )
        return moments._replace(value=moments.value + moved.sum(1))

    def _gradient(self, projection: Projection, q: Posterior, m: Marginals, r: Tensor, view: View) -> Tensor:
        r"""Cotangents at fixed cavities in closed form; autograd carries them through the projection.        [METHOD 6]

            G_a = copies · Σ_sites [ ∂m μ\ + 2 ∂v S\a ] − 2 a G_r,   S\a = Σa/keep,   μ\ = μ + Σa p(τm − ν)/keep
            G_r = copies · Σ_sites ∂r,                            since r = k(x, x) + s − |a|²

        G_a is built in place of Σa, which is not needed any more.
        """
        _, dm, dv, dr, own = view.moments
        a = projection.a.detach()
        shift = times(view.share.p, view.stored.site.tau * view.t.mean - view.stored.site.nu)
        parts = times(view.share.copies, torch.stack([dm, (dm * shift + 2 * dv) / view.cavity.keep, dr]))
        moved = Cotangents(*scatter(parts, view.classes, a))
        moved = self.placement.cotangents(moved, m.t, r, view.totals)
        along_mean, along_cov, G_r = (x.to(a.dtype)[:, None] for x in moved)
        G_a = m.cov_a().mul_(along_cov).addcmul_(q.mean.to(a.dtype)[:, :, None], along_mean)
        G_a.addcmul_(a, G_r, value=-2.0)
        pairs = [(projection.a, G_a), (projection.variance, G_r[:, 0])]
        return self._pull_back(pairs, own, view.share)

    def _pull_back(self, pairs: list[tuple[Tensor, Tensor]], own: Tensor | None, share: Share) -> Tensor:
        """From cotangents to the learnt parameters; the factor's own come last and bring their derivatives along."""
        grads: tuple[Tensor | None, ...] = (None,) * len(self.parameters)
        pairs = [pair for pair in pairs if pair[0].requires_grad]
        if pairs:
            outputs, cotangents = zip(*pairs, strict=True)
            grads = torch.autograd.grad(outputs, self.parameters, cotangents, allow_unused=True)
        return self._with_own(flatten(grads, self.parameters), own, share)

    def _with_own(self, gradient: Tensor, own: Tensor | None, share: Share) -> Tensor:
        if own is not None:
            gradient[-own.shape[1] :] += times(share.copies, own).sum(0)
        return gradient

    def exact_gradient(self, state: State, batch: Any) -> Tensor:
        """Gradient of log Z_q at fixed (τ, ν), through a, r, P, h and the cavities; the whole table at once."""
        with torch.enable_grad():
            value, view = self._fixed_sites(state, batch)
        grads: tuple[Tensor | None, ...] = (None,) * len(self.parameters)
        if value.requires_grad:
            grads = torch.autograd.grad(value, self.parameters, allow_unused=True)
        return self._with_own(flatten(grads, self.parameters), view.moments.own, view.share)

    def fixed_site_evidence(self, state: State, batch: Batch) -> Tensor:
        """log Z_q with the sums rebuilt from the stored sites, as a function of the workspace's parameters."""
        return self._fixed_sites(state, batch)[0]

    def _fixed_sites(self, state: State, batch: Batch) -> tuple[Tensor, View]:
        projection = self.project(state, batch)
        classes = self.factor.sites(batch.y)
        a, r = projection.a, projection.r.double()
        stored = Site(*(x[batch.index].double() for x in state.sites[:2]))
        fed = self.placement.feed(site_totals(stored, classes, a, self._share(batch)), r)
        tau, nu = fed.tau.to(a.dtype), fed.nu.to(a.dtype)
        q = self.sites.gaussian(
            Sums(((a * tau[:, None]) @ a.mT).double(), (a @ nu[..., None])[..., 0].double())
        )
        m = marginals(q, a)
        view = self._view(state, m, r, batch)
        value = q.log_normaliser.sum() + view.log_normaliser(view.stored.site).sum()
        value = value + self.placement.evidence(view.totals, r)
        if isinstance(self.placement, AtMode):
            width = gather(self.placement.width(m.t, r, view.totals)[None], classes)[0]
            third = self.factor.third(view.t.mean.detach(), batch.y)
            value = value + (times(view.share.copies, 0.5 * width * third).detach() * view.t.mean).sum()
        return value, view

    def _share(self, batch: Batch) -> Share:
        return self.sites.share(batch.weight, self.removal)

    def _finish(
        self,
        state: State,
        q: Posterior,
        batch: Any,
        fresh: Fresh,
        totals: Totals,
        optimiser: Optimiser | None,
        full: bool,
    ) -> tuple[State, Info]:
        """Sums, sites and hyper-parameters after the step."""
        decay = self.sites.decay(state.damping, totals.weight, totals.counts, full)
        clock = state.clock if full or self.sites.tied else state.clock + decay.clamp_min(1e-300).log()
        undo = None if full or fresh.stored.rows is None else (batch.index, fresh.stored.rows)
        old = state.sums
        sums = self.sites.collect(old, Sums(totals.P, totals.h), decay)
        sites = self.sites.write(state.sites, batch, fresh, decay, clock, full)
        scale = self.total / totals.weight
        evidence = self.sites.evidence(old, q) + scale * totals.value
        theta, memory = state.theta, state.optimiser
        pull = self.hyper_prior.gradient(theta)
        if optimiser is not None:
            slope = scale * totals.gradient
            of_q = self.sites.slope(state, q, Sums(scale * totals.P, scale * totals.h))
            slope = slope if of_q is None else torch.cat([slope, of_q])
            theta, memory = optimiser.step(memory, theta, slope + pull, state.rate)
            sums = self.sites.place(theta, sums)
        finite = (sums.h.sum() + theta.sum() + evidence).isfinite()
        info = Info(
            evidence + self.hyper_prior.log_density(state.theta, pull),
            evidence,
            totals.skipped,
            q.failed | (totals.failed > 0) | ~finite,
            undo,
        )
        return state._replace(theta=theta, sites=sites, sums=sums, optimiser=memory, clock=clock), info
