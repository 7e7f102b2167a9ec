"""When training has converged, judged by the objective of its epochs."""

from __future__ import annotations

import math
import statistics
from typing import Any

from cavity.engine.training.steps import Steps

PROMISE = "promised_gain"  # of an epoch, in the history
# per row: a run that has converged is within this of what more steps would reach
PROMISED_TOL = 1e-5
WINDOW = 10  # epochs over which an improvement counts
SHARE = 5  # the last fifth of a run must be flat
# largest range of these epochs in units of tol; a steady change of tol per ten epochs
# has a range of 2 over twenty
HILL = 4
SMALL_MOVE = 0.01  # relative move of h in a sweep, in units of √tol
# per row, of sites in a loose plan; the gradient is then good to a few per cent [61]
LOOSE_TOL = 2e-3
LOOSE_CLASSES = 60  # above, LOOSE_TOL grows with the classes, as a row's sites do
# in a loose plan, later epochs must gain this much per row, or this share of what is left
# to gain
ENOUGH_EPOCHS = 5
LEAST_GAIN = 0.02
LEAST_SHARE = 0.03


def have_sweeps_converged(
    objectives: list[float], move: float, tol: float, rows: float
) -> bool:
    """Return whether the last sweep at fixed hyper-parameters changed little.

    `move` is the relative move of h in that sweep.

    log Z_q is stationary in the sites, so it converges long before q does: the
    tolerance for q's own move is √tol.
    """
    flat = len(objectives) > 1 and abs(objectives[-1] - objectives[-2]) < tol * rows
    return flat and move < SMALL_MOVE * math.sqrt(tol)


def have_epochs_converged(
    plan: Steps, history: list[dict[str, Any]], classes: int, rows: float
) -> bool:
    """Return whether the epochs of learning have converged, by the rule for their kind."""
    objectives = [row["objective"] for row in history]
    if plan.batch_size is not None:
        return have_batch_epochs_converged(objectives, plan.tol, rows)

    judges_loosely = plan.loose and plan.tol > 0
    if judges_loosely and have_loose_epochs_converged(
        objectives, classes, rows, plan.patience
    ):
        return True

    promises = [row.get(PROMISE, 0.0) for row in history]  # rows of L-BFGS have none
    return have_full_epochs_converged(objectives, promises, plan.tol, rows)


def have_full_epochs_converged(
    objectives: list[float], gains: list[float], tol: float, rows: float
) -> bool:
    """Return whether epochs on full batches are flat, and promise little.

    The last fifth of the run has to be flat.

    - A fifth of the run, at least ten epochs: a slow climb passes any fixed window.
    - A fall is not convergence: sites burn in, or SEP is on its way, whose gradient is
      not the gradient of its objective.
    - Means count, and not only the best epoch of each window: a single high epoch, when
      sites overshoot, would hide a steady gain.
    - `gains` are what the gradient promises for the steps. While they are large,
      hyper-parameters are still on their way, however flat the objective. SEP crosses
      such plains.
    """
    if len(objectives) <= WINDOW or tol == 0:
        return False

    back = max(WINDOW, len(objectives) // SHARE)
    seen = objectives[-back - WINDOW :]
    before = seen[:-back]
    now = seen[-WINDOW:]
    change = abs(statistics.fmean(now) - statistics.fmean(before))
    # at the top of a hill on the way the means agree, but the epochs do not
    spread = max(seen) - min(seen)
    gain = max(max(now) - max(before), now[-1] - now[-1 - WINDOW // 2])
    return max(change, gain, spread / HILL, sum(gains[-WINDOW:])) < tol * rows


def have_batch_epochs_converged(
    objectives: list[float], tol: float, rows: float
) -> bool:
    """Return whether epochs of mini-batches, whose objective is noisy, are flat.

    They are if the last ten gained less than `tol` per row over the ten before.
    """
    # while a running average fills up, the objective of its first passes means little
    if len(objectives) < 3 * WINDOW or tol == 0:
        return False

    before = objectives[-2 * WINDOW : -WINDOW]
    now = objectives[-WINDOW:]
    error = math.sqrt((statistics.variance(before) + statistics.variance(now)) / WINDOW)
    # the gain plus two standard errors
    return statistics.fmean(now) - statistics.fmean(before) + 2 * error < tol * rows


def find_loose_tol(classes: int) -> float:
    """Return how well a loose plan knows log Z_q per row."""
    return LOOSE_TOL * max(1.0, classes / LOOSE_CLASSES)


def have_loose_epochs_converged(
    objectives: list[float], classes: int, rows: float, patience: int = 2
) -> bool:
    """Return whether late epochs of a loose plan gained too little. [decision 65]

    Such epochs fit the evidence more closely, but not new rows.

    A share counts, because .02 per row is much where rules decide: a table of loans
    stood still for two epochs, and then lost nine tenths of its loss. `patience` epochs
    count, at least two, because a line search that stumbles gains little and then much.
    With many classes, whose epochs are expensive, one epoch that gained less than the
    sites can tell is enough.
    """
    little = min(LEAST_GAIN * rows, LEAST_SHARE * abs(objectives[-1]))
    late = len(objectives) >= max(ENOUGH_EPOCHS, patience + 1)
    if late and objectives[-1] - objectives[-1 - patience] < little:
        return True

    known = find_loose_tol(classes) * rows
    return (
        classes > LOOSE_CLASSES
        and len(objectives) > 1
        and objectives[-1] - objectives[-2] <= known
    )
