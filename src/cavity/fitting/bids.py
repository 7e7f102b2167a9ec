"""Bids: a member that costs many seconds must show that the pool gains enough by it.

Every member is fitted to a small part of the rows, the Gaussian process too. Held-out
rows tell what that small pool would lose without a costly member. The gain shrinks as
rows are added, since all members improve; the seconds grow with the rows. A member is
fitted in full if its gain per second is at least the price of a second. [decision 68]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cavity.common.types import Floats
from cavity.fitting.cases import draw_cases
from cavity.fitting.fit import Judge
from cavity.fitting.folds import fit_fold
from cavity.fitting.held_out import HeldOut, predict_rows
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.policy.bids import BID_RATE, asks_bids, pays
from cavity.fitting.options.time_estimate import compare_sizes
from cavity.fitting.request import Request
from cavity.pool.members import fit_members, make_members
from cavity.pool.plan import Bid, MembersPlan
from cavity.pool.weights import fit_weights
from cavity.prediction.estimate import HELD_OUT
from cavity.tables.labelled import LabelledTable
from cavity.tables.table import Table

PART = 20  # a bid sees this part of the rows
HELD_ROWS = 2000  # that judge bids
COSTLY = ("boosting", "extra trees")
LINEAR = "logistic regression"  # it does not bid, and says little next to the others
# Share of a gain that is expected to be left with all rows: a guess. [decision 68]
LEFT_WITH_ALL = 0.3


def choose_by_bids(
    request: Request[ClassifierConfig],
    rows: LabelledTable,
    judge: Judge,
    members: MembersPlan,
) -> MembersPlan:
    """Return the plan without the members whose bids are too low."""
    trains = judge.trains
    held = getattr(judge, "held", None)
    if not isinstance(trains, Table) or held is None:
        return members

    size = TableSize.of(trains, rows.features.n)
    if not asks_bids(request.config, members, size, request.clock.limit):
        return members

    bids = take_bids(request, rows, trains, held, members)
    refused = {bid.name for bid in bids if not bid.accepted}
    if "boosting" in refused:
        members = replace(members, rate=0.0)
    if "extra trees" in refused:
        members = replace(members, trees=0)
    return replace(members, bids=bids)


def take_bids(
    request: Request[ClassifierConfig],
    rows: LabelledTable,
    trains: Table,
    held: Table,
    members: MembersPlan,
) -> tuple[Bid, ...]:
    """Fit all members to a part of the rows, and predict gains and seconds in full."""
    config = request.config
    small = draw_cases(trains, trains.n_rows // PART, request.seed)
    if held.n_rows > HELD_ROWS:
        drawn = np.random.default_rng(request.seed).permutation(held.n_rows)
        held = held.select(np.sort(drawn[:HELD_ROWS]))

    quick = replace(members, rate=BID_RATE) if members.rate else members
    recipes = [
        recipe
        for recipe in make_members(config.ensemble, quick, request.seed)
        if recipe.name != LINEAR
    ]
    model = fit_fold(request.for_fold(None), rows, small, epochs=None)
    fitted = fit_members(recipes, small, held, rows.blocks)
    known = predict_rows(model, fitted, held, how="", kind=HELD_OUT, seconds=0.0)

    bids = []
    sizes = TableSize.of(small, rows.features.n), TableSize.of(trains, rows.features.n)
    for j, recipe in enumerate(recipes, start=1):
        if recipe.name not in COSTLY:
            continue

        longer = compare_sizes(recipe.name, quick, *sizes)
        if recipe.name == "boosting":
            longer *= quick.rate / members.rate  # more rounds
        seconds = longer * fitted[j - 1].seconds * (2 if members.refits else 1)
        gain = LEFT_WITH_ALL * max(0.0, find_gain(known, j))
        accepted = pays(config, gain, seconds)
        bids.append(Bid(recipe.name, seconds, gain, accepted))
    return tuple(bids)


def find_gain(known: HeldOut, j: int) -> float:
    """Return the nats per row that the pool loses without member j."""
    return _find_loss(known, known.log_proba, without=j) - _find_loss(
        known, known.log_proba
    )


def _find_loss(known: HeldOut, logs: Floats, without: int | None = None) -> float:
    """Return the log loss of a pool whose weights are fitted to the same rows."""
    kept = [log for i, log in enumerate(logs) if i != without]
    weights = fit_weights(kept, known.y, known.weight)
    mixed = np.tensordot(weights, np.stack(kept), 1)
    mixed -= np.logaddexp.reduce(mixed, axis=1, keepdims=True)
    own = mixed[np.arange(len(known.y)), known.y]
    return float(-np.average(own, weights=known.weight))
