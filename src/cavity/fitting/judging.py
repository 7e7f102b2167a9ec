"""Judge a model by rows that it did not see: the weights of a pool, and an estimate of
its quality. [METHOD 13, 14, 18]

The weights are fitted to all of these rows. The estimate scores each of them with
weights that were fitted to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from cavity.common.types import Flags, Floats, Ints
from cavity.fitting.left_out import LeftOut, effective_share, prior_variances
from cavity.fitting.results import draw_rows
from cavity.pool.pool import Member, Pool, normalised
from cavity.pool.weights import fit_temperature, fit_weights, make_gate
from cavity.prediction.estimate import Estimate, Judges, estimate_quality
from cavity.prediction.model import FittedModel, as_array, as_tensor
from cavity.prediction.predict import log_probabilities, predict_latent
from cavity.tables.table import Table

# of a weight w > 1 from leave-one-out, which is too confident [METHOD 13]
LOO_EXPONENT = 0.75
GATE_ROWS = 500  # that prior variances are averaged over
LEAST_WEIGHT = 0.05  # of a member that counts
NESTED = 5  # parts of the rows whose weights are fitted to the others


class Held(NamedTuple):
    """Rows with log-probabilities of models that did not see them."""

    logs: Floats  # [1 + J, n, C]: of the Gaussian process, and of the members
    y: Ints
    weight: Floats
    unit: Ints  # the same number for rows that belong together
    part: Ints  # parts for nested weights: folds, or random ones
    u: Floats  # [n], variance of f relative to its prior variance: see `Gate`


class Judged(NamedTuple):
    """What held-out rows say."""

    weights: tuple[float, ...]  # of the Gaussian process, and of the members
    how: str
    estimate: Estimate | None = None  # None: no rows judge the model
    u: Floats = np.ones(1)  # of the rows, for the gate
    members: tuple[Member, ...] = ()  # that count


def predict_rows(
    model: FittedModel,
    members: Sequence[Member],
    held: Table,
    unit: Ints,
    part: Ints | None = None,
) -> Held:
    """Predict rows that the models did not see."""
    f = predict_latent(model, as_tensor(held.X))
    logs = [
        log_probabilities(model, f),
        *(member.log_proba(held.X) for member in members),
    ]
    if part is None:
        _, place = np.unique(unit, return_inverse=True)
        part = (np.random.default_rng(0).permutation(place.max() + 1) % NESTED)[
            place.reshape(-1)
        ]
    return Held(
        np.stack(logs),
        held.y,
        held.weight,
        unit,
        part,
        as_array(f.var) @ find_scale(model, held),
    )


def join_folds(found: Sequence[Held]) -> Held:
    """Join the rows of several folds, with the members that all of them have."""
    least = min(len(held.logs) for held in found)
    logs = np.concatenate([held.logs[:least] for held in found], axis=1)
    return Held(
        logs,
        *(
            np.concatenate([held[i] for held in found])
            for i in range(1, len(Held._fields))
        ),
    )


def judge_rows(held: Held, prior: Floats, how: str, kind: Judges) -> Judged:
    """Fit the weights of a pool to held-out rows, and estimate how good it is."""
    found = weigh(held)
    gate = None
    if len(held.logs) > 1:
        gate = make_gate(np.ones(1), held.u)
    log_p = np.empty_like(held.logs[0])
    for i in np.unique(held.part):
        of = held.part == i
        if of.all():
            own, *weights = found
        else:
            own, *weights = weigh(held, ~of)
        pool = Pool(own, (), tuple(weights), gate)
        logs = [
            partial(held.logs.__getitem__, (j, of)) for j in range(1, len(held.logs))
        ]
        log_p[of] = normalised(
            pool.add_members(held.logs[0][of], held.u[of, None], logs)
        )
    estimate = estimate_quality(log_p, held.y, held.weight, prior, how, kind, held.unit)
    return Judged(tuple(found.tolist()), how, estimate, held.u)


def weigh(held: Held, kept: Flags | slice = slice(None)) -> Floats:
    """Fit weights to some rows, each worth its share of them; members that count little
    get 0, and save their fit to all rows.
    """
    weight = held.weight[kept]
    unit = held.unit[kept]
    logs = held.logs[:, kept]
    y = held.y[kept]
    omega = effective_share(weight, unit) * weight
    found = fit_weights(list(logs), y, omega)
    counts = np.flatnonzero((found >= LEAST_WEIGHT) | (np.arange(len(found)) == 0))
    if len(counts) < np.count_nonzero(found):
        found = np.zeros(len(found))
        again = fit_weights(list(logs[counts]), y, omega)
        found[counts] = again
    return found


def judge_left_out(loo: LeftOut, model: FittedModel, prior: Floats, of: int) -> Judged:
    """Find a temperature from leave-one-out; hyper-parameters saw the rows, so w > 1 is
    too confident, and becomes w^¾.
    """
    used = loo.sample()
    log_p = used.log_proba(model)
    w = fit_temperature(
        log_p, used.y, effective_share(used.weight, used.unit) * used.weight
    )
    if w > 1:
        w = w**LOO_EXPONENT
    how = "leave-one-out"
    if len(used.y) < of:
        how = f"leave-one-out of {len(used.y)} rows"
    return Judged((w,), how, used.estimate(model, normalised(w * log_p), prior, how))


@torch.no_grad()
def find_scale(model: FittedModel, table: Table) -> Floats:
    """Return 1 / (C v⁰) of `Gate`, by prior variances at some rows."""
    known = prior_variances(model, draw_rows(table, GATE_ROWS))
    return 1 / (len(known) * known)
