"""Folds judge a classifier: models that learn again without some of the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cavity.common.progress import announce, make_bar
from cavity.common.types import Ints
from cavity.engine import runs
from cavity.errors import NotPositiveDefinite
from cavity.fitting.begin import begin_run
from cavity.fitting.cases import number_cases
from cavity.fitting.fit import Candidates, ClassifierFit, Judged, Trained
from cavity.fitting.held_out import HeldOut, drop_members, join_folds, predict_rows
from cavity.fitting.options.plan import JudgingPlan
from cavity.fitting.options.policy.training import plan_training
from cavity.fitting.refits import drop_weightless, refit_members
from cavity.fitting.request import Request
from cavity.fitting.training_rows import prepare_rows
from cavity.fitting.verdict import Verdict, weigh
from cavity.pool.members import FittedMember, Recipe, fit_members
from cavity.prediction.estimate import FOLDS
from cavity.prediction.model import FittedModel, extract_model
from cavity.tables.labelled import LabelledTable
from cavity.tables.table import Table

# share of the seconds that are left: members of a pool give most per second
MEMBERS = 0.75
TRAINING = 0.35  # share of the seconds that are left; folds take the rest
FAILED_PART = (
    "a fit on part of the rows could not be factorised: the estimate comes from the "
    "other rows."
)
PART_SEEN = (
    "time_limit={:g}: the other members of the pool learnt without 1 of {} parts of the "
    "rows."
)


@dataclass(frozen=True)
class Folds:
    """Rows are judged by a model that was fitted without their fold.

    On larger tables only some of the folds judge, after shorter training.
    """

    plan: JudgingPlan
    trains: Table
    fold: Ints  # [N]

    training_share = TRAINING

    @cached_property
    def unit(self) -> Ints:
        """The case of each row, [N]."""
        return number_cases(self.trains)

    def fit_members(self, fit: ClassifierFit) -> Candidates:
        """Return the recipes: every fold fits members of its own."""
        return Candidates(fit.recipes)

    def hold_out(self, trained: Trained) -> tuple[HeldOut | None, Candidates]:
        """Predict every fold by models that learnt without it, while there is time."""
        fit, begun, candidates = trained
        clock = fit.request.clock
        numbers = [i for i in range(self.plan.parts) if (self.fold == i).any()]
        numbers = numbers[: self.plan.folds]
        share = self.plan.share
        epochs = max(1, round(share * len(begun.run.history)))
        recipes = tuple(recipe.scale(share) for recipe in candidates.recipes)
        members: tuple[FittedMember, ...] = ()
        notes = list(candidates.notes)
        judged: list[HeldOut] = []
        for i in self._show(numbers, fit.request.verbose):
            if judged and not clock.has(0.0):
                notes.append(
                    f"time_limit={clock.limit:g}: {len(judged)} of {len(numbers)} folds "
                    "judge the model."
                )
                break

            seconds = None
            if clock.limit is not None:
                seconds = clock.left() / (len(numbers) - len(judged))
            try:
                held, members = self._judge_fold(fit, i, recipes, epochs, seconds)
            except NotPositiveDefinite:
                notes.append(FAILED_PART)
                continue

            if not judged:  # members without weight are not fitted again
                kept = np.flatnonzero(weigh(held)[1:])
                members = tuple(members[j] for j in kept)
                held = drop_members(held, np.append(0, kept + 1))
            recipes = tuple(member.recipe for member in members)
            judged.append(held)

        if not judged:
            return None, Candidates(notes=tuple(notes))

        joined = self._join(judged, begun.seconds)
        members = members[: len(joined.log_proba) - 1]
        return joined, Candidates(
            recipes=tuple(member.recipe.scale(1 / share) for member in members),
            members=members,
            seconds=sum(member.seconds for member in members),
            notes=tuple(notes),
        )

    def _show(self, numbers: list[int], verbose: int) -> Iterable[int]:
        """Return the folds, with a bar if the fit is verbose."""
        more = f"{len(numbers)} more fit{'s' * (len(numbers) != 1)}"
        announce(
            f"  judging: {more}, each without 1 of {self.plan.parts} parts of the rows",
            verbose,
        )
        if verbose:
            return make_bar(verbose, numbers, desc="judging", unit="fit")

        return numbers

    def _judge_fold(
        self,
        fit: ClassifierFit,
        i: int,
        recipes: tuple[Recipe, ...],
        epochs: int,
        seconds: float | None,
    ) -> tuple[HeldOut, tuple[FittedMember, ...]]:
        """Predict fold i by models of the other rows; return the members among them."""
        out = self.fold == i
        rest = self.trains.select(~out)
        held = self.trains.select(out)
        clock = fit.request.clock
        began = clock.spent()
        model = fit_fold(fit.request.for_fold(seconds), fit.rows, rest, epochs)
        taken = clock.spent() - began
        left = clock.share(MEMBERS)
        members = tuple(fit_members(recipes, rest, held, fit.rows.blocks, left))
        found = predict_rows(
            model,
            members,
            held,
            how="",
            kind=FOLDS,
            seconds=taken,
            unit=self.unit[out],
            part=np.full(held.n_rows, i),
        )
        return found, members

    def _join(self, judged: list[HeldOut], seconds: float) -> HeldOut:
        """Join the folds; `seconds`: of the model that they judge."""
        how = f"{len(judged)} folds{note_groups(self.trains)}"
        if len(judged) < self.fold.max() + 1:
            how = f"{len(judged)} of {self.fold.max() + 1} folds{note_groups(self.trains)}"
        joined = join_folds(judged, how)
        own, *others = joined.seconds
        return joined._replace(seconds=(own + seconds, *others))

    def finish(self, trained: Trained, verdict: Verdict) -> Judged:
        """Fit the members that count to all rows: no member of folds has seen them.

        Without time for it, the members of the last fold stay.
        """
        fit, begun, candidates = trained
        clock = fit.request.clock
        notes = candidates.notes
        if clock.has(candidates.seconds):
            members, verdict = refit_members(fit, candidates.recipes, verdict)
        else:
            members = drop_weightless(candidates.members, verdict)
            if members:
                notes += (PART_SEEN.format(clock.limit, self.plan.parts),)

        return Judged(begun, verdict, members, notes=notes)


def note_groups(held: Table) -> str:
    """Return what to say of groups after the number of rows or folds."""
    if held.group is None:
        return ""

    return ", groups kept together"


def fit_fold(
    request: Request[Any], rows: LabelledTable, rest: Table, epochs: int | None
) -> FittedModel:
    """Learn again on part of the rows, for as many epochs as the model to be judged.

    A model that learns for longer becomes surer, and another one.
    """
    training = prepare_rows(request, rows, rest)
    M = training.Z.shape[-2]
    plan = plan_training(request.config, training.size, M, epochs)
    begun = begin_run(request, plan, training)
    run = runs.train(replace(begun.run, settles=False))
    return extract_model(run.engine, run.state)
