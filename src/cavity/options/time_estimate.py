"""How long a plan will take, before it is executed: counts of its work times the speed of this machine. [decision 40]

    step      5 ms + .5 ns · C M² (B + M/2) + 65 ns · C M (B + M)       C latent functions, M points, B rows
    training  one step per batch and epoch; L-BFGS takes four steps per epoch
    fold      two steps on its rows, or the whole training again
    trees     by leaves, rows and columns; boosting and networks are fitted to every fold and to all rows if the first fold asks
              for it, a forest takes all threads

The constants are CPU seconds of one core on which `measure_slowness` is 1. It times a few small operations once per fit.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch

from cavity.options.plan import CalibrationPlan, Plan, TrainingPlan

STEP_SECONDS, PRODUCT_SECONDS = 5e-3, 5e-10  # of a step's many small operations, and of its products
VALUE_SECONDS = 6.5e-8  # of a kernel value, with its derivatives
LBFGS_STEPS = 4  # per epoch: line search, and sweeps of the sites at every point
FOLD_STEPS = 2  # of a fit at known hyper-parameters
LEAVES, LEAST_LEAF = 31, 20  # of a boosted tree, and its rows per leaf
LEAF_SECONDS, LEAF_COLUMN_SECONDS, CELL_SECONDS = 5e-5, 2e-6, 3e-8  # of boosting
TREE_SECONDS, TREE_ROW_SECONDS = 1.5e-4, 5e-7  # of a forest's tree, and per row and √columns
# of a network, and per row; half as much again with 100 columns
NETWORK_SECONDS, NETWORK_ROW_SECONDS = 0.04, 1e-5
WEIGHING_SECONDS = 0.15  # of gate, predictions and weights
REFERENCE_SECONDS = 1.1e-3  # of the operations below on the machine that the constants come from
REPEATS = 5


def measure_slowness() -> float:
    """Return the time of small operations relative to the machine of the constants; it takes a few milliseconds."""
    A = torch.linspace(0, 1, 2 * 100 * 200, dtype=torch.float64).reshape(2, 100, 200)
    eye, fastest = 200 * torch.eye(100, dtype=torch.float64), float("inf")
    for _ in range(REPEATS):  # the fastest: other work on the machine only adds
        begun = time.perf_counter()
        torch.linalg.cholesky(torch.exp(-A) @ A.mT + eye)
        fastest = min(fastest, time.perf_counter() - begun)
    return fastest / REFERENCE_SECONDS


def add_estimate(plan: Plan, fast: Plan | None) -> Plan:
    """Return the plan with the seconds that it will take on this machine; `fast`: the plan of effort="fast"."""
    known = any(_has_estimate(each.training) for each in (plan, fast) if each is not None)
    slowness = measure_slowness() if known else 1.0
    quick = {} if fast is None else estimate_seconds(fast, slowness)
    return replace(
        plan, seconds=estimate_seconds(plan, slowness), fast_seconds=sum(quick.values()) if quick else None
    )


def estimate_seconds(plan: Plan, slowness: float) -> dict[str, float]:
    """Return seconds by stage; empty on a GPU, and where training ends by its tolerance alone."""
    given, calibration = plan.training, plan.calibration
    if not _has_estimate(given):
        return {}
    training = replace(given, rows=given.distinct or given.rows)
    found = {"training": _train(training)}
    if calibration is not None and calibration.fits:
        part = replace(training, rows=round(training.rows * (1 - 1 / calibration.parts)))
        each = _train(part) if calibration.relearns else FOLD_STEPS * _step(part, part.rows)
        found["folds"] = calibration.fits * each
    if calibration is not None and calibration.trees:
        found["trees"] = _grow_trees(given, calibration)
    return {stage: slowness * seconds for stage, seconds in found.items()}


def _has_estimate(plan: TrainingPlan) -> bool:
    return plan.device == "cpu" and bool(plan.rough or plan.batch_size)


def _train(plan: TrainingPlan) -> float:
    if plan.batch_size is None:
        return plan.max_epochs * LBFGS_STEPS * _step(plan, plan.rows)
    batches = -(-plan.rows // plan.batch_size)
    return plan.max_epochs * batches * _step(plan, plan.batch_size)


def _step(plan: TrainingPlan, rows: int) -> float:
    M = plan.n_inducing
    values = PRODUCT_SECONDS * M * (rows + M / 2) + VALUE_SECONDS * (rows + M)
    return STEP_SECONDS + plan.latent * M * values


def _grow_trees(training: TrainingPlan, plan: CalibrationPlan) -> float:
    rows, columns = training.rows, training.columns
    leaves = min(LEAVES, max(2, rows // LEAST_LEAF))
    boosted = leaves * (LEAF_SECONDS + LEAF_COLUMN_SECONDS * columns) + CELL_SECONDS * rows * columns
    tree = TREE_SECONDS + TREE_ROW_SECONDS * rows * math.sqrt(columns)
    fits = plan.fits + 1
    forest = plan.trees * tree * (1 if plan.bootstrap else fits) / plan.threads
    others = plan.rounds * training.latent * boosted
    others += plan.networks * (NETWORK_SECONDS + NETWORK_ROW_SECONDS * rows) * (1 + columns / 200)
    # one fit of these or all: the first fold decides
    return WEIGHING_SECONDS + (math.sqrt(fits) if plan.selects else fits) * others + forest
