"""Folds judge a classifier: models that learn again without some of the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.common.progress import announce, make_bar
from cavity.common.types import Ints
from cavity.engine import runs
from cavity.errors import NotPositiveDefinite
from cavity.fitting.begin import Begun, begin_run
from cavity.fitting.cases import number_cases
from cavity.fitting.fit import Candidates, ClassifierFit, Judged
from cavity.fitting.held_out import HeldOut, drop_members, join_folds, predict_rows
from cavity.fitting.options import policy
from cavity.fitting.options.plan import JudgingPlan
from cavity.fitting.refits import refit_members
from cavity.fitting.request import Request
from cavity.fitting.training_rows import prepare_rows
from cavity.fitting.verdict import Verdict, weigh
from cavity.pool.members import fit_members
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


@dataclass(frozen=True)
class Folds:
    """Every row is judged by a model that was fitted without its fold."""

    plan: JudgingPlan
    trains: Table
    fold: Ints  # [N]

    training_share = TRAINING

    def fit_members(self, fit: ClassifierFit) -> Candidates:
        """Return the recipes: every fold fits members of its own."""
        return Candidates(fit.recipes)

    def hold_out(
        self, fit: ClassifierFit, begun: Begun, candidates: Candidates
    ) -> tuple[HeldOut | None, Candidates]:
        """Predict every fold by models that learnt without it, while there is time."""
        request = fit.request
        clock = request.clock
        epochs = max(1, len(begun.run.history))
        unit = number_cases(self.trains)
        numbers = [i for i in range(self.plan.parts) if (self.fold == i).any()]
        more = f"{len(numbers)} more fit{'s' * (len(numbers) != 1)}"
        announce(
            f"  judging: {more}, each without 1 of {self.plan.parts} parts of the rows",
            request.verbose,
        )
        recipes = list(candidates.recipes)
        notes = list(candidates.notes)
        judged: list[HeldOut] = []
        shown = numbers
        if request.verbose:
            shown = make_bar(request.verbose, numbers, desc="judging", unit="fit")
        for i in shown:
            seconds = None
            if clock.limit is not None:
                seconds = clock.left() / (len(numbers) - len(judged))
            if judged and not clock.has(0.0):
                notes.append(
                    f"time_limit={clock.limit:g}: {len(judged)} of {len(numbers)} folds "
                    "judge the model."
                )
                break

            out = self.fold == i
            rest = self.trains.select(~out)
            held = self.trains.select(out)
            began = clock.spent()
            try:
                model = fit_fold(request.for_fold(seconds), fit.rows, rest, epochs)
            except NotPositiveDefinite:
                notes.append(FAILED_PART)
                continue

            taken = clock.spent() - began
            members = fit_members(
                recipes, rest, held, fit.rows.blocks, clock.share(MEMBERS)
            )
            recipes = [found.recipe for found in members]
            judged.append(
                predict_rows(
                    model,
                    members,
                    held,
                    how="",
                    kind=FOLDS,
                    seconds=taken,
                    unit=unit[out],
                    part=np.full(held.n_rows, i),
                )
            )
            if len(judged) == 1:  # members without weight are not fitted again
                kept = np.flatnonzero(weigh(judged[0])[1:])
                recipes = [recipes[j] for j in kept]
                judged = [drop_members(judged[0], np.append(0, kept + 1))]

        if not judged:
            return None, Candidates(notes=tuple(notes))

        how = f"{len(judged)} folds{note_groups(self.trains)}"
        if len(judged) < len(numbers):
            how = f"{len(judged)} of {len(numbers)} folds{note_groups(self.trains)}"
        joined = join_folds(judged, how)
        own, *others = joined.seconds
        joined = joined._replace(seconds=(own + begun.seconds, *others))
        recipes = recipes[: len(joined.log_proba) - 1]
        return joined, Candidates(tuple(recipes), notes=tuple(notes))

    def finish(
        self,
        fit: ClassifierFit,
        begun: Begun,
        verdict: Verdict,
        candidates: Candidates,
    ) -> Judged:
        """Fit the members that count to all rows: no member of folds has seen them."""
        members, verdict = refit_members(fit, candidates.recipes, verdict)
        return Judged(begun, verdict, members, notes=candidates.notes)


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
    plan = policy.plan_training(request.config, training.size, M, epochs)
    begun = begin_run(request, plan, training)
    run = runs.train(replace(begun.run, settles=False))
    return extract_model(run.engine, run.state)
