"""The site update that all methods share, and two stores: own and tied. [METHOD 4]

Own sites keep (τ, ν) of every row, O(NC); a row's cavity removes what the sums hold of
it. Tied sites (SEP) keep only the sums, O(CM²); every row sees the same cavity. Both
give out a Gaussian and take back sites; so do the stores in `variational.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from cavity.common.linalg import Factor, cholesky
from cavity.engine.batches.in_memory import Batch
from cavity.engine.inference.posterior import Normal, Posterior, Sums, posterior
from cavity.engine.inference.state import Sites, State
from cavity.engine.likelihoods import Moments

# share of a marginal's precision that must remain in the cavity; otherwise the update
# is skipped
LEAST_KEEP = 1e-3


class Site(NamedTuple):
    """exp(−½ τ t² + ν t) for every site of a batch."""

    tau: Tensor  # [B S]
    nu: Tensor  # [B S]


class Cavity(NamedTuple):
    """Marginals with the share p of the row's own sites removed."""

    t: Normal  # [B S]
    keep: Tensor  # [B S],  1 − p τ v
    usable: Tensor  # [B S] bool


class Share(NamedTuple):
    """How a weighted row enters.

    A cavity removes the share p of its sites' total, moments match φ^e, and the result
    counts `copies` times.
    """

    p: Tensor | float  # [B 1]; a float if no row has a weight
    exponent: Tensor | None  # [B], None for 1
    copies: Tensor | float  # [B 1]


def times(scale: Tensor | float, x: Tensor) -> Tensor:
    """Return scale · x; skip the product if the scale is the float 1."""
    if isinstance(scale, float) and scale == 1.0:
        return x

    return scale * x


def one_copy(share: Share, x: Tensor) -> Tensor:
    """Return the part of a row's total that one copy holds."""
    if isinstance(share.copies, float):
        return x

    return x / share.copies


def remove(t: Normal, site: Site, share: Share) -> Cavity:
    r"""v\ = v / (1 − p τ v)      m\ = (m − p ν v) / (1 − p τ v)        [METHOD 4]"""
    tau = times(share.p, site.tau)
    nu = times(share.p, site.nu)
    keep = 1 - tau * t.var
    usable = keep > LEAST_KEEP
    keep = keep.clamp_min(LEAST_KEEP)
    return Cavity(Normal((t.mean - nu * t.var) / keep, t.var / keep), keep, usable)


def refresh(cavity: Normal, moments: Moments, share: Share) -> Site:
    r"""Return the row's total site that gives q the tilted moments. [METHOD 4]

    d₂ = 2 ∂/∂v − d₁²      τ = −d₂ / (1 + v\ d₂)      ν = (d₁ − m\ d₂) / (1 + v\ d₂)
    """
    d1 = moments.dm
    d2 = 2 * moments.dv - d1 * d1
    scale = times(share.copies, (1 + cavity.var * d2).reciprocal())
    return Site(-d2 * scale, (d1 - cavity.mean * d2) * scale)


def refresh_average(t: Normal, moments: Moments, share: Share) -> Site:
    r"""Return the site of a natural-gradient step on E_q log φ. [METHOD 4, VI]

    Nothing is removed from q.

    τ = −2 ∂E/∂v      ν = ∂E/∂m + τ m
    """
    tau = times(share.copies, -2 * moments.dv)
    return Site(tau, times(share.copies, moments.dm) + tau * t.mean)


def log_site_normaliser(
    moments: Moments, cavity: Normal, site: Site, share: Share
) -> Tensor:
    r"""Return log s̃ of each row, [B]: log ∫ of the factor minus log ∫ of its sites.

        log s̃ = copies · ( log Z − Σ_sites log ∫ )        [METHOD 5]
        log ∫ = log ∫ exp(−½ τ₁ t² + ν₁ t) N(t; m\, v\) dt
              = −½ log(1 + τ₁ v\) + ½ (ν₁² v\ + 2 ν₁ m\ − τ₁ m\²) / (1 + τ₁ v\)

    τ₁ and ν₁ are the site of one copy. This equals the form with
    ½ log(v\/v) + ½ m\²/v\ − ½ m²/v, but does not divide by v, which is 0 far from all
    inducing points.
    """
    one = Site(one_copy(share, site.tau), one_copy(share, site.nu))
    rows = moments.value - log_site_integral(cavity, one).sum(1)
    if isinstance(share.copies, float):
        return rows

    return share.copies[:, 0] * rows


def log_site_integral(cavity: Normal, site: Site) -> Tensor:
    """Return log ∫ of every site, [B S]."""
    tau, nu = site
    grown = 1 + tau * cavity.var
    linear = nu * (nu * cavity.var + 2 * cavity.mean)
    square = linear - tau * (cavity.mean * cavity.mean)
    return 0.5 * (square / grown - grown.log())


def site_cotangents(
    moments: Moments, t: Normal, cavity: Cavity, site: Site, share: Share
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the cotangents of a and r at fixed cavities, each [B S]. [METHOD 6]

    The cotangent of a has a coefficient of μ and one of Σa:

    ∂m        (∂m p(τm − ν) + 2 ∂v) / keep        ∂r
    """
    shift = times(share.p, site.tau * t.mean - site.nu)
    parts = moments.dm, (moments.dm * shift + 2 * moments.dv) / cavity.keep, moments.dr
    return tuple(times(share.copies, x) for x in parts)  # type: ignore[return-value]


class StoredSites(NamedTuple):
    """What the sums hold of a batch's sites, and their rows before they are written."""

    site: Site
    rows: Sites | None  # None for tied sites


class SiteUpdate(NamedTuple):
    """What a batch adds to the sums, and what they held of its sites before.

    A full sweep needs only the first.
    """

    added: Site  # [B S]
    stored: StoredSites | None


class SiteStore(ABC):
    """How sites are kept between visits.

    The engine asks a store for the Gaussian that a batch sees and for the batch's own
    sites, and hands new sites back. The defaults suit stores that keep only the sums.
    """

    tied: ClassVar[bool] = True  # whether rows have no sites of their own
    weighted = False  # whether the weight of some row is not 1
    size: int = 0  # number of parameters that q has of its own, at the end of θ

    @property
    def sweeps(self) -> bool:
        """Whether sweeps at fixed parameters move q."""
        return self.size == 0

    def factorise(self, sums: Sums) -> Factor:
        """Factorise what `gaussian` needs."""
        return cholesky(sums.P, 1.0)

    def gaussian(self, sums: Sums, factor: Factor | None = None) -> Posterior:
        """Return the Gaussian that a batch sees before its own sites are removed.

        `factor`: what `factorise` returned, if it is known.
        """
        return posterior(sums, factor)

    def stored(self, state: State, batch: Batch, like: Tensor) -> StoredSites:
        """Return what the sums hold of the batch's sites, [B S] in the shape of `like`."""
        zero = torch.zeros_like(like, dtype=torch.float64)
        return StoredSites(Site(zero, zero), None)

    @abstractmethod
    def share(self, weight: Tensor, removal: float) -> Share:
        """Return how rows of these weights enter."""

    def added(
        self, stored: Site, site: Site, usable: Tensor, damping: Tensor, full: bool
    ) -> Site:
        """Return the sites to add to the sums."""
        return Site(damping * site.tau, damping * site.nu)

    @abstractmethod
    def decay(
        self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool
    ) -> Tensor:
        """Return the share of the old sums to keep, [C] or [].

        `weight` and `counts` [C] belong to the batch.
        """

    @abstractmethod
    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        """Return the part of log Z_q that comes from the sums."""

    def write(
        self,
        sites: Sites,
        batch: Any,
        update: SiteUpdate,
        decay: Tensor,
        clock: Tensor,
        full: bool,
    ) -> Sites:
        """Store what the sums now hold of the batch's sites."""
        return sites

    def collect(self, sums: Sums, added: Sums, decay: Tensor) -> Sums:
        """Return the sums after a batch added its sites."""
        keep = decay.reshape(-1, 1)
        return Sums(
            torch.addcmul(added.P, keep[..., None], sums.P),
            torch.addcmul(added.h, keep, sums.h),
        )

    def slope(self, theta: Tensor, added: Sums, scale: Tensor) -> Tensor:
        """Return the gradient of the bound in q's own parameters; all rows' sites have
        the sums scale · added.
        """
        return theta[:0]

    def place(self, state: State) -> State:
        """Return the state with the q of its own parameters, if q has any."""
        return state

    def adopt(self, state: State) -> State:
        """Return the state with q's own parameters, if any, set to those of its sums."""
        return state


@dataclass(frozen=True, eq=False, kw_only=True)
class Own(SiteStore):
    """One pair (τ, ν) for every site of every row: standard EP."""

    tied: ClassVar[bool] = False

    total: Tensor  # Σ weights
    weighted: bool = False
    fractional: bool  # some weight is below 1
    tempers: bool  # the factor takes exponents
    on_f: bool  # sites sit on f, where a row of weight below 1 is placed as a whole row

    def stored(self, state: State, batch: Batch, like: Tensor) -> StoredSites:
        rows = Sites(*(x.index_select(0, batch.index) for x in state.sites))
        decay = (state.clock - rows.clock).exp()[:, None]
        return StoredSites(Site(rows.tau * decay, rows.nu * decay), rows)

    def share(self, weight: Tensor, removal: float) -> Share:
        """Return how rows enter: weight ω counts as ω rows. [METHOD 4, Weights]

        A cavity removes one of them, or all of it if ω < 1. ω < 1 matches φ^ω. A factor
        without powers is matched whole, and its site counts ω times.
        """
        if not self.weighted and removal == 1.0:
            return Share(1.0, None, 1.0)
        if self.on_f:
            return Share(weight.reciprocal()[:, None], None, weight[:, None])

        one_row = weight.reciprocal().clamp(max=1.0)
        if not self.tempers:
            return Share(one_row[:, None], None, weight[:, None])

        p = removal * one_row
        exponent = None
        if self.fractional or removal != 1.0:
            exponent = weight.clamp(max=1.0) * removal
        return Share(p[:, None], exponent, p.reciprocal()[:, None])

    def added(
        self, stored: Site, site: Site, usable: Tensor, damping: Tensor, full: bool
    ) -> Site:
        rho = damping * usable
        if not full:
            return Site(rho * site.tau, rho * site.nu)

        return Site(
            stored.tau + rho * (site.tau - stored.tau),
            stored.nu + rho * (site.nu - stored.nu),
        )

    def decay(
        self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool
    ) -> Tensor:
        if full:
            return torch.zeros_like(damping)

        return (1 - damping * weight / self.total).clamp_min(0)

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        return q.log_normaliser.sum()

    def write(
        self,
        sites: Sites,
        batch: Any,
        update: SiteUpdate,
        decay: Tensor,
        clock: Tensor,
        full: bool,
    ) -> Sites:
        kind = sites.tau.dtype
        if full:
            return Sites(
                update.added.tau.to(kind),
                update.added.nu.to(kind),
                clock.expand_as(sites.clock).clone(),
            )

        assert update.stored is not None
        old = update.stored.site
        rows = Sites(
            decay * old.tau + update.added.tau,
            decay * old.nu + update.added.nu,
            clock.expand_as(batch.index),
        )
        for table, values in zip(sites, rows, strict=True):
            table.index_copy_(0, batch.index, values.to(table.dtype))

        return sites


@dataclass(frozen=True, eq=False, kw_only=True)
class Tied(SiteStore):
    """Only the sums are kept; each factor of class c holds 1/n_c of them (SEP).

    Weights add: a row of weight ω contributes ω times. A cavity removes one unit: one
    row, or the heaviest row if all rows weigh less than 1. So it never removes more
    than there is.
    """

    counts: Tensor  # [C], weighted number of factors that touch each class
    weighted: bool = False
    unit: float
    tempers: bool = True  # the factor takes exponents
    # every batch brings new rows, already in the counts: the old sums do not decay
    grows: bool = False

    def factorise(self, sums: Sums) -> Factor:
        left = 1 - self.unit / self.counts
        return cholesky(torch.cat([left[:, None, None] * sums.P, sums.P]), 1.0)

    def gaussian(self, sums: Sums, factor: Factor | None = None) -> Posterior:
        """Return the cavity together with the log-normaliser of q itself.

        Both are factorised in one batch.
        """
        C = len(sums.h)
        left = 1 - self.unit / self.counts
        h = torch.cat([left[:, None] * sums.h, sums.h])
        both = posterior(Sums(sums.P, h), factor or self.factorise(sums))
        return both.part(C)._replace(q_log_normaliser=both.log_normaliser[C:])

    def share(self, weight: Tensor, removal: float) -> Share:
        one = torch.ones_like(weight)
        if self.unit == 1.0 or not self.tempers:
            return Share(one[:, None], None, weight[:, None])

        return Share(one[:, None], one * self.unit, (weight / self.unit)[:, None])

    def decay(
        self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool
    ) -> Tensor:
        if self.grows:
            return torch.ones_like(self.counts)

        return (1 - damping * counts / self.counts).clamp_min(0)

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        r"""Return Σ_c [ g_c + n_c (g\_c − g_c) ]. [METHOD 5]

        n_c is in units of what a cavity removes.
        """
        g = q.q_log_normaliser
        assert g is not None
        return (g + self.counts / self.unit * (q.log_normaliser - g)).sum()
