"""Leave-one-out from the sites: marginals of f at the training rows, each without its own label. [METHOD 13]"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cavity.data import Batch, Whole
from cavity.inference.engine import Engine
from cavity.inference.sites import LEAST_KEEP, Site
from cavity.inference.state import State
from cavity.inference.view import SiteTotals, site_totals
from cavity.posterior import Normal, Posterior, marginals, posterior


@torch.no_grad()
def leave_one_out(
    engine: Engine, state: State, rows: Whole, chosen: Tensor | None = None
) -> Iterator[tuple[Batch, Normal]]:
    r"""Yield each piece of the rows with the marginals of f, noise included, [B C], after a row's own sites are removed.

        v' = v / (1 − τv)      m' = (m − νv) / (1 − τv)        τ, ν: all sites of the row on a class

    The sites of the other rows and the hyper-parameters stay as they are. Of a row of weight ω, one of its ω copies is removed,
    or all of it if ω < 1. Rows without sites of their own (SEP, VI) get those that an update would give them. `chosen`: places of
    the rows to visit, ascending; None for all rows.
    """
    engine.load(state.theta)
    q, shared = posterior(state.sums), engine.sites.gaussian(state.sums)
    for batch in rows.split(engine.chunk) if chosen is None else _select(rows, engine.chunk, chosen):
        yield batch, _without_own_sites(engine, state, q, shared, batch)


def _select(rows: Whole, size: int, chosen: Tensor) -> Iterator[Batch]:
    """Yield the chosen rows in batches of at most `size`: a projection takes much longer for many small batches."""
    waiting: list[Batch] = []
    start = 0
    for piece in rows.split(size):
        stop = start + len(piece.index)
        place = chosen[(chosen >= start) & (chosen < stop)].to(piece.y.device) - start
        start = stop
        if sum(len(part.index) for part in waiting) + len(place) > size:
            yield _join(waiting)
            waiting = []
        waiting.append(Batch(*(column[place] for column in piece)))
    yield _join(waiting)


def _join(parts: list[Batch]) -> Batch:
    return Batch(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _without_own_sites(engine: Engine, state: State, q: Posterior, shared: Posterior, batch: Batch) -> Normal:
    projection = engine.project(state, batch)
    t, r = marginals(q, projection.a).t, projection.r.double()
    classes = engine.factor.sites(batch.y)
    site = _sites(engine, state, shared, batch, classes)
    totals = site_totals(site, classes, t.mean, engine.sites.share(batch.weight, engine.removal))
    seen = engine.placement.row_marginals(t, r, totals if engine.placement.eliminates else None)
    copy = batch.weight.reciprocal()
    f = _remove(seen.t, totals, copy if engine.sites.on_f else copy.clamp(max=1.0))
    return Normal(f.mean.mT, (f.var + seen.residual).mT)


def _sites(engine: Engine, state: State, shared: Posterior, batch: Batch, classes: Tensor) -> Site:
    if engine.sites.tied:
        return engine.visit_rows(state, lambda: shared, batch, False, True)[1].site
    return engine.sites.stored(state, batch, classes).site


def _remove(t: Normal, totals: SiteTotals, copy: Tensor) -> Normal:
    """Remove one copy of each row, the share `copy` [B] of its total."""
    tau, nu = copy * totals.tau, copy * totals.nu
    keep = (1 - tau * t.var).clamp_min(LEAST_KEEP)
    return Normal((t.mean - nu * t.var) / keep, t.var / keep)
