"""Scores of class probabilities P [n C], given the column y [n] of the true class of each row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput

Array = NDArray[np.float64]
BINS = 10
SLACK = 1e-6  # tolerance for rounding errors in probabilities


class Reliability(NamedTuple):
    """Rows binned by the probability of their predicted class.

    Attributes
    ----------
    edges : ndarray of shape (K + 1,)
        Edges of the bins.
    confidence : ndarray of shape (K,)
        Mean probability of the predicted class; NaN in empty bins.
    accuracy : ndarray of shape (K,)
        Fraction of correct predictions; NaN in empty bins.
    rows : ndarray of shape (K,)
        Number of rows per bin.
    """

    edges: Array  # [K+1]
    confidence: Array  # [K]
    accuracy: Array  # [K]
    rows: NDArray[np.int64]  # [K]


def nll(P: Any, y: Any) -> float:
    """Compute the negative log-likelihood, the mean of −log P[n, y_n].

    Parameters
    ----------
    P : array-like of shape (n, C)
        Class probabilities, as from `predict_proba`.
    y : array-like of shape (n,)
        Column of P of the true class of each row. From labels: `np.searchsorted(clf.classes_, y)`.

    Returns
    -------
    float
        Nats per row. A probability that underflowed to 0 counts as the smallest positive number.

    Examples
    --------
    >>> from cavity.report import nll
    >>> round(nll([[0.9, 0.1], [0.2, 0.8]], [0, 1]), 4)
    0.1643
    """
    P, y = check_probabilities(P, y)
    own = P[np.arange(len(y)), y]
    return float(-np.log(np.maximum(own, np.finfo(np.float64).tiny)).mean())


def error(P: Any, y: Any) -> float:
    """Compute the error rate, the fraction of rows whose most probable class is not the true one.

    Parameters
    ----------
    P : array-like of shape (n, C)
        Class probabilities, as from `predict_proba`.
    y : array-like of shape (n,)
        Column of P of the true class of each row. From labels: `np.searchsorted(clf.classes_, y)`.

    Returns
    -------
    float
        Error rate.

    Examples
    --------
    >>> from cavity.report import error
    >>> error([[0.9, 0.1], [0.8, 0.2]], [0, 1])
    0.5
    """
    P, y = check_probabilities(P, y)
    return float((P.argmax(1) != y).mean())


def reliability(P: Any, y: Any, bins: int = BINS) -> Reliability:
    """Compute how often predictions are correct, as a function of their probability.

    Parameters
    ----------
    P : array-like of shape (n, C)
        Class probabilities, as from `predict_proba`.
    y : array-like of shape (n,)
        Column of P of the true class of each row. From labels: `np.searchsorted(clf.classes_, y)`.
    bins : int, default=10
        Number of equal bins of [0, 1].

    Returns
    -------
    Reliability
        Mean probability, accuracy and number of rows per bin.

    Examples
    --------
    >>> from cavity.report import reliability
    >>> table = reliability([[0.9, 0.1], [0.3, 0.7]], [0, 0], bins=2)
    >>> table.rows
    array([0, 2])
    >>> round(float(table.confidence[1]), 2), float(table.accuracy[1])
    (0.8, 0.5)
    """
    P, y = check_probabilities(P, y)
    edges = np.linspace(0, 1, bins + 1)
    top, right = P.max(1), P.argmax(1) == y
    place = np.clip(np.searchsorted(edges, top) - 1, 0, bins - 1)  # bin k is (e_k, e_k+1]
    rows = np.bincount(place, minlength=bins)
    each = np.where(rows > 0, rows, np.nan)
    confidence = np.bincount(place, weights=top, minlength=bins) / each
    accuracy = np.bincount(place, weights=right, minlength=bins) / each
    return Reliability(edges, confidence, accuracy, rows)


def expected_calibration_error(P: Any, y: Any, bins: int = BINS) -> float:
    r"""Compute the expected calibration error, Σ_k (n_k / n) |accuracy_k − confidence_k|.

    Parameters
    ----------
    P : array-like of shape (n, C)
        Class probabilities, as from `predict_proba`.
    y : array-like of shape (n,)
        Column of P of the true class of each row. From labels: `np.searchsorted(clf.classes_, y)`.
    bins : int, default=10
        Number of equal bins of [0, 1].

    Returns
    -------
    float
        Expected calibration error.

    Examples
    --------
    >>> from cavity.report import expected_calibration_error
    >>> round(expected_calibration_error([[0.9, 0.1], [0.3, 0.7]], [0, 0]), 2)
    0.4
    """
    table = reliability(P, y, bins)
    gap = np.abs(table.accuracy - table.confidence)
    return float(np.nansum(table.rows * gap) / table.rows.sum())


def check_probabilities(P: Any, y: Any) -> tuple[Array, NDArray[np.int64]]:
    """Check probabilities and columns, and return them as arrays."""
    P, y = np.asarray(P, dtype=np.float64), np.asarray(y)
    if P.ndim != 2 or y.shape != P.shape[:1] or not len(y):
        raise BadInput(
            f"P has shape {P.shape} and y has shape {y.shape}; they must be (n, C) and (n,), with n > 0."
        )
    if y.dtype.kind not in "iub" or y.min() < 0 or y.max() >= P.shape[1]:
        raise BadInput(
            f"y must contain columns of P, 0 to {P.shape[1] - 1}; from labels: np.searchsorted(clf.classes_, y)."
        )
    wrong = ~((P >= -SLACK) & (P <= 1 + SLACK)).all(1)  # NaN too
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInput(
            f"row {row} of P, {P[row].tolist()!s:.60}, is not a row of probabilities: give the result of predict_proba, not logits."
        )
    return P, y.astype(np.int64)
