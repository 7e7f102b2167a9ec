"""Leave-one-out marginals of f at the training rows, from the sites. [METHOD 13]"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cavity.common.linalg import cholesky, concatenate
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
    *,
    chosen: Tensor | None = None,
    twins: Tensor | None = None,
    share: Tensor | None = None,
) -> Iterator[tuple[Batch, Normal]]:
    r"""Yield each piece of the rows with its leave-one-out marginals of f, [B C].

        v' = v / (1 − τv)      m' = (m − νv) / (1 − τv)

    τ and ν are what the sums hold of the row; v' includes the noise. [METHOD 17]

    A row leaves as a whole, whatever its weight, and takes its twins with it: rows with
    the same number in `twins` [N], also on other ranks. If it stands for equal rows,
    one of them leaves: the share `share` [N] of its sites. The sites of the other rows
    and the hyper-parameters stay as they are. Rows that do not store sites (SEP, VI)
    get the sites that an update would give them.

    `chosen`: places of the rows to visit, ascending; None for all rows.
    """
    engine.load(state.theta)
    q = posterior(state.sums)
    shared = engine.sites.gaussian(state.sums)
    if twins is not None:
        each = (_look(engine, state, q, shared, b)[2] for b in rows.split(engine.chunk))
        sums = _sum_twins(engine, twins, each, reduce)

    if chosen is None:
        batches = rows.split(engine.chunk)
    else:
        batches = _select(rows, engine.chunk, chosen)

    start = 0
    for batch in batches:
        t, r, fed = _look(engine, state, q, shared, batch)
        stop = start + len(batch.y)
        place: slice | Tensor = slice(start, stop)
        if chosen is not None:
            place = chosen[start:stop]
        start = stop

        if twins is not None:
            fed = Site(*(kept[:, twins[place].to(kept.device)] for kept in sums))

        removed: Tensor | float = 1.0
        if share is not None:
            removed = share[place].to(t.var)

        left = remove(t, fed, Share(removed, None, 1.0)).t
        yield batch, Normal(left.mean.mT, (left.var + r).mT)


@torch.no_grad()
def leave_targets_out(engine: Engine, state: State, rows: Whole) -> Normal:
    r"""Return the same marginals of rows with Gaussian noise, [N 1].

        G = AᵀA + diag(1/τ)     v' = 1/(G⁻¹)ₙₙ − 1/τₙ     m' = yₙ − (G⁻¹y)ₙ/(G⁻¹)ₙₙ

    y = ν/τ. If noise is small, 1 − τv has no digits left, but G⁻¹ has. It takes N³
    operations.
    """
    engine.load(state.theta)
    q = posterior(state.sums)
    shared = engine.sites.gaussian(state.sums)
    parts = []
    for batch in rows.split(engine.chunk):
        _, r, site = _look(engine, state, q, shared, batch)
        a = engine.project(state, batch).a.double()
        parts.append((a[0], r[0], site.tau[0], site.nu[0]))

    columns = zip(*parts, strict=True)
    a, r, tau, nu = (torch.cat(column, dim=-1) for column in columns)
    y = nu / tau
    lower, _ = cholesky(a.mT @ a + torch.diag(1 / tau))
    inverse = torch.cholesky_inverse(lower)
    own = inverse.diagonal()
    var = (1 / own - 1 / tau).clamp_min(0)
    return Normal((y - inverse @ y / own)[:, None], (var + r)[:, None])


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
    """Yield the chosen rows in batches of at most `size`.

    Projecting many small batches would take much longer.
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
    """Return the marginals of t, r, and what the sums hold of the rows, each [C B]."""
    projection = engine.project(state, batch)
    t = marginals(q, projection.a).t
    r = projection.r.double()
    classes = engine.factor.sites(batch.y)
    if engine.sites.tied:
        site = engine.visit_rows(state, shared, batch, False, True).site
    else:
        site = engine.sites.stored(state, batch, classes).site

    share = engine.sites.share(batch.weight, engine.removal)
    totals = site_totals(site, classes, t.mean, share)
    fed = engine.placement.feed(totals, r)
    return t, r, Site(fed.tau, fed.nu)
