"""Judge a classifier by rows that it did not see: those held out of it, or folds that
learn again without them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cavity.common.progress import announce, make_bar
from cavity.engine import runs
from cavity.errors import NotPositiveDefinite
from cavity.fitting.begin import begin_classifier
from cavity.fitting.held_out import Split, number_cases, number_folds
from cavity.fitting.judging import (
    Held,
    Judged,
    join_folds,
    judge_rows,
    predict_rows,
    weigh,
)
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import CalibrationPlan
from cavity.fitting.request import Request
from cavity.pool.members import Recipe, fit_members
from cavity.pool.pool import Member
from cavity.prediction.estimate import FOLDS, FULL_ROWS, HELD_OUT
from cavity.prediction.model import FittedModel, extract_model
from cavity.tables.labelled import LabelledTable
from cavity.tables.table import Table

# share of the seconds that are left: members of a pool give most per second
MEMBERS = 0.75
FAILED_PART = (
    "a fit on part of the rows could not be factorised: the estimate comes from the "
    "other rows."
)


def judge_held(
    split: Split, plan: CalibrationPlan, model: FittedModel, members: list[Member]
) -> Judged:
    """Judge a model by rows that were held out of it, or those of eval_set."""
    held = split.held
    where = "held out" if plan.how == "part" else "of eval_set"
    assert held is not None
    found = predict_rows(model, members, held, number_cases(held))
    small = (
        plan.how == "part" and (split.table.n_groups or split.table.n_rows) <= FULL_ROWS
    )
    how = f"{held.n_rows} rows {where}{name_groups(held)}"
    return judge_rows(found, split.given.class_prior, how, FOLDS if small else HELD_OUT)


def name_groups(held: Table) -> str:
    return "" if held.group is None else ", groups kept together"


def judge_folds(
    request: Request[ClassifierConfig],
    split: Split,
    epochs: int,
    plan: CalibrationPlan,
    pool: list[Recipe],
) -> tuple[Judged | None, list[Recipe], list[str]]:
    """Judge the model by fits without some of the rows; also return the pool's recipes
    with what folds decided, and notes.
    """
    table = split.table
    clock = request.clock
    verbose = request.verbose
    assert isinstance(table, Table)
    fold = number_folds(table, plan, request.seed)
    unit = number_cases(table)
    folds = [i for i in range(plan.parts) if (fold == i).any()]
    found = list[Held]()
    notes = list[str]()
    more = f"{len(folds)} more fit{'s' * (len(folds) != 1)}"
    announce(
        f"  judging: {more}, each without 1 of {plan.parts} parts of the rows", verbose
    )
    for i in make_bar(verbose, folds, desc="judging", unit="fit") if verbose else folds:
        seconds = None
        if clock.limit is not None:
            seconds = clock.left() / (len(folds) - len(found))
        if found and not clock.has(0.0):
            notes.append(
                f"time_limit={clock.limit:g}: {len(found)} of {len(folds)} folds judge "
                f"the model."
            )
            break
        rest = table.select(fold != i)
        held = table.select(fold == i)
        try:
            model = fit_fold(request.for_fold(seconds), split.given, rest, epochs)
        except NotPositiveDefinite:
            notes.append(FAILED_PART)
            continue
        members, pool = fit_members(
            pool, rest, held, split.given.blocks, clock.share(MEMBERS)
        )
        found.append(
            predict_rows(model, members, held, unit[fold == i], np.full(held.n_rows, i))
        )
        if len(found) == 1:  # members that do not count are not fitted again
            kept = np.flatnonzero(weigh(found[0])[1:])
            pool = [pool[j] for j in kept]
            found = [found[0]._replace(logs=found[0].logs[[0, *(kept + 1)]])]
    if not found:
        return None, [], notes
    joined = join_folds(found)
    of = ""
    if len(found) < len(folds):
        of = f" of {len(folds)}"
    how = f"{len(found)}{of} folds{name_groups(table)}"
    judged = judge_rows(joined, split.given.class_prior, how, FOLDS)
    return judged, pool[: len(joined.logs) - 1], notes


def fit_fold(
    request: Request[Any], rows: LabelledTable, rest: Table, epochs: int
) -> FittedModel:
    """Learn again on part of the rows, for as many epochs: a model that learns on
    becomes surer, and another one.
    """
    run = begin_classifier(request, rows, rest).run
    run.plan = replace(run.plan, max_epochs=epochs)
    run.settles = False
    run = runs.train(run)
    return extract_model(run.engine, run.state)
