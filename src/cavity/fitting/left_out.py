"""Leave-one-out of a finished fit. [METHOD 13, 17]

It takes every row, or random rows where there are too many.

Labels calibrate the model and estimate its quality; variances say how usual a row is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.types import Floats, Ints
from cavity.engine.inference import Coupled
from cavity.engine.inference.leave_one_out import leave_one_out, leave_targets_out
from cavity.engine.inference.posterior import Normal
from cavity.engine.training.loop import Run
from cavity.errors import BadInput
from cavity.prediction.estimate import Estimate, Origin, estimate_quality
from cavity.prediction.model import FittedModel, as_array, as_tensor
from cavity.prediction.novelty import Novelty, make_novelty
from cavity.prediction.predict import log_probabilities, predict_latent
from cavity.tables.repeats import find_units
from cavity.tables.table import Facts, Table

KEPT = 1 << 24  # most numbers of leave-one-out marginals that an estimator keeps
# of leave-one-out for a table that is not kept whole
LEAST_ROWS = 1000
SAMPLED_ROWS = 50_000
SCORED = 1 << 21  # most log-probabilities that a temperature is fitted to
NOVELTY_ROWS = 2000  # training rows that the quantiles of novelty are computed from


class LeftOut(NamedTuple):
    """Marginals of f at training rows without their own labels."""

    f: Normal  # [n C]
    y: NDArray[Any]  # classes, or targets in the units of the fit
    weight: Floats
    rows: Ints  # their numbers in the table that the user gave
    complete: bool  # every row is there, in order
    unit: Ints | None = (
        None  # the same number for rows that belong together; None: each row is a case
    )

    def sample(self, scored: int = SCORED, least: int = LEAST_ROWS) -> LeftOut:
        """Return random rows if there are many classes.

        They are enough for a mean, and each row takes an integral over all classes.
        """
        most = max(least, scored // self.f.mean.shape[1])
        return self._select(choose_sample(len(self.y), most))

    def without_lone_rows(self) -> LeftOut:
        """Leave out rows that are the only case of their class.

        Without such a row nothing supports its class.
        """
        if not self.complete:
            return self

        if self.unit is None:
            of_case = self.y
        else:
            of_case = self.y[np.unique(self.unit, return_index=True)[1]]

        lone = np.bincount(of_case)[self.y] == 1
        return self._select(np.flatnonzero(~lone) if lone.any() else None)

    def _select(self, chosen: Ints | None) -> LeftOut:
        if chosen is None:
            return self

        f = Normal(self.f.mean[chosen], self.f.var[chosen])
        unit = None
        if self.unit is not None:
            unit = self.unit[chosen]
        return LeftOut(
            f, self.y[chosen], self.weight[chosen], self.rows[chosen], False, unit
        )

    def log_proba(self, model: FittedModel) -> Floats:
        """Return leave-one-out log-probabilities, before any temperature."""
        return log_probabilities(
            model, Normal(*(part.to(model.device) for part in self.f))
        )

    def estimate(
        self, model: FittedModel, log_p: Floats, prior: Floats, how: str
    ) -> Estimate:
        """Score log-probabilities of these rows."""
        kind: Origin = "folds"
        if learns(model):
            kind = "seen"
        return estimate_quality(
            log_p, self.y, self.weight, prior, how, kind, unit=self.unit
        )

    def for_novelty(self) -> LeftOut:
        """Return random rows, enough for quantiles."""
        return self._select(choose_sample(len(self.y), NOVELTY_ROWS))


def find_leave_one_out(
    run: Run, table: Facts, trained: Facts, every_row: bool
) -> LeftOut | None:
    """Return leave-one-out marginals; None if q couples the classes.

    They cover all rows of a table in memory, otherwise random rows.

    Rows are also drawn if time is up and a pass over the table would take long.
    `trained`: the table with equal rows merged, or itself. `every_row`: no row of the
    table is held out.
    """
    if isinstance(run.engine, Coupled):
        return None

    place = None
    if isinstance(trained, Table):
        place = trained.place
    if place is None:
        n = trained.n_rows
    else:
        n = len(place)

    C = table.n_classes
    whole = isinstance(table, Table) and n * C <= KEPT and run.has_time_to_sweep()
    in_time = max(LEAST_ROWS, sum(run.reduce.gather(run.count_rows_in_time())))
    chosen = None
    if not whole:
        chosen = choose_sample(n, int(min(SAMPLED_ROWS, KEPT // C, in_time)))
    if not isinstance(table, Table):
        return _leave_out(run, n, chosen)

    twins = find_units(table)
    if place is None:
        found = _leave_out(run, n, chosen, twins)
    else:
        found = _leave_out_merged(run, table, place, chosen, twins)

    unit = None
    if twins is not None:
        unit = twins[found.rows]
    return found._replace(
        rows=table.numbers[found.rows], complete=whole and every_row, unit=unit
    )


def find_usual_rows(run: Run, n: int) -> LeftOut | None:
    """Return random rows of the n of a regression; None if time is up.

    A small table returns all rows, without rounding errors.
    """
    if not run.has_time_to_sweep():
        return None

    found = _leave_out(run, n, choose_sample(n, NOVELTY_ROWS))
    is_one = run.reduce.world == 1 and run.engine.shape[0] == 1  # no committee
    if n <= NOVELTY_ROWS and is_one and not run.engine.sites.tied:
        f = leave_targets_out(run.engine, run.state, run.whole)
        return found._replace(f=Normal(f.mean.cpu(), f.var.cpu()))

    return found


def _leave_out_merged(
    run: Run, table: Table, place: Ints, chosen: Ints | None, twins: Ints | None
) -> LeftOut:
    """Return rows without their own sites or the sites of their twins.

    `chosen`: numbers of rows, or None for all; `place`: the merged row of each.
    """
    if chosen is None:
        rows = np.arange(len(place))
    else:
        rows = chosen

    visited, back = np.unique(place[rows], return_inverse=True)
    if twins is None:
        unit = np.arange(len(place))
    else:
        unit = twins

    _, first, case = np.unique(unit, return_index=True, return_inverse=True)
    n = int(place.max()) + 1
    if (place[first][case] == place).all():  # one case of a merged row leaves
        f = _leave_out(run, n, visited, share=1 / np.bincount(place[first])).f
    else:
        assert twins is not None
        f = _leave_out(run, n, visited, twins[np.unique(place, return_index=True)[1]]).f

    return LeftOut(
        Normal(f.mean[back], f.var[back]),
        table.y[rows],
        table.weight[rows],
        rows,
        False,
    )


def _leave_out(
    run: Run,
    n: int,
    chosen: Ints | None,
    together: Ints | None = None,
    share: Floats | None = None,
) -> LeftOut:
    """Visit chosen rows of n, or all, each rank its own.

    `together`: numbers of rows that leave together; `share`: of each.
    """
    if chosen is None:
        rows = np.arange(n)
    else:
        rows = chosen

    own = slice(run.rows.keep.start, run.rows.keep.stop)
    places = None
    if chosen is not None:
        places = rows[(rows >= own.start) & (rows < own.stop)] - own.start
    pieces = leave_one_out(
        run.engine,
        run.state,
        run.whole,
        run.reduce,
        chosen=None if places is None else torch.from_numpy(places),
        twins=None if together is None else torch.from_numpy(together[own]),
        share=None if share is None else torch.from_numpy(share[own]),
    )
    found = [
        [x.cpu() for x in (f.mean, f.var, batch.y, batch.weight)] for batch, f in pieces
    ]
    mine = [torch.cat(column) for column in zip(*found, strict=True)]
    mean, var, y, weight = map(torch.cat, zip(*run.reduce.gather(mine), strict=True))
    return LeftOut(Normal(mean, var), y.numpy(), weight.double().numpy(), rows, False)


def learns(model: FittedModel) -> bool:
    """Return whether hyper-parameters were learnt: then they saw the rows."""
    return any(p.requires_grad for p in model.prior.parameters())


def choose_sample(n: int, most: int) -> Ints | None:
    """Return `most` random places among n, ascending; None for all of them."""
    if n <= most:
        return None

    return np.sort(np.random.default_rng(0).choice(n, most, replace=False))


@torch.no_grad()
def prior_variances(model: FittedModel, rows: Floats) -> Floats:
    """Return the mean of k(x, x) + s over rows, [C]."""
    prior = model.prior
    known = as_array(
        prior.kernel.diag(as_tensor(rows).to(prior.noise)).mean(-1) + prior.noise
    )
    return np.broadcast_to(known, (prior.n_latent,))


def measure_novelty(
    model: FittedModel, rows: Floats, left_out: LeftOut | None
) -> Novelty | None:
    """Return the quantiles of novelty at training rows drawn by weight.

    Without `left_out` the variances are computed after training.
    """
    if left_out is not None:
        return make_novelty(
            prior_variances(model, rows), as_array(left_out.f.var), left_out.weight
        )

    try:
        var = as_array(predict_latent(model, as_tensor(rows)).var)
    except BadInput:  # a kernel of the user's own overflows
        return None

    return make_novelty(prior_variances(model, rows), var, np.ones(len(rows)))


def effective_share(weight: Floats, twins: Ints | None = None) -> float:
    """Return Σω / Σω², which scales weights to the number of effective rows.

    Twins count as one row.
    """
    each = weight
    if twins is not None:
        each = np.bincount(twins, weight).astype(np.float64)
    return float(each.sum() / np.square(each).sum())
