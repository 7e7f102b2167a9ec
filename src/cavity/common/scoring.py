"""Scores of class probabilities, with weights.

Every score of the package is computed here, with NumPy alone.

A score is a weighted mean m = Σ_n w_n x_n / Σ_n w_n over rows. Its standard error is
√(Σ_n w_n² (x_n − m)²) / Σ_n w_n. Rows that belong together, such as copies of one row,
count as one: √(Σ_g (Σ_{n∈g} w_n (x_n − m))²) / Σ_n w_n. [METHOD 18]
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Flags, Floats, Ints

BINS = 10
FEW = 5  # bins with fewer rows are not on the line of a reliability diagram
# half the width of a 95% interval, in standard deviations
NORMAL_95 = 1.959963984540054


class Mean(NamedTuple):
    """A weighted mean over rows, and its standard error."""

    value: float
    error: float


class Reliability(NamedTuple):
    """Rows binned by the probability of their predicted class, or of one class.

    Attributes
    ----------
    edges : ndarray of shape (K + 1,)
        Edges of the bins.
    confidence : ndarray of shape (K,)
        Mean probability; NaN in empty bins.
    accuracy : ndarray of shape (K,)
        Fraction of correct predictions, or of rows of the one class; NaN in empty bins.
    rows : ndarray of shape (K,)
        Number of rows per bin.
    share : ndarray of shape (K,)
        Fraction of the rows, by weight.
    low : ndarray of shape (K,)
        Lower end of Wilson's interval of the accuracy, one standard error to each side;
        NaN in empty bins.
    high : ndarray of shape (K,)
        Upper end of the interval.
    """

    edges: Floats  # [K+1]
    confidence: Floats  # [K]
    accuracy: Floats  # [K]
    rows: Ints  # [K]
    share: Floats  # [K]
    low: Floats  # [K]
    high: Floats  # [K]

    @property
    def many(self) -> Flags:
        """Bins with enough rows to be on the line of a diagram."""
        return self.rows >= FEW

    @property
    def error(self) -> float:
        """Expected calibration error, Σ_k share_k |accuracy_k − confidence_k|."""
        return float(np.nansum(self.share * np.abs(self.accuracy - self.confidence)))


def count_effective(weight: Floats) -> float:
    """Return the effective number of rows, (Σw)² / Σw²."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def average(
    values: Any, weight: Floats | None = None, unit: Ints | None = None
) -> Mean:
    """Return the weighted mean of one value per row, and its standard error.

    Rows of a group have the same number in `unit`.
    """
    values = np.asarray(values, dtype=np.float64)
    if weight is None:
        weight = np.ones(len(values))
    share = weight / weight.sum()
    mean = float(share @ values)
    with np.errstate(invalid="ignore"):  # an infinite loss has no standard error
        off = share * (values - mean)
        if unit is not None:
            off = np.bincount(unit, off)
        return Mean(mean, float(np.linalg.norm(off)))


def score_rows(log_p: Floats, y: Ints) -> dict[str, Floats]:
    """Score the log-probabilities [n C] of each row, whose class is y.

    The scores are error (0 or 1), nll in nats, and brier, Σ_c (p_c − [y = c])².
    """
    own = log_p[np.arange(len(y)), y]
    brier = (np.exp(log_p) ** 2).sum(1) - 2 * np.exp(own) + 1
    return {
        "error": (log_p.argmax(1) != y).astype(np.float64),
        "nll": -own,
        "brier": brier,
    }


def score_log_proba(
    log_p: Floats, y: Ints, weight: Floats | None = None
) -> dict[str, float]:
    """Return error, nll, brier and ece of the log-probabilities [n C] of rows."""
    rows = score_rows(log_p, y).items()
    found = {name: average(values, weight).value for name, values in rows}
    return found | {"ece": bin_rows(np.exp(log_p), y, weight).error}


def compare_log_proba(
    log_p: Floats,
    other: Floats,
    y: Ints,
    weight: Floats | None = None,
    unit: Ints | None = None,
) -> dict[str, Mean]:
    """Return the differences in error, nll and brier, `other` minus `log_p`.

    Standard errors are those of paired differences.
    """
    ours = score_rows(log_p, y)
    theirs = score_rows(other, y)
    with np.errstate(invalid="ignore"):  # both losses may be infinite
        return {name: average(theirs[name] - ours[name], weight, unit) for name in ours}


def bin_rows(
    P: Floats,
    y: Ints,
    weight: Floats | None = None,
    bins: int = BINS,
    *,
    unit: Ints | None = None,
    wider: float = 1.0,
) -> Reliability:
    """Bin rows by the probability of their predicted class.

    Rows of a group have the same number in `unit`, and widen the intervals. `wider`
    multiplies standard errors.
    """
    right = P.argmax(1) == y
    return bin_events(P.max(1), right, weight, bins, unit=unit, wider=wider)


def bin_events(
    p: Floats,
    happened: Flags,
    weight: Floats | None = None,
    bins: int = BINS,
    *,
    unit: Ints | None = None,
    wider: float = 1.0,
) -> Reliability:
    """Bin events, one per row, by their predicted probability p [n]."""
    if weight is None:
        weight = np.ones(len(p))
    edges = np.linspace(0, 1, bins + 1)
    # bin k is (e_k, e_k+1]
    place = np.clip(np.searchsorted(edges, p) - 1, 0, bins - 1)
    rows = np.bincount(place, minlength=bins)
    total = np.bincount(place, weight, bins)
    square = _sum_squares(place, weight, bins, unit)
    share = total / weight.sum()
    with np.errstate(invalid="ignore"):  # empty bins
        confidence = np.bincount(place, weight * p, bins) / total
        accuracy = np.bincount(place, weight * happened, bins) / total
        low, high = find_interval(accuracy, total**2 / (wider**2 * square), 1.0)

    return Reliability(edges, confidence, accuracy, rows, share, low, high)


def _sum_squares(place: Ints, weight: Floats, bins: int, unit: Ints | None) -> Floats:
    """Return the sum of squared weights per bin; rows of a group in a bin are added."""
    if unit is None:
        return np.asarray(np.bincount(place, weight**2, bins), dtype=np.float64)

    kind, row = np.unique(unit * bins + place, return_inverse=True)
    each = np.bincount(row, weight)
    squares = np.bincount(kind % bins, each**2, bins)
    return np.asarray(squares, dtype=np.float64)


def find_interval(share: Any, n: Any, z: float = NORMAL_95) -> tuple[Any, Any]:
    """Return Wilson's interval of a share of n rows, z standard errors to each side.

    It is honest for shares of 0 and 1, too.
    """
    centre = share + z**2 / (2 * n)
    half = z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    scale = 1 + z**2 / n
    below = (centre - half) / scale
    above = (centre + half) / scale
    return np.maximum(below, 0.0), np.minimum(above, 1.0)


def count_confusion(y: Ints, predicted: Ints, n_classes: int) -> Ints:
    """Count the rows of each pair of true and predicted class, [C C]."""
    flat = np.bincount(np.asarray(y) * n_classes + predicted, minlength=n_classes**2)
    return flat.reshape(n_classes, n_classes)
