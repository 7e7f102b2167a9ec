"""Predictions with a way out: leave the least certain rows to somebody else, or answer with a set of classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput, BadOption
from cavity.report.calibration import Array, checked


class Rejection(NamedTuple):
    """Error of the rows that are kept when the least certain are rejected; one entry a distinct certainty."""

    rejected: Array  # [K], share of rows, from 0 up
    error: Array  # [K], share of wrong predictions among the others
    threshold: Array  # [K], rows of at least this certainty are kept

    @property
    def area(self) -> float:
        """Error averaged over the share that is rejected; 0 is perfect, and less than `error[0]` says that certainty tells."""
        width = np.diff(np.append(self.rejected, 1.0))
        return float((width * self.error).sum())


def rejection(P: Any, y: Any, certainty: Any = None) -> Rejection:
    """Reject rows in the order of `certainty` [n], by default the probability of the predicted class; equal ones go together.

    Uncertainties are certainties with a minus: `rejection(P, y, -clf.predict_uncertainty(X).total)`.
    """
    P, y = checked(P, y)
    score = P.max(1) if certainty is None else np.asarray(certainty, dtype=np.float64)
    if score.shape != y.shape or not np.isfinite(score).all():
        raise BadInput(f"certainty has shape {score.shape}; it must be one finite number a row, ({len(y)},).")
    threshold, place = np.unique(score, return_inverse=True)
    wrong = P.argmax(1) != y
    rows = np.bincount(place)[::-1].cumsum()[::-1]  # of at least each threshold
    errors = np.bincount(place, weights=wrong)[::-1].cumsum()[::-1]
    return Rejection(1 - rows / len(y), errors / rows, threshold)


class Conformal(NamedTuple):
    """Which probabilities are enough for a class to be in the set."""

    least: Array  # [C], probability from which a class is in; 0 where it had too few rows to say
    coverage: float

    def sets(self, P: Any) -> NDArray[np.bool_]:
        """[n C]: whether each class is in the row's set; a set may have several classes, or none."""
        P = np.asarray(P, dtype=np.float64)
        if P.ndim != 2 or P.shape[1] != len(self.least):
            raise BadInput(
                f"P has shape {P.shape}; these sets were made for {len(self.least)} classes, (n, C)."
            )
        return np.asarray(P >= self.least)


def conformal(P: Any, y: Any, coverage: float = 0.9) -> Conformal:
    r"""Sets that contain the true class of a share `coverage` of each class's rows, whatever the model (split conformal).

    P and y are of rows that the model has not seen, and that are like those to come. Of the n rows of class c the
    ⌊(n + 1)(1 − coverage)⌋-th smallest P[·, c] is the least for c: a new row of that class is as likely to take any rank.
    """
    P, y = checked(P, y)
    if not 0 < coverage < 1:
        raise BadOption(f"coverage={coverage!r} must lie between 0 and 1, such as 0.9.")
    return Conformal(
        np.array([_least(np.sort(P[y == c, c]), coverage) for c in range(P.shape[1])]), float(coverage)
    )


def _least(own: Array, coverage: float) -> float:
    rank = int(np.floor((len(own) + 1) * (1 - coverage) + 1e-9))
    return 0.0 if rank == 0 else float(own[rank - 1])
