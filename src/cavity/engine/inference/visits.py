"""Visit rows: project, form cavities, ask the factor, collect sites and cotangents.

The methods differ in the factor, in how much of a site a cavity removes, in how sites
are stored and where they sit; nothing here knows their names. Data flow: X → (a, r) →
marginals → cavity → moments → sites, cotangents → sums, gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from cavity.common.linalg import times_transpose
from cavity.engine.batches.in_memory import Batch
from cavity.engine.inference.batch_sites import (
    BatchView,
    differentiate,
    gather,
    pull_back,
    scatter,
    site_totals,
)
from cavity.engine.inference.placement import Cotangents, OnT, Placement
from cavity.engine.inference.posterior import (
    Marginals,
    Normal,
    Posterior,
    Sums,
    marginals,
)
from cavity.engine.inference.sites import (
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
from cavity.engine.inference.state import State, Totals
from cavity.engine.kernels.prior import Prior, Projection
from cavity.engine.likelihoods import Latents, Likelihood, Moments


class Visit(NamedTuple):
    """What a step finds on a piece of its rows."""

    totals: Totals
    site: Site  # [B S], the new sites
    update: SiteUpdate
    # computes what the rows of a visit that learns add to the gradient, [P]
    pull: Callable[[], Tensor]


class Seen(NamedTuple):
    """The rows of a piece as q and its sites see them."""

    projection: Projection
    q: Posterior
    m: Marginals
    r: Tensor  # [C B], residual variance
    view: BatchView


class CachedProjection(NamedTuple):
    """The projection of a table that is a single piece, at fixed hyper-parameters."""

    # the very tensor of the state: any other tensor needs a new projection
    jitter: Tensor
    projection: Projection
    r: Tensor  # [C N], the residual variances
    pull: Tensor  # [P], the gradient of the hyper-prior


@dataclass(frozen=True, kw_only=True)
class Visits:
    """The maths of rows, without the rows and without the state of the run."""

    # a stored site is that of all copies of a weighted row
    sites_are_totals: ClassVar[bool] = True

    prior: Prior  # a workspace: each step loads its parameters from the state
    # the learnt ones by name, in the order of θ: see `name_parameters`
    parameters: dict[str, nn.Parameter]
    factor: Likelihood
    sites: SiteStore
    # share of one copy's site that a cavity removes: 1 EP, p power EP, 0 variational
    removal: float = 1.0
    placement: Placement = field(default_factory=OnT)
    cached: CachedProjection | None = None

    def load(self, theta: Tensor, copy: bool = False) -> None:
        """Put the state's hyper-parameters into the workspace, as views of θ or copies.

        Nothing else writes there.
        """
        if self.parameters:
            vector_to_parameters(theta, self.parameters.values())
        if copy:
            for parameter in self.parameters.values():
                parameter.data = parameter.data.clone()

    def project(self, state: State, batch: Batch) -> Projection:
        """Project the rows onto the inducing points."""
        cached = self._find_cached(state)
        if cached is None:
            return self.prior.project(batch.X, state.jitter)

        return cached.projection

    def _residual(self, state: State, projection: Projection) -> Tensor:
        cached = self._find_cached(state)
        if cached is None:
            return projection.r.double()

        return cached.r

    def _find_cached(self, state: State) -> CachedProjection | None:
        """Return what `freeze` computed, if it belongs to this state's jitter."""
        if self.cached is not None and self.cached.jitter is state.jitter:
            return self.cached

        return None

    def visit_rows(
        self, state: State, q: Posterior, batch: Batch, learn: bool, full: bool
    ) -> Visit:
        """Return the rows' new sites, and what they add to sums and objective.

        `learn`: also prepare the gradient.
        """
        with torch.set_grad_enabled(learn):
            projection = self.project(state, batch)
        with torch.no_grad():
            a = projection.a.detach()
            m = marginals(q, a)
            r = self._residual(state, projection)
            view = self._view(state, m, r, batch)
            stored = view.stored.site
            share = view.share
            cavity = remove(view.t, stored, share)
            moments = self._moments(view, cavity, batch.y)
            find_site = refresh_average if self.removal == 0 else refresh
            site = find_site(cavity.t, moments, share)
            added = self.sites.added(stored, site, cavity.usable, state.damping, full)
            sums = self._sum_sites(added, view.classes, a, share, r)

            # a running average holds only a share of a row's sites: it is judged by
            # the sites just found
            judged = site
            if full or self.sites.tied:
                judged = stored

            value = log_site_normaliser(moments, cavity.t, judged, share).sum()
            counts = self._counts(view.classes, batch.weight, a.shape[0])
            value = self.placement.complete(value, view.totals, r)
            skipped = (~cavity.usable).sum()

        totals = Totals(
            *sums, value, batch.weight.sum(), counts, skipped, projection.failed
        )
        seen = Seen(projection, q, m, r, view)
        pull = partial(self._gradient, seen, cavity, moments)
        update = SiteUpdate(added, None if full else view.stored)
        return Visit(totals, site, update, pull)

    def _view(self, state: State, m: Marginals, r: Tensor, batch: Batch) -> BatchView:
        """Read the marginals and the stored sites at each site of the batch."""
        classes = self.factor.sites(batch.y)
        stored = self.sites.stored(state, batch, classes)
        share = self.sites.share(batch.weight, self.removal)
        totals = None
        if self.placement.eliminates:
            totals = site_totals(stored.site, classes, m.t.mean, share)
        t, lacks = self.placement.site_marginals(m.t, r, totals)
        mean, var, residual = gather(torch.stack([*t, lacks]), classes).unbind()
        return BatchView(classes, Normal(mean, var), residual, stored, totals, share)

    def _moments(self, view: BatchView, cavity: Cavity, y: Tensor) -> Moments:
        """Ask the factor.

        If autograd records, the value is made linear in the factor's arguments.
        """
        f = Latents(cavity.t.mean, cavity.t.var + view.residual, view.residual)
        fixed = Latents(*(x.detach() for x in f))
        with torch.no_grad():
            if self.removal == 0:
                moments = self.factor.average(fixed, y)
            else:
                moments = self.factor.moments(fixed, y, view.share.exponent)

        if not torch.is_grad_enabled():
            return moments

        slopes = moments.dm, moments.dv, moments.dr - moments.dv
        terms = [s * (x - at) for s, x, at in zip(slopes, f, fixed, strict=True)]
        moved = torch.stack(terms).sum((0, 2))
        return moments._replace(value=moments.value + moved)

    def _sum_sites(
        self, site: Site, classes: Tensor, a: Tensor, share: Share, r: Tensor
    ) -> Sums:
        """Return what the rows' sites add to the sums."""
        fed = self.placement.feed(site_totals(site, classes, a, share), r)
        tau = fed.tau.to(a.dtype)[:, None]
        nu = fed.nu.to(a.dtype)[..., None]
        P = times_transpose(a * tau, a)
        h = torch.bmm(a, nu)[..., 0]
        return Sums(P.double(), h.double())

    def _counts(self, classes: Tensor, weight: Tensor, C: int) -> Tensor:
        """Return the weighted number of sites per class [C]; zeros for own sites."""
        counts = torch.zeros(C, dtype=weight.dtype, device=weight.device)
        if not self.sites.tied:
            return counts

        each = weight[:, None].expand_as(classes)
        return counts.scatter_add(0, classes.flatten(), each.flatten())

    @torch.no_grad()
    def _gradient(self, seen: Seen, cavity: Cavity, moments: Moments) -> Tensor:
        r"""Return the gradient of log Z_q at fixed cavities, [P].        [METHOD 6]

            G_a = copies · Σ_sites [ ∂m μ\ + 2 ∂v S\a ] − 2 a G_r
            G_r = copies · Σ_sites ∂r

        with S\a = Σa/keep and μ\ = μ + Σa p(τm − ν)/keep. The term −2 a G_r comes from
        r = k(x, x) + s − |a|². Autograd carries these cotangents through the projection.
        G_a overwrites Σa, which is not used again.
        """
        projection, q, m, r, view = seen
        a = projection.a.detach()
        parts = site_cotangents(moments, view.t, cavity, view.stored.site, view.share)
        moved = Cotangents(*scatter(torch.stack(parts), view.classes, a).unbind())
        moved = self.placement.cotangents(moved, m.t, r, view.totals)
        along_mean, along_cov, G_r = (x.to(a.dtype)[:, None] for x in moved)
        mu = q.mean.to(a.dtype)[:, :, None]
        G_a = m.cov_a().mul_(along_cov).addcmul_(mu, along_mean)
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
        """Return the gradient of log Z_q at fixed (τ, ν), for the whole table at once.

        It goes through a, r, P, h and the cavities.
        """
        with torch.enable_grad():
            value, own, share = self.evaluate_fixed_sites(state, batch)

        gradient = differentiate(value, tuple(self.parameters.values()))
        return self._with_own(gradient, own, share)

    def evaluate_fixed_sites(
        self, state: State, batch: Batch
    ) -> tuple[Tensor, Tensor | None, Share]:
        """Return log Z_q at the stored sites.

        With it come the derivatives that autograd does not carry, and how rows enter.
        """
        projection = self.project(state, batch)
        a = projection.a
        r = projection.r.double()
        share = self.sites.share(batch.weight, self.removal)
        stored = Site(*(x[batch.index].double() for x in state.sites[:2]))
        classes = self.factor.sites(batch.y)
        q = self.sites.gaussian(self._sum_sites(stored, classes, a, share, r))
        m = marginals(q, a)
        view = self._view(state, m, r, batch)
        cavity = remove(view.t, view.stored.site, share)
        moments = self._moments(view, cavity, batch.y)
        log_sites = log_site_normaliser(moments, cavity.t, view.stored.site, share)
        value = q.log_normaliser.sum() + log_sites.sum()
        value = self.placement.complete(value, view.totals, r)
        correction = self.placement.mode_correction(self.factor, batch.y, m.t, r, view)
        return value + correction, moments.own, share
