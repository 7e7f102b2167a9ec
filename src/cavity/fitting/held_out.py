"""Held-out log-probabilities, and what follows from them. [METHOD 13, 14, 18]

The weights of a pool, its gate, its temperature and the estimate of its quality follow
from one value, `HeldOut`. The weights are fitted to all of its rows. The estimate scores
each row with weights that were fitted to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from cavity.common.types import Flags, Floats, Ints
from cavity.fitting.cases import number_cases
from cavity.fitting.left_out import (
    LeftOut,
    effective_share,
    learns,
    prior_variances,
)
from cavity.fitting.results import draw_rows
from cavity.pool.pool import Gate, Member, Pool, normalised
from cavity.pool.weights import fit_weights, make_gate
from cavity.prediction.estimate import Estimate, Origin, estimate_quality
from cavity.prediction.model import FittedModel, as_array, as_tensor
from cavity.prediction.predict import log_probabilities, predict_latent
from cavity.tables.table import Table

LOO_EXPONENT = 0.75  # w > 1 from leave-one-out is too confident and becomes w^¾ [13]
GATE_ROWS = 500  # prior variances are averaged over as many rows
LEAST_WEIGHT = 0.05  # a member with less weight is left out
NESTED = 5  # number of parts for nested weights


class HeldOut(NamedTuple):
    """Rows with log-probabilities of models that did not see them."""

    log_proba: Floats  # [1 + J, n, C]: of the Gaussian process, and of the members
    y: Ints
    weight: Floats
    unit: Ints  # the same number for rows that belong together
    part: Ints  # parts for nested weights: folds, or random ones
    u: Floats  # [n], variance of f relative to its prior variance: see `Gate`
    rows: Ints  # numbers in the table that the user gave
    how: str  # where the rows come from, in words
    kind: Origin  # how far the models know the rows
    own_sites: bool = False  # leave-one-out, by removing sites


class Verdict(NamedTuple):
    """What held-out rows say."""

    weights: tuple[float, ...]  # of the Gaussian process, and of the members
    estimate: Estimate
    held_out: HeldOut

    def make_gate(self, model: FittedModel, table: Table) -> Gate | None:
        """Return the gate of the pool's members."""
        return make_gate(find_scale(model, table), self.held_out.u)


def predict_rows(
    model: FittedModel,
    members: Sequence[Member],
    held: Table,
    *,
    how: str,
    kind: Origin,
    unit: Ints | None = None,
    part: Ints | None = None,
) -> HeldOut:
    """Predict rows that the models did not see."""
    if unit is None:
        unit = number_cases(held)
    if part is None:
        _, place = np.unique(unit, return_inverse=True)
        shuffled = np.random.default_rng(0).permutation(place.max() + 1)
        part = (shuffled % NESTED)[place.reshape(-1)]

    f = predict_latent(model, as_tensor(held.X))
    logs = [log_probabilities(model, f)]
    logs += [member.log_proba(held.X) for member in members]
    return HeldOut(
        log_proba=np.stack(logs),
        y=held.y,
        weight=held.weight,
        unit=unit,
        part=part,
        u=as_array(f.var) @ find_scale(model, held),
        rows=held.numbers,
        how=how,
        kind=kind,
    )


def hold_left_out(left_out: LeftOut, model: FittedModel, of: int) -> HeldOut:
    """Return leave-one-out log-probabilities; `of`: number of rows of the table."""
    used = left_out.sample()
    n = len(used.y)
    how = "leave-one-out"
    if n < of:
        how = f"leave-one-out of {n} rows"
    unit = used.unit
    if unit is None:
        unit = np.arange(n)
    return HeldOut(
        log_proba=used.log_proba(model)[None],
        y=used.y,
        weight=used.weight,
        unit=unit,
        part=np.zeros(n, dtype=np.int64),
        u=np.ones(n),
        rows=used.rows,
        how=how,
        kind="seen" if learns(model) else "folds",
        own_sites=True,
    )


def join_folds(found: Sequence[HeldOut], how: str) -> HeldOut:
    """Join the rows of several folds, with the members that all of them have."""
    least = min(len(held.log_proba) for held in found)
    logs = [held.log_proba[:least] for held in found]
    return found[0]._replace(
        log_proba=np.concatenate(logs, axis=1),
        y=np.concatenate([held.y for held in found]),
        weight=np.concatenate([held.weight for held in found]),
        unit=np.concatenate([held.unit for held in found]),
        part=np.concatenate([held.part for held in found]),
        u=np.concatenate([held.u for held in found]),
        rows=np.concatenate([held.rows for held in found]),
        how=how,
    )


def judge_rows(held: HeldOut, prior: Floats) -> Verdict:
    """Fit the weights of a pool to held-out rows, and estimate how good it is."""
    weights = weigh(held)
    gate = None
    if len(held.log_proba) > 1:
        gate = make_gate(np.ones(1), held.u)
    log_p = np.empty_like(held.log_proba[0])
    for i in np.unique(held.part):
        of = held.part == i
        nested = weights
        if not of.all():
            nested = weigh(held, ~of)
        pool = Pool(nested[0], (), tuple(nested[1:]), gate)
        logs = [partial(_take, held, j, of) for j in range(1, len(held.log_proba))]
        own = held.log_proba[0][of]
        log_p[of] = normalised(pool.add_members(own, held.u[of, None], logs))

    estimate = estimate_quality(
        log_p, held.y, held.weight, prior, held.how, held.kind, unit=held.unit
    )
    return Verdict(tuple(weights.tolist()), estimate, held)


def _take(held: HeldOut, member: int, rows: Flags) -> Floats:
    return held.log_proba[member, rows]


def weigh(held: HeldOut, kept: Flags | slice = slice(None)) -> Floats:
    """Fit weights to some rows; a row counts as its share of the effective rows.

    Members of little weight get 0, which saves their fit to all rows.
    """
    weight = held.weight[kept]
    omega = effective_share(weight, held.unit[kept]) * weight
    logs = held.log_proba[:, kept]
    y = held.y[kept]
    found = fit_weights(list(logs), y, omega)
    counts = found >= LEAST_WEIGHT
    counts[0] = True  # the Gaussian process
    if np.count_nonzero(counts) < np.count_nonzero(found):
        again = fit_weights(list(logs[counts]), y, omega)
        found = np.zeros(len(found))
        found[counts] = again

    if held.own_sites and found[0] > 1:  # hyper-parameters saw the rows
        found[0] **= LOO_EXPONENT
    return found


@torch.no_grad()
def find_scale(model: FittedModel, table: Table) -> Floats:
    """Return 1 / (C v⁰) of `Gate`, by prior variances at some rows."""
    known = prior_variances(model, draw_rows(table, GATE_ROWS))
    return 1 / (len(known) * known)
