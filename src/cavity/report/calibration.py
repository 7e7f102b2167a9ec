"""Scores of class probabilities, in NumPy: P is [n C], y the column of each row's true class, [n]."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput

Array = NDArray[np.float64]
BINS = 10
SLACK = 1e-6  # of rounding in what should be probabilities


class Reliability(NamedTuple):
    """Rows binned by the probability of their predicted class; NaN in bins without rows."""

    edges: Array  # [K+1]
    confidence: Array  # [K], mean probability of the predicted class
    accuracy: Array  # [K], share of rows whose prediction is right
    rows: NDArray[np.int64]  # [K], number of them


def nll(P: Any, y: Any) -> float:
    """Mean of −log P[n, y_n]; a probability that underflowed to 0 counts as the smallest positive number."""
    P, y = checked(P, y)
    own = P[np.arange(len(y)), y]
    return float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean())


def error(P: Any, y: Any) -> float:
    """Share of rows whose most probable class is not the true one."""
    P, y = checked(P, y)
    return float((P.argmax(1) != y).mean())


def reliability(P: Any, y: Any, bins: int = BINS) -> Reliability:
    """How often the prediction is right, as a function of its probability: `bins` equal bins of [0, 1]."""
    P, y = checked(P, y)
    edges = np.linspace(0, 1, bins + 1)
    top, right = P.max(1), P.argmax(1) == y
    place = np.clip(np.searchsorted(edges, top) - 1, 0, bins - 1)  # bin k is (e_k, e_k+1]
    rows = np.bincount(place, minlength=bins)
    each = np.where(rows > 0, rows, np.nan)
    confidence = np.bincount(place, weights=top, minlength=bins) / each
    accuracy = np.bincount(place, weights=right, minlength=bins) / each
    return Reliability(edges, confidence, accuracy, rows)


def expected_calibration_error(P: Any, y: Any, bins: int = BINS) -> float:
    r"""ECE = Σ_k (n_k / n) |accuracy_k − confidence_k|."""
    table = reliability(P, y, bins)
    gap = np.abs(table.accuracy - table.confidence)
    return float(np.nansum(table.rows * gap) / table.rows.sum())


def checked(P: Any, y: Any) -> tuple[Array, NDArray[np.int64]]:
    """Probabilities and columns as arrays that belong together."""
    P, y = np.asarray(P, dtype=np.float64), np.asarray(y)
    if P.ndim != 2 or y.shape != P.shape[:1] or not len(y):
        raise BadInput(f"P has shape {P.shape} and y {y.shape}; they must be (n, C) and (n,), with n > 0.")
    if y.dtype.kind not in "iub" or y.min() < 0 or y.max() >= P.shape[1]:
        raise BadInput(
            f"y must hold columns of P, 0 to {P.shape[1] - 1}; from labels: np.searchsorted(clf.classes_, y)."
        )
    wrong = ~((P >= -SLACK) & (P <= 1 + SLACK)).all(1)  # NaN too
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInput(
            f"row {row} of P, {P[row].tolist()!s:.60}, holds no probabilities: give predict_proba's, not logits or logarithms."
        )
    return P, y.astype(np.int64)
