"""How long a plan takes on this machine, before it is executed.

    step      5 ms + .5 ns · C M² (B + M/2) + 65 ns · C M (B + M)
    training  one step per batch and epoch; L-BFGS takes four steps per epoch, or 1.3
              for a regressor, whose sites need no sweeps
    folds     the training again, on their rows; of a regressor half of it
    pool      see `pool.seconds`; every part and all rows are fitted

C are latent functions, M inducing points, B rows per step.
The constants are CPU seconds of one core on which `measure_slowness` is 1. It times a
few small operations once per fit.
"""

from __future__ import annotations

import time

import torch

from cavity.engine.training.threads import limit_threads
from cavity.fitting.options.plan import FitPlan, JudgingPlan, TrainingPlan
from cavity.pool.members import NETWORK_STEPS
from cavity.pool.plan import MembersPlan
from cavity.pool.seconds import MemberSize

Seconds = dict[str, float]  # by stage

# Training.
STEP_SECONDS = 5e-3  # the many small operations of a step
PRODUCT_SECONDS = 5e-10  # a multiplication of its products
VALUE_SECONDS = 6.5e-8  # a kernel value with its derivatives
LBFGS_STEPS = 4  # per epoch: line search, and sweeps of the sites at every point
TARGET_STEPS = 1.3  # of a regressor
# epochs of a regressor that ends by its tolerance: all rows are inducing points, or
# their places are learnt
USUAL_EPOCHS = 25
POINT_EPOCHS = 300

SEARCHING = 4  # steps of networks that are tried, per first step: 2 to 8 on ten tables
WEIGHING_SECONDS = 0.15  # gate, predictions and weights of the pool
MOST_FEW = 200  # every plan has time for as many rows
REFERENCE_SECONDS = 1.1e-3  # `measure_slowness` on the machine of these constants
REPEATS = 5


def measure_slowness() -> float:
    """Return the time of small operations relative to the reference machine.

    It takes a few milliseconds.
    """
    A = torch.linspace(0, 1, 2 * 100 * 200, dtype=torch.float64).reshape(2, 100, 200)
    eye = 200 * torch.eye(100, dtype=torch.float64)
    fastest = float("inf")
    with limit_threads(0):  # on a busy machine threads wait for each other
        for _ in range(REPEATS):  # the fastest: other work on the machine only adds
            begun = time.perf_counter()
            torch.linalg.cholesky(torch.exp(-A) @ A.mT + eye)
            fastest = min(fastest, time.perf_counter() - begun)

    return fastest / REFERENCE_SECONDS


def estimate_fits(plan: FitPlan, fast: FitPlan | None) -> tuple[Seconds, float | None]:
    """Return the seconds by stage that a plan takes here, and all of `fast`, if known."""
    known = _has_estimate(plan.training)
    if fast is not None:
        known = known or _has_estimate(fast.training)
    slowness = measure_slowness() if known else 1.0
    seconds = estimate_seconds(plan, slowness)
    if fast is None:
        return seconds, None

    quick = estimate_seconds(fast, slowness)
    return seconds, sum(quick.values()) if quick else None


def estimate_seconds(plan: FitPlan, slowness: float) -> Seconds:
    """Return seconds by stage; empty on a GPU, or where only the tolerance ends a fit."""
    training = plan.training
    judging = plan.judging
    if not _has_estimate(training):
        return {}

    distinct = training.distinct or training.rows
    found = {"training": _train(training, distinct)}
    if judging is not None and judging.how in ("folds", "one fold"):
        kept = round(distinct * (1 - 1 / judging.parts))
        fits = judging.folds * judging.share * _count_again(training)
        found["folds"] = fits * _train(training, kept)
    if judging is not None and plan.members.linear:
        found["pool"] = _fit_members(training, judging, plan.members)
    return {stage: slowness * seconds for stage, seconds in found.items()}


def _has_estimate(plan: TrainingPlan) -> bool:
    ends = plan.loose or _is_of_targets(plan)
    known = plan.batch_size or (plan.optimizer == "lbfgs" and ends)
    return plan.device == "cpu" and bool(known)


def _is_of_targets(plan: TrainingPlan) -> bool:
    """Return whether the plan is of a regressor."""
    return plan.classes == 1


def _count_again(plan: TrainingPlan) -> float:
    """Return the share of the epochs that a fit without some rows takes."""
    if _is_of_targets(plan) and plan.batch_size is None:
        return 0.5

    return 1.0


def _train(plan: TrainingPlan, rows: int) -> float:
    if plan.batch_size is not None:
        batches = -(-rows // plan.batch_size)
        return plan.max_epochs * batches * _step(plan, plan.batch_size)
    if not _is_of_targets(plan):
        return plan.max_epochs * LBFGS_STEPS * _step(plan, rows)

    usual = USUAL_EPOCHS if plan.n_inducing >= rows else POINT_EPOCHS
    return min(plan.max_epochs, usual) * TARGET_STEPS * _step(plan, rows)


def _step(plan: TrainingPlan, rows: int) -> float:
    M = plan.n_inducing
    values = PRODUCT_SECONDS * M * (rows + M / 2) + VALUE_SECONDS * (rows + M)
    return STEP_SECONDS + plan.latent * M * values


def _fit_members(
    training: TrainingPlan, judging: JudgingPlan, members: MembersPlan
) -> float:
    fits = 1.0
    if judging.how == "folds":
        fits = judging.folds * judging.share + 1
    elif members.refits:
        fits = 2

    size = MemberSize(
        training.rows, training.columns, training.classes, training.latent
    )
    first = min(members.network_steps, NETWORK_STEPS)
    search = min(members.network_steps, SEARCHING * NETWORK_STEPS)
    networks = size.train(search) + (fits - 1) * size.train(first)
    return WEIGHING_SECONDS + fits * estimate_trees(members, size) + networks


def estimate_trees(members: MembersPlan, size: MemberSize) -> float:
    """Return the CPU seconds of one fit of boosting and forest, on the reference."""
    seconds = size.grow(members.trees)
    if members.rate:
        seconds += size.boost(size.count_rounds(members.rate))
    return seconds


def fits_in(plan: FitPlan, seconds: float) -> bool:
    """Return whether the plan should finish within `seconds`."""
    known = estimate_seconds(plan, measure_slowness())
    return bool(known) and sum(known.values()) <= seconds


def count_rows_in(plan: TrainingPlan, seconds: float) -> int:
    """Return how many rows one pass of steps can visit within the seconds."""
    rows = plan.batch_size or plan.rows
    return max(MOST_FEW, int(rows * seconds / (measure_slowness() * _step(plan, rows))))
