"""How well the rows of one class are found: precision, recall and gain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Flags, Floats
from cavity.errors import BadInput
from cavity.report.calibration import check_probabilities, find_class


class Detection(NamedTuple):
    """Rows selected by the probability of one class, from the largest downwards.

    There is one entry per distinct probability.

    Attributes
    ----------
    threshold : ndarray of shape (K,)
        Smallest probability of the selected rows, decreasing.
    selected : ndarray of shape (K,)
        Fraction of all rows that is selected. The gain curve is `recall` against it.
    precision : ndarray of shape (K,)
        Fraction of the selected rows that are of the class.
    recall : ndarray of shape (K,)
        Fraction of the rows of the class that is selected.
    share : float
        Fraction of the rows that are of the class: the precision of a random order.
    """

    threshold: Floats  # [K]
    selected: Floats  # [K]
    precision: Floats  # [K]
    recall: Floats  # [K]
    share: float

    @property
    def average_precision(self) -> float:
        """Mean precision over the steps of recall: 1 is best, `share` is guessing."""
        return float(np.diff(self.recall, prepend=0.0) @ self.precision)


def detection(P: Any, y: Any, positive: Any, labels: Any = None) -> Detection:
    """Compute precision, recall and gain of one class, for every threshold.

    Parameters
    ----------
    P, y : array-like
        As for `reliability`.
    positive : label
        The class to find.
    labels : array-like of shape (C,), optional
        As for `reliability`.

    Returns
    -------
    Detection
        Threshold, fraction of selected rows, precision and recall.

    Examples
    --------
    >>> from cavity.report import detection
    >>> found = detection([[0.1, 0.9], [0.4, 0.6], [0.8, 0.2]], [1, 0, 1], positive=1)
    >>> found.recall, found.precision.round(2)
    (array([0.5, 0.5, 1. ]), array([1.  , 0.5 , 0.67]))
    >>> round(found.average_precision, 2)
    0.83
    """
    checked, codes = check_probabilities(P, y, labels)
    c = find_class(P, labels, positive)
    if not (codes == c).any():
        raise BadInput(
            f"no row is of the class positive={positive!r}: recall is not defined."
        )

    return detect(checked[:, c], codes == c)


def detect(p: Floats, is_positive: Flags) -> Detection:
    """Select rows in the order of p [n]; rows of equal p are selected together."""
    threshold, place = np.unique(-p, return_inverse=True)
    rows = np.cumsum(np.bincount(place))
    hits = np.cumsum(np.bincount(place, is_positive))
    n = len(p)
    return Detection(-threshold, rows / n, hits / rows, hits / hits[-1], hits[-1] / n)
