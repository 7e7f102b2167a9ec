"""The site update that all methods share, and two ways of keeping sites: own and tied. [METHOD 4]

Own sites keep (τ, ν) of every row, O(NC); a row's cavity takes out what the sums hold of it. Tied sites (SEP) keep only the
sums, O(CM²); every row sees the same cavity. Both hand out a Gaussian and take back sites; so do those of `variational.py`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from cavity.data import Batch
from cavity.factors import Moments
from cavity.inference.state import Sites, State
from cavity.posterior import Normal, Posterior, Sums, posterior

LEAST_KEEP = 1e-3  # of a marginal's precision must remain in the cavity, or the update is skipped


class Site(NamedTuple):
    """exp(−½ τ t² + ν t), of every site of a batch."""

    tau: Tensor  # [B S]
    nu: Tensor  # [B S]


class Cavity(NamedTuple):
    """Marginals with the share p of the row's own sites taken out."""

    t: Normal  # [B S]
    keep: Tensor  # [B S],  1 − p τ v
    usable: Tensor  # [B S] bool


class Share(NamedTuple):
    """How a weighted row enters: p of its sites' total is removed, φ^e is matched, the result counts `copies` times."""

    p: Tensor | float  # [B 1]; a plain number where no row has a weight
    exponent: Tensor | None  # [B], None for 1
    copies: Tensor | float  # [B 1]


def times(scale: Tensor | float, x: Tensor) -> Tensor:
    """scale · x, without an operation where the scale is the number one."""
    return x if isinstance(scale, float) and scale == 1.0 else scale * x


def one_copy(share: Share, x: Tensor) -> Tensor:
    """What one copy holds of a row's total."""
    return x if isinstance(share.copies, float) else x / share.copies


def remove(t: Normal, site: Site, share: Share) -> Cavity:
    r"""v\ = v / (1 − p τ v)      m\ = (m − p ν v) / (1 − p τ v)        [METHOD 4]"""
    tau, nu = times(share.p, site.tau), times(share.p, site.nu)
    keep = 1 - tau * t.var
    usable = keep > LEAST_KEEP
    keep = keep.clamp_min(LEAST_KEEP)
    return Cavity(Normal((t.mean - nu * t.var) / keep, t.var / keep), keep, usable)


def refresh(cavity: Normal, moments: Moments, share: Share) -> Site:
    r"""The site that gives q the tilted moments, as the row's total.        [METHOD 4]

    d₂ = 2 ∂/∂v − d₁²      τ = −d₂ / (1 + v\ d₂)      ν = (d₁ − m\ d₂) / (1 + v\ d₂)
    """
    d1 = moments.dm
    d2 = 2 * moments.dv - d1 * d1
    scale = times(share.copies, (1 + cavity.var * d2).reciprocal())
    return Site(-d2 * scale, (d1 - cavity.mean * d2) * scale)


def refresh_average(t: Normal, moments: Moments, share: Share) -> Site:
    r"""The site of a natural-gradient step on E_q log φ, nothing removed.        [METHOD 4, VI]

    τ = −2 ∂E/∂v      ν = ∂E/∂m + τ m
    """
    tau = times(share.copies, -2 * moments.dv)
    return Site(tau, times(share.copies, moments.dm) + tau * t.mean)


def log_site_normaliser(moments: Moments, cavity: Normal, site: Site, share: Share) -> Tensor:
    r"""log s̃ of each row, [B]: what the factor integrates to, less what its sites do.        [METHOD 5]

        copies · ( log Z − Σ_sites log ∫ exp(−½ τ₁ t² + ν₁ t) N(t; m\, v\) dt )        τ₁, ν₁: the site of one copy
        log ∫ = −½ log(1 + τ₁ v\) + ½ (ν₁² v\ + 2 ν₁ m\ − τ₁ m\²) / (1 + τ₁ v\)

    Equal to the form with ½ log(v\/v) + ½ m\²/v\ − ½ m²/v, but free of the division by v, which is 0 far from all inducing points.
    """
    tau, nu = one_copy(share, site.tau), one_copy(share, site.nu)
    grown = 1 + tau * cavity.var
    square = nu * (nu * cavity.var + 2 * cavity.mean) - tau * cavity.mean.square()
    rows = moments.value + 0.5 * (grown.log() - square / grown).sum(1)
    return times(share.copies, rows[:, None])[:, 0]


class StoredSites(NamedTuple):
    """What the sums hold of a batch's sites, and the stored rows as they were."""

    site: Site
    rows: Sites | None  # None for tied sites


class Fresh(NamedTuple):
    """What a batch brings back: its old sites, its new ones, and what it adds to the sums."""

    stored: StoredSites
    site: Site
    usable: Tensor  # [B S] bool
    added: Site  # [B S]

    def kept(self) -> Fresh:
        """Only what a full sweep stores."""
        return Fresh(StoredSites(self.added, None), self.added, self.usable, self.added)


class SiteRule(Protocol):
    """How sites are kept."""

    tied: bool

    def gaussian(self, sums: Sums) -> Posterior:
        """The Gaussian that a batch sees before its own sites are removed."""
        ...

    def stored(self, state: State, batch: Batch, like: Tensor) -> StoredSites:
        """What the sums hold of the batch's sites, [B S] in the shape of `like`."""
        ...

    def share(self, weight: Tensor, removal: float) -> Share:
        """How rows of these weights enter."""
        ...

    def added(self, stored: Site, site: Site, usable: Tensor, damping: Tensor, full: bool) -> Site:
        """The sites to add to the sums."""
        ...

    def decay(self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool) -> Tensor:
        """What is kept of the old sums, [C] or []: `weight` and `counts` [C] are the batch's."""
        ...

    def collect(self, sums: Sums, added: Sums, decay: Tensor) -> Sums:
        """The sums after a batch added its sites."""
        ...

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        """The part of log Z_q that comes from the sums."""
        ...

    def slope(self, state: State, q: Posterior, sums: Sums) -> Tensor | None:
        """The gradient of q's own parameters, where it has some: `sums` are those of all rows' new sites."""
        ...

    def place(self, theta: Tensor, sums: Sums) -> Sums:
        """The sums that belong to these parameters."""
        ...

    def adopt(self, theta: Tensor, sums: Sums) -> Tensor:
        """The parameters that belong to these sums, which another rule found."""
        ...


class Kept:
    """What most rules have in common: q is in the sums, and has no parameters of its own."""

    size = 0  # number of q's own parameters
    sweeps = True  # sweeping the sites at fixed parameters moves q

    def collect(self, sums: Sums, added: Sums, decay: Tensor) -> Sums:
        keep = decay.reshape(-1, 1)
        return Sums(torch.addcmul(added.P, keep[..., None], sums.P), torch.addcmul(added.h, keep, sums.h))

    def slope(self, state: State, q: Posterior, sums: Sums) -> Tensor | None:
        return None

    def place(self, theta: Tensor, sums: Sums) -> Sums:
        return sums

    def adopt(self, theta: Tensor, sums: Sums) -> Tensor:
        return theta


class Own(Kept):
    """A pair (τ, ν) for every site of every row: EP proper."""

    tied = False

    def __init__(
        self, total: Tensor, weighted: bool, fractional: bool, tempers: bool = True, on_f: bool = False
    ) -> None:
        self.total = total  # Σ weights
        self.weighted = weighted  # some weight is not 1
        self.fractional = fractional  # some weight is below 1
        self.tempers = tempers  # the factor takes exponents
        self.on_f = on_f  # the seat of a light row is that of a whole one

    def gaussian(self, sums: Sums) -> Posterior:
        return posterior(sums)

    def stored(self, state: State, batch: Batch, like: Tensor) -> StoredSites:
        rows = Sites(*(x[batch.index] for x in state.sites))
        decay = (state.clock - rows.clock).exp()[:, None]
        return StoredSites(Site(rows.tau * decay, rows.nu * decay), rows)

    def share(self, weight: Tensor, removal: float) -> Share:
        """A row of weight ω is ω rows: one of them is taken out, or the whole of it where ω < 1.  [METHOD 4, Weights]

        ω < 1 matches φ^ω; a factor that has no powers is matched whole, and its site counts ω times.
        """
        if not self.weighted and removal == 1.0:
            return Share(1.0, None, 1.0)
        if self.on_f:
            return Share(weight.reciprocal()[:, None], None, weight[:, None])
        if not self.tempers:
            return Share(weight.reciprocal().clamp(max=1.0)[:, None], None, weight[:, None])
        p = removal * weight.reciprocal().clamp(max=1.0)
        exponent = weight.clamp(max=1.0) * removal if self.fractional or removal != 1.0 else None
        return Share(p[:, None], exponent, p.reciprocal()[:, None])

    def added(self, stored: Site, site: Site, usable: Tensor, damping: Tensor, full: bool) -> Site:
        rho = damping * usable
        if full:
            return Site(stored.tau + rho * (site.tau - stored.tau), stored.nu + rho * (site.nu - stored.nu))
        return Site(rho * site.tau, rho * site.nu)

    def decay(self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool) -> Tensor:
        return torch.zeros_like(damping) if full else 1 - damping * weight / self.total

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        return q.log_normaliser.sum()

    def write(
        self, sites: Sites, batch: Batch, fresh: Fresh, decay: Tensor, clock: Tensor, full: bool
    ) -> Sites:
        """Store what the sums now hold of the batch's sites."""
        kind = sites.tau.dtype
        if full:
            return Sites(
                fresh.added.tau.to(kind), fresh.added.nu.to(kind), clock.expand_as(sites.clock).clone()
            )
        sites.tau[batch.index] = (decay * fresh.stored.site.tau + fresh.added.tau).to(kind)
        sites.nu[batch.index] = (decay * fresh.stored.site.nu + fresh.added.nu).to(kind)
        sites.clock[batch.index] = clock
        return sites


class Tied(Kept):
    """Only the sums: every factor of class c holds the share 1/n_c of them (SEP).

    Weights add: a row of weight ω contributes ω times. The unit that a cavity leaves out is one row, or the heaviest
    row where all are lighter, so that no more is ever removed than there is.
    """

    tied = True

    def __init__(
        self, counts: Tensor, weighted: bool, unit: float, tempers: bool = True, grows: bool = False
    ) -> None:
        self.counts = counts  # [C], weighted number of factors that touch each class
        self.weighted = weighted  # some weight is not 1
        self.unit = unit
        self.tempers = tempers  # the factor takes exponents
        self.grows = grows  # a batch's rows are new, and already in the counts: nothing makes room for them

    def _cavity_sums(self, sums: Sums) -> Sums:
        left = 1 - self.unit / self.counts
        return Sums(left[:, None, None] * sums.P, left[:, None] * sums.h)

    def gaussian(self, sums: Sums) -> Posterior:
        """The cavity, and beside it the normaliser of q itself: one batch of factors."""
        C = len(sums.h)
        both = posterior(Sums(*(torch.cat(pair) for pair in zip(self._cavity_sums(sums), sums, strict=True))))
        return both.part(C)._replace(q_log_normaliser=both.log_normaliser[C:])

    def stored(self, state: State, batch: Batch, like: Tensor) -> StoredSites:
        zero = torch.zeros_like(like, dtype=torch.float64)
        return StoredSites(Site(zero, zero), None)

    def share(self, weight: Tensor, removal: float) -> Share:
        one = torch.ones_like(weight)
        if self.unit == 1.0 or not self.tempers:
            return Share(one[:, None], None, weight[:, None])
        return Share(one[:, None], one * self.unit, (weight / self.unit)[:, None])

    def added(self, stored: Site, site: Site, usable: Tensor, damping: Tensor, full: bool) -> Site:
        return Site(damping * site.tau, damping * site.nu)

    def decay(self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool) -> Tensor:
        return torch.ones_like(self.counts) if self.grows else 1 - damping * counts / self.counts

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        r"""Σ_c [ g_c + n_c (g\_c − g_c) ],  n_c in units of what a cavity leaves out.        [METHOD 5]"""
        g = q.q_log_normaliser
        assert g is not None
        return (g + self.counts / self.unit * (q.log_normaliser - g)).sum()

    def write(
        self, sites: Sites, batch: Batch, fresh: Fresh, decay: Tensor, clock: Tensor, full: bool
    ) -> Sites:
        return sites
