"""When training has converged, judged by the objective of its epochs."""

from __future__ import annotations

import math
import statistics

WINDOW = 10  # epochs over which an improvement counts
TIED_BACK = 30  # epochs before them that count with tied sites, whose objective has long flat stretches
HILL = 4  # largest range of all these epochs in units of tol: over twenty, a steady change of tol per ten epochs has 2
SMALL_MOVE = 0.01  # relative move of h in a sweep, in units of √tol


def sweeps_converged(objectives: list[float], move: float, tol: float, rows: float) -> bool:
    """Return whether the last sweep at fixed hyper-parameters changed little; `move` is its relative move of h.

    log Z_q is stationary in the sites, so it converges long before q does: the tolerance for q's own move is √tol.
    """
    flat = len(objectives) > 1 and abs(objectives[-1] - objectives[-2]) < tol * rows
    return flat and move < SMALL_MOVE * math.sqrt(tol)


def epochs_converged(
    objectives: list[float], tol: float, rows: float, mini_batches: bool, tied: bool = False
) -> bool:
    """Return whether the mean objective of the last ten epochs of learning is that of the ten before.

    A fall is not convergence: it means that sites burn in, or that SEP, whose gradient is not that of its objective, is on its way.
    Means, and not only the best epoch of each window: a single high epoch, as of sites that overshoot, would
    hide a steady gain.
    """
    # while a running average fills up, the objective of its first passes means little
    least = 3 * WINDOW if mini_batches else WINDOW + 1
    if len(objectives) < least or tol == 0:
        return False
    back = TIED_BACK if tied and not mini_batches else WINDOW
    before, now = objectives[-back - WINDOW : -WINDOW], objectives[-WINDOW:]
    if mini_batches:
        return mean_gain(before, now) < tol * rows
    change = abs(statistics.fmean(now) - statistics.fmean(before))
    # at the top of a hill on the way the means agree, but the epochs do not
    spread = max(before + now) - min(before + now)
    gain = max(max(now) - max(before), now[-1] - now[-1 - WINDOW // 2])
    return max(change, gain, spread / HILL) < tol * rows


def mean_gain(before: list[float], now: list[float]) -> float:
    """Return an upper limit of the gain in the mean of noisy epochs: the difference plus two standard errors."""
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(now) / len(now))
    return statistics.fmean(now) - statistics.fmean(before) + 2 * error
