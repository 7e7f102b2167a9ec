"""Calibration of class probabilities P [n C], given the true class y [n] of each row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.scoring import BINS, Reliability, bin_events, bin_rows
from cavity.common.text_tables import list_names
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput, BadOption
from cavity.tables.arrow_tables import to_host

MOST_BINS = 100_000
SLACK = 1e-6  # tolerance for rounding errors in probabilities


def reliability(
    P: Any,
    y: Any,
    bins: int = BINS,
    labels: Any = None,
    *,
    positive: Any = None,
    groups: Any = None,
) -> Reliability:
    """Compute how often predictions are correct, as a function of their probability.

    Parameters
    ----------
    P : array-like of shape (n, C)
        Class probabilities, as from `predict_proba`.
    y : array-like of shape (n,)
        True classes: labels, or columns of P if P has no names and `labels` is None.
    bins : int, default=10
        Number of equal bins of [0, 1].
    labels : array-like of shape (C,), optional
        Labels of the columns of P, such as `clf.classes_`; by default the names of its
        columns, if P is a frame.
    positive : label, optional
        Bin all rows by the probability of this class, from 0 to 1, instead of by the
        probability of their predicted class.
    groups : array-like of shape (n,), optional
        Labels of rows that belong together. They widen the intervals. Held-out rows
        have `clf.held_out_.reliability()` instead.

    Returns
    -------
    Reliability
        Mean probability, accuracy with an interval, and number of rows per bin.

    Examples
    --------
    >>> from cavity.report import reliability
    >>> table = reliability([[0.9, 0.1], [0.3, 0.7]], [0, 0], bins=2)
    >>> table.rows
    array([0, 2])
    >>> round(float(table.confidence[1]), 2), float(table.accuracy[1])
    (0.8, 0.5)
    """
    if bins not in range(1, MOST_BINS + 1):
        raise BadOption(
            f"bins={bins!r} must be an integer of at least 1 and at most {MOST_BINS}."
        )

    checked, codes = check_probabilities(P, y, labels)
    unit = _number_groups(groups, codes)
    if positive is None:
        return bin_rows(checked, codes, bins=bins, unit=unit)

    c = find_class(P, labels, positive)
    return bin_events(checked[:, c], codes == c, bins=bins, unit=unit)


def _number_groups(groups: Any, y: Ints) -> Ints | None:
    """Return the number of each row's group."""
    if groups is None:
        return None

    groups = np.asarray(to_host(groups))
    if groups.shape != y.shape:
        raise BadInput(
            f"groups has shape {groups.shape}: give one label per row, {y.shape}."
        )

    return np.asarray(np.unique(groups, return_inverse=True)[1].reshape(-1))


def find_class(P: Any, labels: Any, positive: Any) -> int:
    """Return the column of P of a class, given by its label."""
    names = labels
    if labels is None:
        names = getattr(P, "columns", None)
    if names is None:
        names = range(np.shape(P)[1])
    known = list(names)
    if positive not in known:
        raise BadOption(
            f"positive={positive!r} is not one of the classes {list_names(known)}: "
            "give a label, with labels=clf.classes_."
        )

    return known.index(positive)


def check_probabilities(P: Any, y: Any, labels: Any = None) -> tuple[Floats, Ints]:
    """Check probabilities and true classes; return them as arrays.

    The classes become columns of P.
    """
    names = labels
    if labels is None:
        names = getattr(P, "columns", None)
    P = np.asarray(to_host(P), dtype=np.float64)
    y = np.asarray(to_host(y))
    if P.ndim != 2 or y.shape != P.shape[:1] or not len(y):
        raise BadInput(
            f"P has shape {P.shape} and y has shape {y.shape}: give (n, C) and (n,), "
            f"with n > 0."
        )
    if names is not None and len(names) != P.shape[1]:
        raise BadInput(
            f"labels has {len(names)} entries, but P has {P.shape[1]} columns: give "
            f"one each."
        )

    if names is not None:
        names = np.asarray(names)
        if labels is not None or np.isin(y, names).all():
            y = match_labels(y, names)

    if y.dtype.kind not in "iub" or y.min() < 0 or y.max() >= P.shape[1]:
        raise BadInput(
            f"y must hold columns of P, 0 to {P.shape[1] - 1}, or labels: pass "
            f"labels=clf.classes_."
        )

    wrong = ~((P >= -SLACK) & (P <= 1 + SLACK)).all(1)  # NaN too
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise BadInput(
            f"row {row} of P, {P[row].tolist()!s:.60}, is not a row of probabilities: "
            f"pass the result of predict_proba, not logits."
        )

    return P, y.astype(np.int64)


def match_labels(y: NDArray[Any], labels: NDArray[Any]) -> Ints:
    place = {name: k for k, name in enumerate(labels.tolist())}
    unknown = set(y.tolist()) - place.keys()
    if unknown:
        raise BadInput(
            f"the label {sorted(map(str, unknown))[0]!r} is not in "
            f"labels={labels.tolist()}."
        )

    return np.array([place[label] for label in y.tolist()], dtype=np.int64)
