"""When training has converged, judged by the objective of its epochs."""

from __future__ import annotations

import math
import statistics

WINDOW = 10  # epochs over which an improvement counts
SMALL_MOVE = 0.01  # relative move of h in a sweep, in units of √tol


def sweeps_converged(objectives: list[float], move: float, tol: float, rows: float) -> bool:
    """Return whether the last sweep at fixed hyper-parameters changed little; `move` is its relative move of h.

    log Z_q is stationary in the sites, so it converges long before q does: the tolerance for q's own move is √tol.
    """
    flat = len(objectives) > 1 and abs(objectives[-1] - objectives[-2]) < tol * rows
    return flat and move < SMALL_MOVE * math.sqrt(tol)


def epochs_converged(objectives: list[float], tol: float, rows: float, mini_batches: bool) -> bool:
    """Return whether the last ten epochs of learning are hardly better than the ten before."""
    # while a running average fills up, the objective of its first passes means little
    least = 3 * WINDOW if mini_batches else WINDOW + 1
    if len(objectives) < least or tol == 0:
        return False
    before, now = objectives[-2 * WINDOW : -WINDOW], objectives[-WINDOW:]
    if mini_batches:
        return mean_gain(before, now) < tol * rows
    # the first sweeps can overshoot: require no gain over the window before, and none within this window
    gain = max(max(now) - max(before), now[-1] - now[-1 - WINDOW // 2])
    return gain < tol * rows


def mean_gain(before: list[float], now: list[float]) -> float:
    """Return an upper limit of the gain in the mean of noisy epochs: the difference plus two standard errors."""
    error = math.sqrt(statistics.variance(before) / len(before) + statistics.variance(now) / len(now))
    return statistics.fmean(now) - statistics.fmean(before) + 2 * error
