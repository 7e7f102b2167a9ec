"""Selective prediction: reject the least certain rows, or predict sets of classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Flags, Floats
from cavity.errors import BadInput, BadOption
from cavity.report.calibration import check_probabilities
from cavity.tables.arrow_tables import to_host


class Rejection(NamedTuple):
    """Error of the kept rows when the least certain rows are rejected.

    There is one entry per distinct certainty.

    Attributes
    ----------
    rejected, error, threshold : ndarray of shape (K,)
        Fraction of rejected rows, increasing from 0; error rate of the kept rows; their
        smallest certainty.
    area : float
        Error averaged over the fraction of rejected rows.
    """

    rejected: Floats  # [K]
    error: Floats  # [K]
    threshold: Floats  # [K]

    @property
    def area(self) -> float:
        """Error averaged over the fraction of rejected rows.

        Useful certainties give less than `error[0]`; 0 is perfect.
        """
        return float((np.diff(np.append(self.rejected, 1.0)) * self.error).sum())


def rejection(P: Any, y: Any, certainty: Any = None, labels: Any = None) -> Rejection:
    """Compute the error of the kept rows when rows are rejected in order of certainty.

    Parameters
    ----------
    P, y : array-like
        As for `reliability`.
    certainty : array-like of shape (n,), optional
        Certainty of each row, by default the probability of the predicted class. Rows
        of equal certainty are rejected together. For an uncertainty, change the sign:
        `-clf.predict_uncertainty(X).total`.
    labels : array-like of shape (C,), optional
        As for `reliability`.

    Returns
    -------
    Rejection
        Fraction of rejected rows, error of the others, and threshold.

    Examples
    --------
    >>> from cavity.report import rejection
    >>> curve = rejection([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    >>> curve.rejected, curve.error
    (array([0. , 0.5]), array([0.5, 0. ]))
    >>> curve.area
    0.25
    """
    P, y = check_probabilities(P, y, labels)
    score = P.max(1)
    if certainty is not None:
        score = np.asarray(certainty, dtype=np.float64)
    if score.shape != y.shape or not np.isfinite(score).all():
        raise BadInput(
            f"certainty has shape {score.shape}; give one finite number per row, "
            f"({len(y)},)."
        )

    threshold, place = np.unique(score, return_inverse=True)
    wrong = P.argmax(1) != y
    rows = _count_from(np.bincount(place))
    errors = _count_from(np.bincount(place, weights=wrong))
    return Rejection(1 - rows / len(y), errors / rows, threshold)


def _count_from(counts: Any) -> Any:
    """Sum the counts at each threshold and above."""
    return np.cumsum(counts[::-1])[::-1]


class Conformal(NamedTuple):
    """Conformal sets: a row's set has every class whose probability is large enough.

    Attributes
    ----------
    least : ndarray of shape (C,)
        Smallest probability at which each class is in a set; 0 for a class with too few
        rows.
    coverage : float
        Fraction of rows whose set contains the true class.
    """

    least: Floats  # [C]
    coverage: float

    def sets(self, P: Any) -> Flags:
        """Predict the set of classes of each row.

        Parameters
        ----------
        P : array-like of shape (n, C)
            Class probabilities.

        Returns
        -------
        ndarray of bool of shape (n, C)
            Whether each class is in the set of the row. A set may have several classes,
            or none.
        """
        P = np.asarray(to_host(P), dtype=np.float64)
        if P.ndim != 2 or P.shape[1] != len(self.least):
            raise BadInput(
                f"P has shape {P.shape}; these sets are for {len(self.least)} classes."
            )

        return np.asarray(self.least <= P)


def conformal(P: Any, y: Any, coverage: float = 0.9, labels: Any = None) -> Conformal:
    r"""Calibrate sets that contain the true class with a chosen probability.

    In split conformal prediction, a fraction `coverage` of the rows of each class have
    their true class in the set.
    The guarantee holds for any model, if the rows were not used for training and are
    exchangeable with future rows. For class c with n rows, `least` is the ⌊(n + 1)(1 −
    coverage)⌋-th smallest P[·, c].

    Parameters
    ----------
    P, y : array-like
        As for `reliability`.
    coverage : float, default=0.9
        Fraction of rows of each class whose set contains the true class.
    labels : array-like of shape (C,), optional
        As for `reliability`.

    Returns
    -------
    Conformal
        The calibrated sets.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.report import conformal
    >>> p = np.linspace(0.05, 0.95, 10)
    >>> sets = conformal(np.column_stack([p, 1 - p]), np.repeat([1, 0], 5), coverage=0.8)
    >>> sets.sets([[0.9, 0.1], [0.5, 0.5]])
    array([[ True, False],
           [False, False]])
    """
    P, y = check_probabilities(P, y, labels)
    if not 0 < coverage < 1:
        raise BadOption(f"coverage={coverage!r} must be between 0 and 1, such as 0.9.")

    least = [_find_least(np.sort(P[y == c, c]), coverage) for c in range(P.shape[1])]
    return Conformal(np.array(least), float(coverage))


def _find_least(own: Floats, coverage: float) -> float:
    rank = int(np.floor((len(own) + 1) * (1 - coverage) + 1e-9))
    if rank == 0:
        return 0.0

    return float(own[rank - 1])
