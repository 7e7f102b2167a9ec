"""Who judges a classifier: a held-out part, rows of eval_set, folds, or leave-one-out.

`folds` and `leave_one_out` have the last two. All end in the same value, `HeldOut`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cavity.errors import NotPositiveDefinite
from cavity.fitting import adapter
from cavity.fitting.begin import Begun
from cavity.fitting.bids import bid_to_refit, make_quick, take_bids
from cavity.fitting.cases import number_folds
from cavity.fitting.fit import Candidates, ClassifierFit, Judge, Judged, Trained
from cavity.fitting.folds import MEMBERS, Folds, note_groups
from cavity.fitting.held_out import HeldOut, RowsOf, predict_rows
from cavity.fitting.leave_one_out import LeaveOneOut
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import JudgingPlan
from cavity.fitting.refits import drop_weightless, refit_members
from cavity.fitting.request import Request
from cavity.fitting.verdict import LEAST_WEIGHT, Verdict, judge_rows
from cavity.pool.members import Recipe, fit_members
from cavity.prediction.estimate import FOLDS, FULL_ROWS, HELD_OUT
from cavity.prediction.model import extract_model
from cavity.tables.labelled import LabelledTable
from cavity.tables.table import Facts, Table

TRAINING = 0.7  # share of the seconds that are left


def make_judge(
    request: Request[ClassifierConfig],
    rows: LabelledTable,
    cases: Facts,
    plan: JudgingPlan,
) -> Judge:
    """Choose the evaluation rows: a held-out part, rows of the user, folds or none.

    If every row is needed for training, leave-one-out judges.
    """
    if rows.held is not None and plan.how == "part":  # groups of a source
        return Part(plan, cases, rows.held)
    if rows.held is not None:
        return EvalSet(plan, cases, rows.held)
    if plan.how == "folds" and isinstance(cases, Table):
        return Folds(plan, cases, number_folds(cases, plan, request.seed))

    if plan.how == "part" and isinstance(cases, Table):
        out = number_folds(cases, plan, request.seed) == 0
        if out.any():
            return Part(plan, cases.select(~out), cases.select(out))

        plan = replace(plan, how="leave-one-out", parts=0)

    return LeaveOneOut(plan, cases)


def judge(trained: Trained) -> Judged:
    """Judge a trained model, and weigh the pool, by rows that they did not see."""
    fit = trained.fit
    held_out, candidates = fit.judge.hold_out(trained)
    if held_out is None:
        return judge_alone(fit, trained.begun)._replace(notes=candidates.notes)

    verdict = judge_rows(held_out, fit.rows.class_prior)
    return fit.judge.finish(trained._replace(candidates=candidates), verdict)


def judge_alone(fit: ClassifierFit, begun: Begun) -> Judged:
    """Judge a trained model by leave-one-out, where no other rows can."""
    last = LeaveOneOut(fit.judge.plan, fit.judge.trains)
    trained = Trained(fit, begun)
    held_out, _ = last.hold_out(trained)
    if held_out is None:
        return Judged(begun)

    verdict = judge_rows(held_out, fit.rows.class_prior)
    return last.finish(trained, verdict)


@dataclass(frozen=True)
class EvalSet:
    """Rows of the user judge the model."""

    plan: JudgingPlan
    trains: Facts
    held: Table

    where = "of eval_set"
    of: ClassVar[RowsOf] = "eval_set"
    training_share = TRAINING

    def fit_members(self, fit: ClassifierFit) -> Candidates:
        """Fit members to the rows that train; held-out rows decide how large they get."""
        request = fit.request
        recipes = list(fit.recipes)
        bidding = fit.plan.members.asks
        if bidding:
            import sklearn.ensemble  # noqa: F401  it takes seconds of no member

            recipes = [make_quick(recipe) for recipe in recipes]
        if not recipes or not isinstance(self.trains, Table):
            return Candidates()

        began = request.clock.spent()
        left = request.clock.share(MEMBERS)
        found = fit_members(recipes, self.trains, self.held, fit.rows.blocks, left)
        return Candidates(
            recipes=tuple(each.recipe for each in found),
            members=tuple(found),
            seconds=request.clock.spent() - began,
            notes=note_missing(request, recipes[len(found) :]),
            quick=tuple(found) if bidding else (),
        )

    def hold_out(self, trained: Trained) -> tuple[HeldOut, Candidates]:
        """Predict the held-out rows."""
        fit, begun, candidates = trained
        model = extract_model(begun.run.engine, begun.run.state)
        how = f"{self.held.n_rows} rows {self.where}{note_groups(self.held)}"
        kind = HELD_OUT
        if self._is_small_part(fit.cases):
            kind = FOLDS
        found = predict_rows(
            model,
            candidates.members,
            self.held,
            how=how,
            kind=kind,
            seconds=begun.seconds,
            of=self.of,
        )
        if candidates.quick and isinstance(self.trains, Table):
            return take_bids(fit, found, candidates, self.trains, self.held)

        return found, candidates

    def _is_small_part(self, cases: Facts) -> bool:
        """Return whether another draw of these rows would make another model."""
        return False

    def finish(self, trained: Trained, verdict: Verdict) -> Judged:
        """Keep the members that count."""
        candidates = trained.candidates
        members = drop_weightless(candidates.members, verdict)
        return Judged(
            trained.begun,
            verdict,
            members,
            notes=candidates.notes,
            bids=candidates.bids,
        )


class Part(EvalSet):
    """A part of the rows is held out, and trains the model after it has judged it."""

    where = "held out"
    of: ClassVar[RowsOf] = "cases"

    def _is_small_part(self, cases: Facts) -> bool:
        return (cases.n_groups or cases.n_rows) <= FULL_ROWS

    def finish(self, trained: Trained, verdict: Verdict) -> Judged:
        """Add held-out rows to the Gaussian process, and fit members again, in time."""
        fit, begun, candidates = trained
        if not fit.plan.training.sample and has_time_to_extend(fit, begun, verdict):
            begun = extend(fit, begun)
        bids = candidates.bids
        refits = fit.plan.members.refits and fit.request.clock.has(candidates.seconds)
        if refits and candidates.quick:
            bid = bid_to_refit(fit, candidates, verdict, self.held)
            bids = (*bids, bid)
            refits = bid.accepted
        if refits:
            members, verdict = refit_members(fit, candidates.recipes, verdict)
        else:
            members = drop_weightless(candidates.members, verdict)

        return Judged(begun, verdict, members, notes=candidates.notes, bids=bids)


def has_time_to_extend(fit: ClassifierFit, begun: Begun, verdict: Verdict) -> bool:
    """Return whether the Gaussian process counts, and there is time for a few passes."""
    if verdict.weights[0] < LEAST_WEIGHT:
        return False

    run = begun.run
    clock = fit.request.clock
    if clock.limit is None:
        return not run.is_late()

    return clock.has(3 * run.pace * run.rows.n_rows)


def extend(fit: ClassifierFit, begun: Begun) -> Begun:
    """Add the sites of held-out rows at the learnt hyper-parameters."""
    cases = fit.cases
    rest = fit.judge.trains
    own = begun.rows.table
    if not isinstance(cases, Table) or not isinstance(own, Table):
        return begun  # rows that are not in memory
    if begun.rows.seen is not rest or not isinstance(rest, Table):
        return begun  # some rows are left for early stopping
    if begun.run.engine.sites.tied:
        return begun  # sites belong to no row

    known = np.arange(rest.n_rows)
    if own.place is not None:
        known = own.place
    place = np.full(cases.n_rows, -1)
    place[np.searchsorted(cases.numbers, rest.numbers)] = known
    trained = cases
    if own.place is not None:  # a table of cells
        trained = cases.merge(cells=True)
        assert trained.place is not None
        known = np.full(trained.n_rows, -1)
        np.maximum.at(known, trained.place, place)
        place = known

    earlier = own.weight[np.maximum(place, 0)]
    share = np.where(place < 0, 0.0, trained.weight / earlier)
    with suppress(NotPositiveDefinite):
        run = adapter.extend_rows(
            begun.run, begun.config, begun.plan, trained, np.maximum(place, 0), share
        )
        rows = begun.rows._replace(table=trained, seen=cases)
        return begun._replace(run=run, rows=rows)

    return begun


def note_missing(
    request: Request[ClassifierConfig], recipes: Sequence[Recipe]
) -> tuple[str, ...]:
    """Say which members a time limit left out of the pool."""
    if not recipes or request.clock.limit is None:
        return ()

    *others, last = (recipe.name for recipe in recipes)
    listed = last
    if others:
        listed = f"{', '.join(others)} and {last}"
    limit = request.clock.limit
    return (f"time_limit={limit:g} left no time for {listed} in the pool.",)
