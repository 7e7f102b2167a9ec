"""Leave-one-out of a finished fit: of every row, or of random rows where these are too many. [METHOD 13]"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.fitting.twins import find_twins
from cavity.inference import Coupled
from cavity.inference.leave_one_out import leave_one_out
from cavity.inference.posterior import Normal
from cavity.options import policy
from cavity.prediction.estimate import Estimate, estimate_quality
from cavity.prediction.model import FittedModel, log_probabilities
from cavity.rows.tables import Facts, Table
from cavity.training.loop import Run

Array = NDArray[np.float64]

KEPT = 1 << 24  # most numbers of leave-one-out marginals that an estimator keeps


class LeaveOneOut(NamedTuple):
    """Marginals of f at training rows without their own labels."""

    f: Normal  # [n C]
    y: NDArray[np.int64]
    weight: Array
    rows: NDArray[np.int64]  # their numbers in the table that the user gave
    complete: bool  # every row is there, in order

    def sample(self) -> LeaveOneOut:
        """Return random rows if there are many classes: enough for a mean, and each takes an integral over all classes."""
        chosen = choose_sample(len(self.y), policy.most_loo_rows(self.f.mean.shape[1]))
        if chosen is None:
            return self
        f = Normal(self.f.mean[chosen], self.f.var[chosen])
        return LeaveOneOut(f, self.y[chosen], self.weight[chosen], self.rows[chosen], False)

    def log_proba(self, model: FittedModel) -> Array:
        """Return leave-one-out log-probabilities under the model, before any temperature."""
        f = Normal(self.f.mean.to(model.device), self.f.var.to(model.device))
        return np.asarray(log_probabilities(model, f).numpy())

    def estimate(self, model: FittedModel, log_p: Array, prior: Array, how: str, of: int) -> Estimate:
        """Score log-probabilities of these rows; hyper-parameters saw them, if any were learnt. `of`: rows of the table."""
        learnt = any(p.requires_grad for p in model.prior.parameters())
        return estimate_quality(log_p, self.y, self.weight, prior, how, "seen" if learnt else "folds", of)


def find_leave_one_out(run: Run, table: Facts, every_row: bool) -> LeaveOneOut | None:
    """Return leave-one-out marginals: of all rows of a table in memory, otherwise of random rows. None if q couples classes.

    Rows are also drawn if time is up and a pass over the table would take long. `every_row`: no row of the table is held out.
    """
    if isinstance(run.engine, Coupled):
        return None
    n, C = run.rows.n_rows, table.n_classes
    whole = isinstance(table, Table) and run.reduce.world == 1 and n * C <= KEPT and run.has_time_to_sweep()
    in_time = max(policy.LOO_LEAST, run.count_rows_in_time())
    most = max(1, int(min(policy.LOO_ROWS, policy.most_loo_rows(C), KEPT // C, in_time)) // run.reduce.world)
    chosen = None if whole else choose_sample(n, most)
    together = find_twins(table) if run.reduce.world == 1 else None
    places, twins = (None if x is None else torch.from_numpy(x) for x in (chosen, together))
    found = []
    for batch, f in leave_one_out(run.engine, run.state, run.whole, places, twins):
        found.append([x.cpu() for x in (f.mean, f.var, batch.y, batch.weight)])
    mean, var, y, weight = (torch.cat(column) for column in zip(*found, strict=True))
    numbers = table.numbers if isinstance(table, Table) else np.arange(n)
    rows = numbers if chosen is None else numbers[chosen]
    labels = y.long().numpy()
    return LeaveOneOut(Normal(mean, var), labels, weight.double().numpy(), rows, whole and every_row)


def choose_sample(n: int, most: int) -> NDArray[np.int64] | None:
    """Return `most` random places among n, ascending; None for all of them."""
    return None if n <= most else np.sort(np.random.default_rng(0).choice(n, most, replace=False))
