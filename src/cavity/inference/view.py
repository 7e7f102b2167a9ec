"""A batch as its factors see it, and the way between tables of classes [C B] and of sites [B S]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from cavity.factors import Moments
from cavity.inference.placement import SiteTotals
from cavity.inference.sites import Cavity, Fresh, Share, Site, StoredSites, log_site_normaliser
from cavity.inference.state import Sites
from cavity.posterior import Normal


class View(NamedTuple):
    """A batch as its factors see it."""

    classes: Tensor  # [B S]
    t: Normal  # [B S], marginals of q
    stored: StoredSites
    totals: SiteTotals | None  # of the stored sites, where the placement asks for them
    share: Share
    cavity: Cavity
    moments: Moments

    def log_normaliser(self, site: Site) -> Tensor:
        """log s̃ of each row, [B]."""
        return log_site_normaliser(self.moments, self.cavity.t, site, self.share)


def gather(x: Tensor, classes: Tensor) -> Tensor:
    """K tables [K C B] at the sites' classes, [K B S]."""
    return x.mT.gather(2, classes.expand(len(x), -1, -1))


def scatter(x: Tensor, classes: Tensor, like: Tensor) -> Tensor:
    """Sums over the sites of each class of K tables, [K B S] → [K C B]."""
    zeros = torch.zeros(len(x), len(classes), len(like), dtype=x.dtype, device=x.device)
    return zeros.scatter_add(2, classes.expand(len(x), -1, -1), x).mT.contiguous()


def site_totals(site: Site, classes: Tensor, like: Tensor, share: Share) -> SiteTotals:
    """Sums of the rows' sites on each class."""
    tau, nu = scatter(torch.stack(site), classes, like)
    return SiteTotals(tau, nu, share.copies if isinstance(share.copies, float) else share.copies[:, 0])


def flatten(grads: tuple[Tensor | None, ...], parameters: tuple[nn.Parameter, ...]) -> Tensor:
    parts = [torch.zeros_like(p) if g is None else g for g, p in zip(grads, parameters, strict=True)]
    return torch.cat([g.flatten() for g in parts])


def join(parts: list[Fresh]) -> Fresh:
    """The pieces of a batch in one."""
    if len(parts) == 1:
        return parts[0]
    usable, added = torch.cat([p.usable for p in parts]), _cat([p.added for p in parts])
    if parts[0].site is parts[0].added:  # a full sweep keeps nothing else
        return Fresh(StoredSites(added, None), added, usable, added)
    old = [p.stored.rows for p in parts if p.stored.rows is not None]
    rows = Sites(*(torch.cat(column) for column in zip(*old, strict=True))) if old else None
    stored = StoredSites(_cat([p.stored.site for p in parts]), rows)
    return Fresh(stored, _cat([p.site for p in parts]), usable, added)


def _cat(sites: list[Site]) -> Site:
    return Site(torch.cat([s.tau for s in sites]), torch.cat([s.nu for s in sites]))
