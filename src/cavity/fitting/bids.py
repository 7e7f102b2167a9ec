"""Bids: a costly member must show that the pool gains enough by its full fit.

A quick version of it is fitted to the same rows: few rounds of small trees, or a few
trees of the forest. Held-out rows tell what the pool would lose without it, and the
full fit is expected to bring as much again. Its seconds follow from those of the quick
fit by the laws of `pool.seconds`. The best bid is fitted in full while its gain per
second is at least the price of a second; a quick version that loses stays in the pool.
A fit to all rows, held-out ones included, bids, too. [decision 68]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cavity.common.progress import announce
from cavity.common.types import Floats
from cavity.fitting.cases import draw_cases
from cavity.fitting.fit import Candidates, ClassifierFit
from cavity.fitting.held_out import HeldOut
from cavity.fitting.options.policy.bids import pays
from cavity.fitting.verdict import Verdict
from cavity.pool.boosting import QUICK_LEAVES, Boosting
from cavity.pool.members import FittedMember, Forests, Recipe, fit_members
from cavity.pool.plan import Bid
from cavity.pool.seconds import MemberSize
from cavity.pool.weights import fit_weights
from cavity.tables.table import Table

REFIT = "fit to all rows"


class Offer(NamedTuple):
    """A full fit that a quick one offers."""

    place: int  # among the members
    recipe: Recipe
    seconds: float


def make_quick(recipe: Recipe) -> Recipe:
    """Return the quick version of a costly member, or the recipe itself."""
    if isinstance(recipe, Boosting | Forests):
        return recipe.quick()

    return recipe


def take_bids(
    fit: ClassifierFit, held: HeldOut, quick: Candidates, trains: Table, judges: Table
) -> tuple[HeldOut, Candidates]:
    """Fit costly members in full, the best bid first, while bids pay."""
    members = list(quick.members)
    offers = make_offers(fit, members, trains)
    bids = []
    while offers:
        gains = [max(0.0, find_gain(held, 1 + offer.place)) for offer in offers]
        best = max(range(len(offers)), key=lambda i: (gains[i] / offers[i].seconds, -i))
        offer = offers.pop(best)
        bid = Bid(offer.recipe.name, offer.seconds, gains[best], accepted=True)
        if not pays(fit.request.config, bid.gain, bid.seconds):
            bids.append(bid._replace(accepted=False))
            continue

        announce(f"  pool: {bid.name} in full", fit.request.verbose)
        (member,) = fit_members([offer.recipe], trains, judges, fit.rows.blocks)
        before = find_loss(held.log_proba, held)
        members[offer.place] = member
        held = replace_member(held, 1 + offer.place, member, judges)
        brought = before - find_loss(held.log_proba, held)
        bids.append(bid._replace(took=member.seconds, brought=brought))

    return held, quick._replace(
        recipes=tuple(member.recipe for member in members),
        members=tuple(members),
        seconds=sum(member.seconds for member in members),
        bids=tuple(bids),
    )


def make_offers(
    fit: ClassifierFit, quick: Sequence[FittedMember], trains: Table
) -> list[Offer]:
    """Return the full fits that quick ones offer, with their seconds."""
    size = measure(fit, trains)
    offers = []
    for place, (recipe, found) in enumerate(zip(fit.recipes, quick, strict=True)):
        if isinstance(recipe, Boosting) and isinstance(found.recipe, Boosting):
            full = recipe.buy_rounds(found.recipe.slope, trains.n_classes)
            assert full.first is not None
            grown = found.recipe.count_first(trains.n_classes)
            ratio = size.boost(full.first) / size.boost(grown, QUICK_LEAVES)
            offers.append(Offer(place, full, ratio * found.seconds))
        elif isinstance(recipe, Forests) and isinstance(found.recipe, Forests):
            ratio = recipe.count_turns(trains.X) / found.recipe.count_turns(trains.X)
            offers.append(Offer(place, recipe, ratio * found.seconds))

    return offers


def measure(fit: ClassifierFit, table: Table) -> MemberSize:
    """Return the size of a table for trees, which see a category as one column."""
    wide = [block.stop - block.start for block in fit.rows.blocks]
    columns = table.X.shape[1] - sum(width - 1 for width in wide if width > 2)
    return MemberSize(table.n_rows, columns, table.n_classes, table.n_latent)


def replace_member(
    held: HeldOut, j: int, member: FittedMember, judges: Table
) -> HeldOut:
    """Return the held-out rows with another fit of member j."""
    logs = held.log_proba.copy()
    logs[j] = member.member.log_proba(judges.X)
    seconds = list(held.seconds)
    seconds[j] += member.seconds
    return held._replace(log_proba=logs, seconds=tuple(seconds))


def bid_to_refit(
    fit: ClassifierFit, candidates: Candidates, verdict: Verdict, judges: Table
) -> Bid:
    """Return the bid of a fit of the members to all rows, held-out ones included.

    A quick fit to half of the rows tells what twice as many bring to one member.
    """
    trains = fit.judge.trains
    assert isinstance(trains, Table)
    held = verdict.held_out
    quick = next(
        found
        for found in candidates.quick
        if isinstance(found.recipe, Boosting | Forests)
    )
    half = draw_cases(trains, trains.n_rows // 2, fit.request.seed)
    (less,) = fit_members([quick.recipe], half, None, fit.rows.blocks)
    logs = [found.member.log_proba(judges.X) for found in (less, quick)]
    doubling = find_loss(logs[:1], held) - find_loss(logs[1:], held)
    share = 1 - verdict.weights[0] / sum(verdict.weights)
    gain = share * doubling * math.log2(fit.cases.n_rows / trains.n_rows)
    used = zip(candidates.members, verdict.weights[1:], strict=True)
    seconds = sum(member.seconds for member, weight in used if weight)
    accepted = pays(fit.request.config, gain, seconds)
    return Bid(REFIT, seconds, max(0.0, gain), accepted)


def find_gain(known: HeldOut, j: int) -> float:
    """Return the nats per row that the pool loses without member j."""
    others = np.delete(known.log_proba, j, axis=0)
    return find_loss(others, known) - find_loss(known.log_proba, known)


def find_loss(logs: Sequence[Floats] | Floats, known: HeldOut) -> float:
    """Return the log loss of a pool whose weights are fitted to the same rows."""
    weights = fit_weights(list(logs), known.y, known.weight)
    mixed = np.tensordot(weights, np.stack(list(logs)), 1)
    mixed -= np.logaddexp.reduce(mixed, axis=1, keepdims=True)
    own = mixed[np.arange(len(known.y)), known.y]
    return float(-np.average(own, weights=known.weight))
