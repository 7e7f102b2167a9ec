"""What follows from held-out rows.    [METHOD 13, 14, 18]

The weights of a pool, its gate, its temperature, the estimate of its quality and the
scores of its members follow from one value, `HeldOut`. The weights are fitted to all of
its rows. The estimate scores each row with weights that were fitted to the others.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from cavity.common.scoring import average, score_rows
from cavity.common.types import Flags, Floats
from cavity.fitting.held_out import HeldOut, drop_members, find_scale
from cavity.fitting.left_out import effective_share
from cavity.pool.pool import Gate, Pool, normalised
from cavity.pool.weights import fit_weights, make_gate
from cavity.prediction.estimate import Estimate, estimate_quality
from cavity.prediction.member_scores import MemberScores
from cavity.prediction.model import FittedModel
from cavity.tables.table import Table

LOO_EXPONENT = 0.75  # w > 1 from leave-one-out is too confident and becomes w^¾ [13]
LEAST_WEIGHT = 0.05  # a member with less weight is left out


class Verdict(NamedTuple):
    """What held-out rows say."""

    weights: tuple[float, ...]  # of the Gaussian process, and of the members
    log_proba: Floats  # [n C], of the pool, with weights fitted to other parts
    estimate: Estimate
    members: MemberScores
    held_out: HeldOut

    def make_gate(self, model: FittedModel, table: Table) -> Gate | None:
        """Return the gate of the pool's members."""
        return make_gate(find_scale(model, table), self.held_out.u)


def judge_rows(held: HeldOut, prior: Floats) -> Verdict:
    """Fit the weights of a pool to held-out rows, and estimate how good it is."""
    weights = weigh(held)
    log_p = np.empty_like(held.log_proba[0])
    for i in np.unique(held.part):
        of = held.part == i
        nested = weights
        if not of.all():
            nested = weigh(held, ~of)
        log_p[of] = pool_rows(held, nested, of)

    return _make_verdict(held, weights, log_p, prior)


def judge_as_is(held: HeldOut, prior: Floats, weight: float = 1.0) -> Verdict:
    """Judge a Gaussian process alone, with a temperature that is given."""
    alone = drop_members(held, np.zeros(1, dtype=np.int64))
    log_p = normalised(weight * held.log_proba[0])
    return _make_verdict(alone, np.array([weight]), log_p, prior)


def _make_verdict(
    held: HeldOut, weights: Floats, log_p: Floats, prior: Floats
) -> Verdict:
    estimate = estimate_quality(
        log_p, held.y, held.weight, prior, held.how, held.kind, unit=held.unit
    )
    members = score_members(held, weights, estimate.baseline_log_loss)
    return Verdict(tuple(weights.tolist()), log_p, estimate, members, held)


def pool_rows(
    held: HeldOut, weights: Floats, kept: Flags | slice = slice(None)
) -> Floats:
    """Return the log-probabilities of a pool with these weights, gate included, [n C]."""
    gate = None
    if len(held.log_proba) > 1:
        gate = make_gate(np.ones(1), held.u)
    pool = Pool(weights[0], (), tuple(weights[1:]), gate)
    own, *members = held.log_proba[:, kept]
    logs = [partial(np.asarray, log_p) for log_p in members]
    return normalised(pool.add_members(own, held.u[kept, None], logs))


def score_members(held: HeldOut, weights: Floats, baseline: float) -> MemberScores:
    """Score each classifier alone, and what the pool loses without it.

    `baseline`: the log loss of class frequencies.
    """
    alone = [_find_loss(held, normalised(log_p)) for log_p in held.log_proba]
    whole = _find_loss(held, pool_rows(held, weights))
    gain = [baseline - whole]
    if len(weights) > 1:
        others = weigh(held, without_first=True)
        gain = [_find_loss(held, pool_rows(held, others)) - whole]
    places = np.arange(len(weights))
    for j in places[1:]:
        rest = drop_members(held, np.delete(places, j))
        lost = 0.0
        if weights[j]:
            lost = _find_loss(held, pool_rows(rest, weigh(rest))) - whole
        gain.append(lost)

    return MemberScores(
        held.names, tuple(weights.tolist()), tuple(alone), tuple(gain), held.seconds
    )


def _find_loss(held: HeldOut, log_p: Floats) -> float:
    return average(score_rows(log_p, held.y)["nll"], held.weight, held.unit).value


def weigh(
    held: HeldOut,
    kept: Flags | slice = slice(None),
    *,
    without_first: bool = False,
) -> Floats:
    """Fit weights to some rows; a row counts as its share of the effective rows.

    Members of little weight get 0, which saves their fit to all rows. `without_first`:
    so does the Gaussian process.
    """
    weight = held.weight[kept]
    omega = effective_share(weight, held.unit[kept]) * weight
    logs = held.log_proba[:, kept]
    y = held.y[kept]
    fit = partial(fit_weights, y=y, omega=omega, without_first=without_first)
    found = fit(list(logs))
    counts = found >= LEAST_WEIGHT
    counts[0] = True  # the Gaussian process
    if np.count_nonzero(counts) < np.count_nonzero(found):
        again = fit(list(logs[counts]))
        found = np.zeros(len(found))
        found[counts] = again

    if held.left_out is not None and found[0] > 1:  # hyper-parameters saw the rows
        found[0] **= LOO_EXPONENT
    return found
