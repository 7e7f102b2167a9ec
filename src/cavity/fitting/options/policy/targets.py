"""Which rows judge a regressor, and how long it learns again for that."""

from __future__ import annotations

import math
from typing import NamedTuple

from cavity.fitting.options.configuration import Config
from cavity.fitting.options.plan import JudgingPlan, TableSize, TrainingPlan
from cavity.fitting.options.policy.judging import FOLD_ROWS, HELD_MOST, LEAST_PARTS

TARGET_FOLDS = 5  # of a regressor
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
    elif rows <= FOLD_ROWS["balanced"]:
        how = "folds"
        parts = TARGET_FOLDS
        why = f"up to {FOLD_ROWS['balanced']:,} rows"
    else:
        how = "one fold"
        parts = max(LEAST_PARTS, math.ceil(rows / HELD_MOST))
        why = f"more than {FOLD_ROWS['balanced']:,} rows"
    return JudgingPlan(how=how, temperature=False, parts=parts, why=why)


def count_fold_epochs(plan: TrainingPlan, epochs: int) -> int:
    """Return the epochs of a regressor that judges another one.

    After half the epochs of L-BFGS, predictions hardly change. Mini-batches need all.
    """
    if plan.batch_size is not None:
        return max(1, epochs)

    return min(max(LEAST_EPOCHS, epochs // 2), plan.max_epochs)
