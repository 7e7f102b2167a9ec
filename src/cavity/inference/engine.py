"""One engine for every method: project, form cavities, ask the factor, collect sites and cotangents.

The methods differ in the factor, in how much of a site a cavity removes, in how sites are stored and where they sit. The engine
does not know their names. Data flow: X → (a, r) → marginals → cavity → moments → sites, cotangents → sums, gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from cavity.common.linalg import Factor, pack_symmetric, times_transpose, unpack_symmetric
from cavity.distributed import Local
from cavity.inference.batch_sites import (
    BatchView,
    differentiate,
    gather,
    join,
    pull_back,
    scatter,
    site_totals,
)
from cavity.inference.placement import Cotangents, OnT, Placement
from cavity.inference.posterior import Marginals, Normal, Posterior, Sums, marginals
from cavity.inference.sites import (
    Cavity,
    Share,
    Site,
    SiteStore,
    SiteUpdate,
    log_site_normaliser,
    refresh,
    refresh_average,
    remove,
    site_cotangents,
    times,
)
from cavity.inference.state import Factored, Info, Optimiser, State, Totals, choose_state, is_readable
from cavity.kernels.hyper_prior import HyperPrior
from cavity.kernels.prior import Prior, Projection
from cavity.likelihoods import Latents, Likelihood, Moments
from cavity.rows.batches.in_memory import Batch
from cavity.rows.batches.stream import Data, Whole

OF_FACTOR = "likelihood."  # begins the names of the factor's parameters
LONGEST = 12.0  # move of a hyper-parameter in one step, in its own units (logs, or spreads of a column)


class Visit(NamedTuple):
    """What a step finds on a piece of its rows."""

    totals: Totals
    update: SiteUpdate


class CachedProjection(NamedTuple):
    """What depends only on hyper-parameters that do not change, for a table that is a single piece."""

    jitter: Tensor  # the very tensor of the state: any other tensor needs a new projection
    projection: Projection
    r: Tensor  # [C N], the residual variances
    pull: Tensor  # [P], the gradient of the hyper-prior


def name_parameters(prior: Prior, factor: Likelihood) -> dict[str, nn.Parameter]:
    """Return what is learnt, each parameter once: those of the prior by their path, those of the factor as "likelihood.0", ..."""
    own = {f"{OF_FACTOR}{i}": p for i, p in enumerate(factor.parameters)}
    return {name: p for name, p in prior.named_parameters() if p.requires_grad} | own


@dataclass(frozen=True)
class Engine:
    """The maths of a run, without its data and without its state.

    A q that is not a product over classes is a subclass that overrides `shape`, `visit_rows` and `exact_gradient` (see `Coupled`).
    """

    sites_are_totals: ClassVar[bool] = True  # a stored site is that of all copies of a weighted row

    prior: Prior  # a workspace: each step loads its parameters from the state
    parameters: dict[str, nn.Parameter]  # the learnt ones by name, in the order of θ: see `name_parameters`
    factor: Likelihood
    sites: SiteStore
    hyper_prior: HyperPrior
    total: Tensor  # [], Σ weights over all rows
    removal: float = 1.0  # share of one copy's site that a cavity removes: 1 EP, p power EP, 0 variational
    placement: Placement = field(default_factory=OnT)
    chunk: int = 1 << 62  # rows projected at a time
    exact: bool = False  # differentiate through q and the cavities at fixed (τ, ν)
    cached: CachedProjection | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of independent blocks of q and of values in each, [C M]."""
        return self.prior.n_latent, self.prior.size

    def load(self, theta: Tensor, copy: bool = False) -> None:
        """Put the state's hyper-parameters into the workspace, as views of θ or as copies. Nothing else writes there."""
        if self.parameters:
            vector_to_parameters(theta, self.parameters.values())
        if copy:
            for parameter in self.parameters.values():
                parameter.data = parameter.data.clone()

    @property
    def places(self) -> dict[str, slice]:
        """Where each parameter stands in θ."""
        ends = accumulate(p.numel() for p in self.parameters.values())
        return {
            name: slice(end - p.numel(), end)
            for (name, p), end in zip(self.parameters.items(), ends, strict=True)
        }

    def freeze(self, state: State, rows: Data, learn: bool = False) -> Engine:
        """Return the engine for sweeps at fixed hyper-parameters: rows that form a single piece are projected only once.

        `learn`: `thaw` may follow, so autograd records the projection.
        """
        pieces = list(rows.whole().split(self.chunk)) if rows.n_rows <= self.chunk else []
        if len(pieces) != 1:
            return self
        self.load(state.theta)
        with torch.set_grad_enabled(learn):
            projection = self.prior.project(pieces[0].X, state.jitter)
        with torch.no_grad():
            pull = self.hyper_prior.gradient(state.theta)
            cached = CachedProjection(state.jitter, projection, projection.r.double(), pull)
        return replace(self, parameters={}, cached=cached)

    def thaw(self, frozen: Engine) -> Engine:
        """Return this engine with the projection of the frozen one, for one step of learning at the same hyper-parameters.

        An exact gradient runs through a projection of its own.
        """
        return self if self.exact else replace(self, cached=frozen.cached)

    def project(self, state: State, batch: Batch) -> Projection:
        """Project the rows onto the inducing points."""
        cached = self._find_cached(state)
        return self.prior.project(batch.X, state.jitter) if cached is None else cached.projection

    def _residual(self, state: State, projection: Projection) -> Tensor:
        cached = self._find_cached(state)
        return projection.r.double() if cached is None else cached.r

    def _find_cached(self, state: State) -> CachedProjection | None:
        """Return what `freeze` computed, if it belongs to this state's jitter."""
        return self.cached if self.cached is not None and self.cached.jitter is state.jitter else None

    @torch.no_grad()
    def collect(self, state: State, batch: Batch | Whole, reduce: Local) -> State:
        """Return the state with the sums of its sites: those of before a move of θ belong to another projection.

        Tied sites have no other sums.
        """
        if self.sites.tied:
            return state
        self.load(state.theta)
        parts = []
        for piece in batch.split(self.chunk):
            projection, classes = self.project(state, piece), self.factor.sites(piece.y)
            site, share = (
                self.sites.stored(state, piece, classes).site,
                self.sites.share(piece.weight, self.removal),
            )
            parts.append(
                self._sum_sites(site, classes, projection.a, share, self._residual(state, projection))
            )
        P, h = (torch.stack(part).sum(0) if len(part) > 1 else part[0] for part in zip(*parts, strict=True))
        return state._replace(sums=reduce.sum(Sums(P, h)))

    def theta(self) -> Tensor:
        """Return the workspace's hyper-parameters as a vector."""
        if not self.parameters:
            return torch.zeros(0, dtype=torch.float64, device=self.total.device)
        return parameters_to_vector(self.parameters.values()).detach().clone()

    def step(
        self,
        state: State,
        batch: Whole,
        reduce: Local,
        optimiser: Optimiser | None,
        full: bool,
        factored: Factored | None = None,
        going: Tensor | None = None,
    ) -> tuple[State, Info]:
        """Update the batch's sites once and, with an optimiser, take one step of the hyper-parameters.

        The new q is factorised. If that fails the old state is returned, and `info.failed` says so.

        `full`: the batch is the whole table, so the sums are rebuilt instead of averaged. `factored`: what the step before said of
        the state; q is not factorised twice. `going` [] bool: False lets nothing move, as if the step failed.
        """
        self.load(state.theta)
        known = factored is not None and factored.of is state.sums.P
        factor = factored.factor if factored is not None and known else self.sites.factorise(state.sums)
        q = self.sites.gaussian(state.sums, factor)
        learn = optimiser is not None and bool(self.parameters)
        updates: list[SiteUpdate] = []
        totals: Totals | None = None
        for piece in batch.split(self.chunk):
            part, update = self.visit_rows(state, q, piece, learn and not self.exact, full)
            updates = (
                [update] if self.sites.tied else [*updates, update.reduce_to_added() if full else update]
            )
            totals = part if totals is None else Totals(*(x + y for x, y in zip(totals, part, strict=True)))
        assert totals is not None
        if self.exact and optimiser is not None:
            totals = totals._replace(gradient=self.exact_gradient(state, batch))
        totals = _sum(totals, reduce)
        moved, info, decay = self._move(state, q, factor, totals, optimiser, full, going)
        if is_readable(info.failed) and bool(info.failed):
            return state, info
        update = join(updates)
        sites = self.sites.write(state.sites, batch, update, decay, moved.clock, full)
        return self._choose(state, moved._replace(sites=sites), info, factor, batch, update, full)

    def _move(
        self,
        state: State,
        q: Posterior,
        factor: Factor,
        totals: Totals,
        optimiser: Optimiser | None,
        full: bool,
        going: Tensor | None,
    ) -> tuple[State, Info, Tensor]:
        """Return the state with new sums and hyper-parameters, what there is to say of the step, and the share of the old sums."""
        decay = self.sites.decay(state.damping, totals.weight, totals.counts, full)
        clock = state.clock if full or self.sites.tied else state.clock + decay.clamp_min(1e-300).log()
        sums = self.sites.collect(state.sums, Sums(totals.P, totals.h), decay)
        scale = self.total / totals.weight
        evidence = self.sites.evidence(state.sums, q) + scale * totals.value
        theta, memory = state.theta, state.optimiser
        cached = self._find_cached(state)
        pull = self.hyper_prior.gradient(theta) if cached is None else cached.pull
        slope = promise = None
        if optimiser is not None:
            slope = scale * totals.gradient + pull
            theta, memory = optimiser.step(memory, theta, slope, state.rate)
            promise = (slope * (theta - state.theta)).sum() if full else None
        new, size = self.sites.factorise(sums), sums.h.sum() + evidence
        broken = q.failed | totals.failed
        failed = broken | new.failed
        if len(theta) and optimiser is not None:
            # k(Z, Z) is factorised in the next step, and must have finite values there
            leap = torch.linalg.vector_norm(theta - state.theta, math.inf)
            failed, size = failed | (leap > LONGEST), size + leap
        failed = failed | (size - size != 0)  # ∞ − ∞ is NaN
        failed = failed if going is None else failed | ~going
        objective = evidence + self.hyper_prior.log_density(state.theta, pull)
        known = (
            Factored(state.sums.P, factor) if is_readable(failed) and bool(failed) else Factored(sums.P, new)
        )
        info = Info(objective, evidence, totals.skipped, failed, broken, known, slope, promise)
        return state._replace(theta=theta, sums=sums, optimiser=memory, clock=clock), info, decay

    def _choose(
        self, old: State, new: State, info: Info, factor: Factor, batch: Any, update: SiteUpdate, full: bool
    ) -> tuple[State, Info]:
        """Return the new state; on a GPU, which reads no flag, the old one if the step failed."""
        if is_readable(info.failed):
            return new, info
        rows = update.stored.rows
        moved = choose_state(info.failed, old, new, None if full or rows is None else (batch.index, rows))
        pairs = zip(factor, info.factored.factor, strict=True)
        chosen = Factor(*(torch.where(info.failed, a, b) for a, b in pairs))
        return moved, info._replace(factored=Factored(moved.sums.P, chosen))

    def visit_rows(self, state: State, q: Posterior, batch: Batch, learn: bool, full: bool) -> Visit:
        """Return what these rows add to the sums, the objective and, if asked, the gradient; and their new sites."""
        with torch.set_grad_enabled(learn):
            projection = self.project(state, batch)
        with torch.no_grad():
            a = projection.a.detach()
            m = marginals(q, a)
            r = self._residual(state, projection)
            view = self._view(state, m, r, batch)
            stored, share = view.stored.site, view.share
            cavity = remove(view.t, stored, share)
            moments = self._moments(view, cavity, batch.y)
            update = refresh_average if self.removal == 0 else refresh
            site = update(cavity.t, moments, share)
            added = self.sites.added(stored, site, cavity.usable, state.damping, full)
            sums = self._sum_sites(added, view.classes, a, share, r)
            # a running average holds only a share of a row's sites: its objective is that of the sites just found
            judged = stored if full or self.sites.tied else site
            value = log_site_normaliser(moments, cavity.t, judged, share).sum()
            counts = self._counts(view.classes, batch.weight, a.shape[0])
            gradient = torch.zeros_like(state.theta)
            if learn:
                gradient = self._gradient(projection, q, m, r, view, cavity, moments)
        totals = Totals(
            *sums,
            gradient,
            self.placement.complete(value, view.totals, r),
            batch.weight.sum(),
            counts,
            (~cavity.usable).sum(),
            projection.failed,
        )

        return Visit(totals, SiteUpdate(view.stored, site, cavity.usable, added))

    def _view(self, state: State, m: Marginals, r: Tensor, batch: Batch) -> BatchView:
        """Read the marginals and the stored sites at each site of the batch."""
        classes = self.factor.sites(batch.y)
        stored = self.sites.stored(state, batch, classes)
        share = self.sites.share(batch.weight, self.removal)
        totals = site_totals(stored.site, classes, m.t.mean, share) if self.placement.eliminates else None
        t, lacks = self.placement.site_marginals(m.t, r, totals)
        mean, var, residual = gather(torch.stack([*t, lacks]), classes).unbind()
        return BatchView(classes, Normal(mean, var), residual, stored, totals, share)

    def _moments(self, view: BatchView, cavity: Cavity, y: Tensor) -> Moments:
        """Ask the factor. If autograd records, the value is made linear in the factor's arguments."""
        f = Latents(cavity.t.mean, cavity.t.var + view.residual, view.residual)
        records = torch.is_grad_enabled()
        fixed = Latents(*(x.detach() for x in f)) if records else f
        with torch.no_grad():
            moments = (
                self.factor.average(fixed, y)
                if self.removal == 0
                else self.factor.moments(fixed, y, view.share.exponent)
            )
        if not records:
            return moments
        dm, dv, dr = moments.dm, moments.dv, moments.dr
        moved = (
            dm * (f.mean - fixed.mean) + dv * (f.var - fixed.var) + (dr - dv) * (f.residual - fixed.residual)
        )
        return moments._replace(value=moments.value + moved.sum(1))

    def _sum_sites(self, site: Site, classes: Tensor, a: Tensor, share: Share, r: Tensor) -> Sums:
        """Return what the rows' sites add to the sums."""
        fed = self.placement.feed(site_totals(site, classes, a, share), r)
        tau, nu = fed.tau.to(a.dtype)[:, None], fed.nu.to(a.dtype)[..., None]
        return Sums(times_transpose(a * tau, a).double(), torch.bmm(a, nu)[..., 0].double())

    def _counts(self, classes: Tensor, weight: Tensor, C: int) -> Tensor:
        """Return the weighted number of sites on each class [C]; only tied sites need it."""
        counts = torch.zeros(C, dtype=weight.dtype, device=weight.device)
        if not self.sites.tied:
            return counts
        return counts.scatter_add(0, classes.flatten(), weight[:, None].expand_as(classes).flatten())

    def _gradient(
        self,
        projection: Projection,
        q: Posterior,
        m: Marginals,
        r: Tensor,
        view: BatchView,
        cavity: Cavity,
        moments: Moments,
    ) -> Tensor:
        r"""Cotangents at fixed cavities in closed form; autograd carries them through the projection.        [METHOD 6]

            G_a = copies · Σ_sites [ ∂m μ\ + 2 ∂v S\a ] − 2 a G_r,   S\a = Σa/keep,   μ\ = μ + Σa p(τm − ν)/keep
            G_r = copies · Σ_sites ∂r,                            since r = k(x, x) + s − |a|²

        G_a overwrites Σa, which is not used again.
        """
        a = projection.a.detach()
        parts = site_cotangents(moments, view.t, cavity, view.stored.site, view.share)
        moved = Cotangents(*scatter(torch.stack(parts), view.classes, a).unbind())
        moved = self.placement.cotangents(moved, m.t, r, view.totals)
        along_mean, along_cov, G_r = (x.to(a.dtype)[:, None] for x in moved)
        G_a = m.cov_a().mul_(along_cov).addcmul_(q.mean.to(a.dtype)[:, :, None], along_mean)
        G_a.addcmul_(a, G_r, value=-2.0)
        pairs = [(projection.a, G_a), (projection.variance, G_r[:, 0])]
        gradient = pull_back(pairs, tuple(self.parameters.values()))
        return self._with_own(gradient, moments.own, view.share)

    def _with_own(self, gradient: Tensor, own: Tensor | None, share: Share) -> Tensor:
        """Add the derivatives in the factor's parameters, which are the last ones."""
        if own is not None:
            gradient[-own.shape[1] :] += times(share.copies, own).sum(0)
        return gradient

    def exact_gradient(self, state: State, batch: Any) -> Tensor:
        """Return the gradient of log Z_q at fixed (τ, ν), through a, r, P, h and the cavities; the whole table at once."""
        with torch.enable_grad():
            value, own, share = self.evaluate_fixed_sites(state, batch)
        return self._with_own(differentiate(value, tuple(self.parameters.values())), own, share)

    def evaluate_fixed_sites(self, state: State, batch: Batch) -> tuple[Tensor, Tensor | None, Share]:
        """Return log Z_q at the stored sites, the derivatives that autograd does not carry, and how rows enter."""
        projection = self.project(state, batch)
        a, r = projection.a, projection.r.double()
        share = self.sites.share(batch.weight, self.removal)
        stored = Site(*(x[batch.index].double() for x in state.sites[:2]))
        q = self.sites.gaussian(self._sum_sites(stored, self.factor.sites(batch.y), a, share, r))
        m = marginals(q, a)
        view = self._view(state, m, r, batch)
        cavity = remove(view.t, view.stored.site, share)
        moments = self._moments(view, cavity, batch.y)
        value = q.log_normaliser.sum() + log_site_normaliser(moments, cavity.t, view.stored.site, share).sum()
        value = self.placement.complete(value, view.totals, r)
        value = value + self.placement.mode_correction(self.factor, batch.y, m.t, r, view)
        return value, moments.own, share


def _sum(totals: Totals, reduce: Local) -> Totals:
    """Sum over the ranks; half of each symmetric matrix travels."""
    if reduce.world == 1:
        return reduce.sum(totals)
    halves = reduce.sum(totals._replace(P=pack_symmetric(totals.P)))
    return halves._replace(P=unpack_symmetric(halves.P, totals.P.shape[-1]))
