"""Scores of one fit's probabilities, where the test rows may have classes that training never saw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.report.calibration import expected_calibration_error


def scores(log_p: Any, classes: NDArray[Any], y: NDArray[Any]) -> dict[str, float]:
    """NLL, error, calibration error and Brier score. Rows of an unseen class are errors, and in no other score."""
    log_p, y = np.asarray(log_p, dtype=np.float64), np.asarray(y)
    known = np.isin(y, classes)
    place = np.searchsorted(classes, y[known])
    P = np.exp(log_p[known])
    return {
        "nll": float(-log_p[known, :][np.arange(len(place)), place].mean()),
        "error": float((classes[log_p.argmax(1)] != y).mean()),
        "ece": expected_calibration_error(P, place),
        "brier": brier(P, place),
        "unseen": int((~known).sum()),
    }


def brier(P: NDArray[np.float64], y: NDArray[Any]) -> float:
    """Mean over rows of Σ_c (P_c − [y = c])²."""
    return float((P**2).sum(1).mean() + (1 - 2 * P[np.arange(len(y)), y]).mean())
