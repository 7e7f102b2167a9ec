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

    p: Tensor | float  # [B 1]; a plain number where no row has a weight
    exponent: Tensor | None  # [B], None for 1
    copies: Tensor | float  # [B 1]


def times(scale: Tensor | float, x: Tensor) -> Tensor:
    """scale · x, without an operation where the scale is the number one."""
    return x if isinstance(scale, float) and scale == 1.0 else scale * x


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


def log_site_normaliser(moments: Moments, cavity: Normal, site: Site, share: Share) -> Tensor:
    r"""log s̃ of each row, [B]: what the factor integrates to, less what its sites do.        [METHOD 5]

        copies · ( log Z − Σ_sites log ∫ exp(−½ pτ t² + pν t) N(t; m\, v\) dt )
        log ∫ = −½ log(1 + pτ v\) + ½ (p²ν² v\ + 2 pν m\ − pτ m\²) / (1 + pτ v\)

    Equal to the form with ½ log(v\/v) + ½ m\²/v\ − ½ m²/v, but free of the division by v, which is 0 far from all inducing points.
    """
    tau, nu = times(share.p, site.tau), times(share.p, site.nu)
    grown = 1 + tau * cavity.var
    square = nu * (nu * cavity.var + 2 * cavity.mean) - tau * cavity.mean.square()
    rows = moments.value + 0.5 * (grown.log() - square / grown).sum(1)
    return times(share.copies, rows[:, None])[:, 0]


class Held(NamedTuple):
    """What the sums hold of a batch's sites, and the stored rows as they were."""

    site: Site
    rows: Sites | None  # None for tied sites


class Fresh(NamedTuple):
    """What a batch brings back: its old sites, its new ones, and what it adds to the sums."""

    held: Held
    site: Site
    usable: Tensor  # [B S] bool
    added: Site  # [B S]


class SiteRule(Protocol):
    """How sites are kept."""

    tied: bool

    def gaussian(self, sums: Sums) -> Posterior:
        """The Gaussian that a batch sees before its own sites are removed."""
        ...

    def held(self, state: State, batch: Batch, like: Tensor) -> Held:
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

    def __init__(self, total: Tensor, weighted: bool, fractional: bool) -> None:
        self.total = total  # Σ weights
        self.weighted = weighted  # some weight is not 1
        self.fractional = fractional  # some weight is below 1

    def gaussian(self, sums: Sums) -> Posterior:
        return posterior(sums)

    def held(self, state: State, batch: Batch, like: Tensor) -> Held:
        rows = Sites(*(x[batch.index] for x in state.sites))
        decay = (state.clock - rows.clock).exp()[:, None]
        return Held(Site(rows.tau * decay, rows.nu * decay), rows)

    def share(self, weight: Tensor, removal: float) -> Share:
        """A row of weight ω is ω rows: one of them is taken out, or the whole of it where ω < 1.  [METHOD 4, Weights]"""
        if not self.weighted and removal == 1.0:
            return Share(1.0, None, 1.0)
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
            return Sites(
                fresh.added.tau.to(kind), fresh.added.nu.to(kind), clock.expand_as(sites.clock).clone()
            )
        sites.tau[batch.index] = (decay * fresh.held.site.tau + fresh.added.tau).to(kind)
        sites.nu[batch.index] = (decay * fresh.held.site.nu + fresh.added.nu).to(kind)
        sites.clock[batch.index] = clock
        return sites


class Tied:
    """Only the sums: every factor of class c holds the share 1/n_c of them (SEP).

    Weights add: a row of weight ω contributes ω times. The unit that a cavity leaves out is one row, or the heaviest
    row where all are lighter, so that no more is ever removed than there is.
    """

    tied = True

    def __init__(self, counts: Tensor, weighted: bool, unit: float) -> None:
        self.counts = counts  # [C], weighted number of factors that touch each class
        self.weighted = weighted  # some weight is not 1
        self.unit = unit

    def _cavity_sums(self, sums: Sums) -> Sums:
        left = 1 - self.unit / self.counts
        return Sums(left[:, None, None] * sums.P, left[:, None] * sums.h)

    def gaussian(self, sums: Sums) -> Posterior:
        return posterior(self._cavity_sums(sums))

    def held(self, state: State, batch: Batch, like: Tensor) -> Held:
        zero = torch.zeros_like(like)
        return Held(Site(zero, zero), None)

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
