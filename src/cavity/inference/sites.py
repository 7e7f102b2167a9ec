"""The site update that all methods share, and the two ways of keeping sites: own and tied. [METHOD 4]

Own sites keep (τ, ν) of every row, O(NC); a row's cavity takes out what the sums hold of it. Tied sites (SEP) keep only the
sums, O(CM²); every row sees the same cavity. Both hand out a Gaussian and take back new sites.
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

    p: Tensor  # [B 1]
    exponent: Tensor | None  # [B], None for 1
    copies: Tensor  # [B 1]


def remove(t: Normal, site: Site, share: Share) -> Cavity:
    r"""v\ = v / (1 − p τ v)      m\ = (m − p ν v) / (1 − p τ v)        [METHOD 4]"""
    keep = 1 - share.p * site.tau * t.var
    usable = keep > LEAST_KEEP
    keep = keep.clamp_min(LEAST_KEEP)
    return Cavity(Normal((t.mean - share.p * site.nu * t.var) / keep, t.var / keep), keep, usable)


def refresh(cavity: Normal, moments: Moments, share: Share) -> Site:
    r"""The site that gives q the tilted moments, as the row's total.        [METHOD 4]

    d₂ = 2 ∂/∂v − d₁²      τ = −d₂ / (1 + v\ d₂)      ν = (d₁ − m\ d₂) / (1 + v\ d₂)
    """
    d1 = moments.dm
    d2 = 2 * moments.dv - d1 * d1
    scale = share.copies / (1 + cavity.var * d2)
    return Site(-d2 * scale, (d1 - cavity.mean * d2) * scale)


def log_site_normaliser(moments: Moments, t: Normal, site: Site, cavity: Cavity, share: Share) -> Tensor:
    r"""log s̃ of each row, [B].        [METHOD 5]

        copies · ( log Z + ½ Σ_sites [ log(v\/v) + m\²/v\ − m²/v ] )

    written without a division by v, which is 0 far from all inducing points:
    v\/v = 1/keep,   m\²/v\ − m²/v = p (τ m² − 2 m ν + p ν² v)/keep.
    """
    square = site.tau * t.mean.square() - 2 * t.mean * site.nu + share.p * site.nu.square() * t.var
    terms = 0.5 * share.p * square / cavity.keep - 0.5 * cavity.keep.log()
    return share.copies[:, 0] * (moments.value + terms.sum(1))


class Fresh(NamedTuple):
    """What a batch brings back: its old sites, its new ones, and what it adds to the sums."""

    held: Site
    site: Site
    usable: Tensor  # [B S] bool
    added: Site  # [B S]


class SiteRule(Protocol):
    """How sites are kept."""

    tied: bool

    def gaussian(self, sums: Sums) -> Posterior:
        """The Gaussian that a batch sees before its own sites are removed."""
        ...

    def held(self, state: State, batch: Batch, like: Tensor) -> Site:
        """What the sums hold of the batch's sites, [B S] as `like`."""
        ...

    def share(self, weight: Tensor, removal: float) -> Share:
        """How rows of these weights enter."""
        ...

    def added(self, held: Site, site: Site, usable: Tensor, damping: Tensor, full: bool) -> Site:
        """The sites to add to the sums."""
        ...

    def decay(self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool) -> Tensor:
        """What is kept of the old sums, [C] or []: `weight` and `counts` [C] are the batch's."""
        ...

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        """The part of log Z_q that comes from the sums."""
        ...


class Own:
    """A pair (τ, ν) for every site of every row: EP proper."""

    tied = False

    def __init__(self, total: Tensor, fractional: bool) -> None:
        self.total = total  # Σ weights
        self.fractional = fractional

    def gaussian(self, sums: Sums) -> Posterior:
        return posterior(sums)

    def held(self, state: State, batch: Batch, like: Tensor) -> Site:
        sites = state.sites
        decay = (state.clock - sites.clock[batch.index]).exp()[:, None]
        return Site(sites.tau[batch.index] * decay, sites.nu[batch.index] * decay)

    def share(self, weight: Tensor, removal: float) -> Share:
        """A row of weight ω is ω rows: one of them is taken out, or the whole of it where ω < 1.  [METHOD 4, Weights]"""
        p = removal * weight.reciprocal().clamp(max=1.0)
        exponent = weight.clamp(max=1.0) * removal if self.fractional or removal != 1.0 else None
        return Share(p[:, None], exponent, p.reciprocal()[:, None])

    def added(self, held: Site, site: Site, usable: Tensor, damping: Tensor, full: bool) -> Site:
        rho = damping * usable
        if full:
            return Site(held.tau + rho * (site.tau - held.tau), held.nu + rho * (site.nu - held.nu))
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
            return Sites(fresh.added.tau.to(kind), fresh.added.nu.to(kind), clock.expand_as(sites.clock))
        sites.tau[batch.index] = (decay * fresh.held.tau + fresh.added.tau).to(kind)
        sites.nu[batch.index] = (decay * fresh.held.nu + fresh.added.nu).to(kind)
        sites.clock[batch.index] = clock
        return sites


class Tied:
    """Only the sums: every factor of class c holds the share 1/n_c of them (SEP).

    Weights add: a row of weight ω contributes ω times. The unit that a cavity leaves out is one row, or the heaviest
    row where all are lighter, so that no more is ever removed than there is.
    """

    tied = True

    def __init__(self, counts: Tensor, unit: float) -> None:
        self.counts = counts  # [C], weighted number of factors that touch each class
        self.unit = unit

    def _cavity_sums(self, sums: Sums) -> Sums:
        left = 1 - self.unit / self.counts
        return Sums(left[:, None, None] * sums.P, left[:, None] * sums.h)

    def gaussian(self, sums: Sums) -> Posterior:
        return posterior(self._cavity_sums(sums))

    def held(self, state: State, batch: Batch, like: Tensor) -> Site:
        zero = torch.zeros_like(like)
        return Site(zero, zero)

    def share(self, weight: Tensor, removal: float) -> Share:
        one = torch.ones_like(weight)
        return Share(
            one[:, None], None if self.unit == 1.0 else one * self.unit, (weight / self.unit)[:, None]
        )

    def added(self, held: Site, site: Site, usable: Tensor, damping: Tensor, full: bool) -> Site:
        return Site(damping * site.tau, damping * site.nu)

    def decay(self, damping: Tensor, weight: Tensor, counts: Tensor, full: bool) -> Tensor:
        return 1 - damping * counts / self.counts

    def evidence(self, sums: Sums, q: Posterior) -> Tensor:
        r"""Σ_c [ g_c + n_c (g\_c − g_c) ],  n_c in units of what a cavity leaves out.        [METHOD 5]"""
        g = posterior(sums).log_normaliser
        return (g + self.counts / self.unit * (q.log_normaliser - g)).sum()

    def write(
        self, sites: Sites, batch: Batch, fresh: Fresh, decay: Tensor, clock: Tensor, full: bool
    ) -> Sites:
        return sites
