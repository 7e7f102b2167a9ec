"""Which rows judge a regressor, and how long it learns again for that."""

from __future__ import annotations

import math
from typing import NamedTuple

from cavity.fitting.options.configuration import Config
from cavity.fitting.options.plan import JudgingPlan, TableSize, TrainingPlan
from cavity.fitting.options.policy.judging import HELD_MOST, LEAST_PARTS

TARGET_FOLDS = 5  # of a regressor
FOLD_ROWS = 1000  # up to which all of them judge; on more rows fewer do
FOLD_UNITS = 10  # rows; with fewer, leave-one-out judges a regressor
LEAST_EPOCHS = 5  # of a fold


class TargetCases(NamedTuple):
    """What decides which rows judge a regressor."""

    size: TableSize
    in_memory: bool
    eval_set: bool  # the user gave rows to judge by


def plan_target_judging(config: Config, cases: TargetCases) -> JudgingPlan:
    """Plan which rows judge a regressor."""
    rows = cases.size.rows
    affordable = TARGET_FOLDS * FOLD_ROWS / rows  # folds
    parts = 0
    if cases.eval_set:
        how = "eval_set"
        why = "given"
    elif not cases.in_memory:
        how = "none"
        why = "rows that are not in memory"
    elif not config.learn or rows < FOLD_UNITS:
        how = "leave-one-out"
        why = f"nothing is learnt but sites, or fewer than {FOLD_UNITS} rows"
    elif affordable > 1:
        how = "folds"
        parts = TARGET_FOLDS
        why = f"all up to {FOLD_ROWS:,} rows"
    else:
        how = "one fold"
        parts = max(LEAST_PARTS, math.ceil(rows / HELD_MOST))
        why = f"at least {TARGET_FOLDS * FOLD_ROWS:,} rows"
    folds = None
    if how == "folds" and affordable < parts:
        folds = math.ceil(affordable)
    return JudgingPlan(
        how=how, temperature=False, parts=parts, most_folds=folds, why=why
    )


def count_fold_epochs(plan: TrainingPlan, epochs: int) -> int:
    """Return the epochs of a regressor that judges another one.

    After half the epochs of L-BFGS, predictions hardly change. Mini-batches need all.
    """
    if plan.batch_size is not None:
        return max(1, epochs)

    return min(max(LEAST_EPOCHS, epochs // 2), plan.max_epochs)
