"""Leave-one-out from the sites: marginals of f at the training rows, each without its
own label. [METHOD 13]
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cavity.common.linalg import concatenate
from cavity.common.ranks import Local
from cavity.engine.batches.in_memory import Batch
from cavity.engine.batches.stream import Whole
from cavity.engine.inference.batch_sites import site_totals
from cavity.engine.inference.engine import Engine
from cavity.engine.inference.posterior import Normal, Posterior, marginals, posterior
from cavity.engine.inference.sites import Share, Site, remove
from cavity.engine.inference.state import State


@torch.no_grad()
def leave_one_out(
    engine: Engine,
    state: State,
    rows: Whole,
    reduce: Local,
    chosen: Tensor | None = None,
    twins: Tensor | None = None,
    share: Tensor | None = None,
) -> Iterator[tuple[Batch, Normal]]:
    r"""Yield each piece of the rows with the marginals of f, noise included, [B C],
    after a row's own sites are removed.

        v' = v / (1 − τv)      m' = (m − νv) / (1 − τv)        τ, ν: what the sums hold of the row

    A row leaves as a whole, whatever its weight, and takes its twins with it: rows with
    the same number in `twins` [N]. If it stands for equal rows, one of them leaves: the
    share `share` [N] of its sites. The sites of the other rows and the hyper-parameters
    stay as they are. Rows without sites of their own (SEP, VI) get those that an update
    would give them.
    `chosen`: places of the rows to visit, ascending; None for all rows. Twins may be on other ranks.        [METHOD 17]
    """
    engine.load(state.theta)
    q = posterior(state.sums)
    shared = engine.sites.gaussian(state.sums)
    if twins is not None:
        each = (_look(engine, state, q, shared, b)[2] for b in rows.split(engine.chunk))
        sums = _sum_twins(engine, twins, each, reduce)
    start = 0
    for batch in (
        rows.split(engine.chunk)
        if chosen is None
        else _select(rows, engine.chunk, chosen)
    ):
        t, r, fed = _look(engine, state, q, shared, batch)
        stop = start + len(batch.y)
        if chosen is None:
            place: slice | Tensor = slice(start, stop)
        else:
            place = chosen[start:stop]

        if twins is not None:
            fed = Site(*(kept[:, twins[place].to(kept.device)] for kept in sums))
        t = remove(
            t, fed, Share(1.0 if share is None else share[place].to(t.var), None, 1.0)
        ).t
        start = stop
        yield batch, Normal(t.mean.mT, (t.var + r).mT)


def _sum_twins(
    engine: Engine, twins: Tensor, pieces: Iterator[Site], reduce: Local
) -> Site:
    """Return what the sums hold of each group of twins, [C G]."""
    groups = max(reduce.gather(int(twins.max()) + 1 if len(twins) else 0))
    sums = torch.zeros(
        2, engine.shape[0], groups, dtype=torch.float64, device=engine.total.device
    )
    start = 0
    for fed in pieces:
        stop = start + fed.tau.shape[1]
        sums.index_add_(2, twins[start:stop].to(sums.device), torch.stack(fed).double())
        start = stop

    return reduce.sum(Site(*sums))


def _select(rows: Whole, size: int, chosen: Tensor) -> Iterator[Batch]:
    """Yield the chosen rows in batches of at most `size`: a projection takes much
    longer for many small batches.
    """
    waiting: list[Batch] = []
    start = 0
    for piece in rows.split(size):
        stop = start + len(piece.index)
        place = chosen[(chosen >= start) & (chosen < stop)].to(piece.y.device) - start
        start = stop
        if sum(len(part.index) for part in waiting) + len(place) > size:
            yield concatenate(waiting)
            waiting = []
        waiting.append(Batch(*(column[place] for column in piece)))

    yield concatenate(waiting)


def _look(
    engine: Engine, state: State, q: Posterior, shared: Posterior, batch: Batch
) -> tuple[Normal, Tensor, Site]:
    """Return the marginals of t under q, r, and what the sums hold of the rows, each [C
    B].
    """
    projection = engine.project(state, batch)
    t = marginals(q, projection.a).t
    r = projection.r.double()
    classes = engine.factor.sites(batch.y)
    if engine.sites.tied:
        site = engine.visit_rows(state, shared, batch, False, True).site
    else:
        site = engine.sites.stored(state, batch, classes).site

    totals = site_totals(
        site, classes, t.mean, engine.sites.share(batch.weight, engine.removal)
    )
    fed = engine.placement.feed(totals, r)
    return t, r, Site(fed.tau, fed.nu)
