"""The quantiles of a finished fit by which `predict_novelty` judges rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.errors import BadInput
from cavity.fitting.leave_one_out import LeaveOneOut, choose_sample
from cavity.inference import Coupled
from cavity.inference.leave_one_out import leave_one_out
from cavity.prediction.model import FittedModel, as_array, as_tensor, predict_latent
from cavity.prediction.novelty import Novelty, make_novelty
from cavity.training.loop import Run

Array = NDArray[np.float64]
ROWS = 2000  # training rows that quantiles are computed from


class LeftOut(NamedTuple):
    """Variances of f [n C] at training rows, each without its own sites, and weights [n]."""

    var: Array
    weight: Array


@torch.no_grad()
def prior_variances(model: FittedModel, rows: Array) -> Array:
    """Return the mean of k(x, x) + s over rows, [C]."""
    prior = model.prior
    known = as_array(prior.kernel.diag(as_tensor(rows).to(model.mean)).mean(-1) + prior.noise)
    return np.broadcast_to(known, (prior.n_latent,))


def from_leave_one_out(loo: LeaveOneOut) -> LeftOut:
    """Return variances at random training rows of a classifier."""
    chosen = choose_sample(len(loo.y), ROWS)
    rows = slice(None) if chosen is None else chosen
    return LeftOut(as_array(loo.f.var[rows]), loo.weight[rows])


def leave_out(run: Run) -> LeftOut | None:
    """Return variances at random training rows; None on several ranks, if q couples classes, or if time is up."""
    if isinstance(run.engine, Coupled) or run.reduce.world > 1 or not run.has_time_to_sweep():
        return None
    chosen = choose_sample(run.rows.n_rows, ROWS)
    places = None if chosen is None else torch.from_numpy(chosen)
    pieces = [
        (as_array(f.var), as_array(batch.weight))
        for batch, f in leave_one_out(run.engine, run.state, run.whole, places)
    ]
    return LeftOut(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


def measure_novelty(model: FittedModel, rows: Array, left_out: LeftOut | None) -> Novelty | None:
    """Return the quantiles, given some training rows, drawn by weight. Without `left_out`, variances are those after training."""
    if left_out is None:
        try:
            left_out = LeftOut(as_array(predict_latent(model, as_tensor(rows)).var), np.ones(len(rows)))
        except BadInput:  # a kernel of the user's own overflows
            return None
    return make_novelty(prior_variances(model, rows), *left_out)
