"""Weighted scores of predictions, overall and per class, with bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cavity.common.scoring import (
    NORMAL_95,
    average,
    count_effective,
    find_interval,
    score_log_proba,
)
from cavity.common.types import Flags, Floats, Ints

Numbers = dict[str, Any]  # numbers and arrays of numbers by name

RESAMPLES = 200
# numbers per resample; of longer tables, m of n rows are drawn, and intervals are
# scaled by √(m/n)
MOST_RESAMPLED = 100_000
LEVEL = 0.95
FEW_ROWS = 10  # a class with fewer has scores that say little


class Assessment(NamedTuple):
    values: Numbers
    ranges: Numbers  # 95% intervals, [low, high] in place of each number
    plain: Numbers  # scores of a baseline


class WeakClasses(NamedTuple):
    never: list[str]  # classes that are never predicted
    few: list[str]  # classes with few rows, and their numbers: "a (3)"


def score_classes(log_p: Floats, y: Ints, weight: Floats) -> Numbers:
    """Score log-probabilities [n C] of rows with classes y and weights.

    error, nll (nats per row), brier (Σ_c (p_c − [y = c])²), ece, auc and f1 (means over
    the classes that have rows), and per class precision, recall, f1 and auc (class
    against the rest), each [C]; NaN where a score is not defined.
    """
    C = log_p.shape[1]
    P = np.exp(log_p)
    predicted = log_p.argmax(1)
    w = weight / weight.sum()
    true = _sum(y, w, C)
    chosen = _sum(predicted, w, C)
    both = _sum(y, w * (predicted == y), C)
    f1 = _ratio(2 * both, true + chosen)
    auc = np.array([compute_auc(P[:, c], y == c, w) for c in range(C)])
    each = {
        "precision": _ratio(both, chosen),
        "recall": _ratio(both, true),
        "f1": f1,
        "auc": auc,
    }
    return {
        **score_log_proba(log_p, y, weight),
        "auc": _mean(auc),
        "f1": _mean(f1[true > 0]),
        "classes": each,
    }


def assess_classes(
    log_p: Floats,
    y: Ints,
    weight: Floats,
    prior: Floats | None,
    unit: Ints | None = None,
) -> Assessment:
    """Assess log-probabilities [n C].

    The baseline predicts the class frequencies of the training rows, `prior`, or of
    these rows if it is None. Intervals come from a bootstrap; the error has Wilson's.
    `unit`: the same number for rows that belong together.
    """
    C = log_p.shape[1]
    ranges: Numbers = bootstrap(score_classes, (log_p, y, weight), C, unit)
    error = average(log_p.argmax(1) != y, weight).value
    each = weight
    if unit is not None:
        each = _sum(unit, weight, int(unit.max()) + 1)
    low, high = find_interval(error, count_effective(each))
    ranges["error"] = [float(low), float(high)]

    if prior is None:
        prior = _sum(y, weight / weight.sum(), C)
    with np.errstate(divide="ignore"):
        log_prior = np.broadcast_to(np.log(prior), log_p.shape)
        plain = score_classes(log_prior, y, weight)
    return Assessment(score_classes(log_p, y, weight), ranges, plain)


def find_weak_classes(classes: list[str], rows: Ints, predicted: Ints) -> WeakClasses:
    """Find the classes that are never predicted, and those with few rows."""
    never = []
    few = []
    for name, n, k in zip(classes, rows, predicted, strict=True):
        if n > 0 and k == 0:
            never.append(name)
        if 0 < n < FEW_ROWS:
            few.append(f"{name} ({n})")

    return WeakClasses(never, few)


def score_targets(mean: Floats, std: Floats, y: Floats, weight: Floats) -> Numbers:
    """Score normal predictions of numbers.

    rmse, mae, r2, nlpd (nats per row), and coverage of the 95% intervals.
    """
    w = weight / weight.sum()
    off = y - mean
    square = float(w @ off**2)
    spread = float(w @ (y - w @ y) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(off == 0, 0.0, off / std)
        nlpd = 0.5 * scaled**2 + np.log(std) + 0.5 * math.log(2 * math.pi)
    return {
        "rmse": math.sqrt(square),
        "mae": float(w @ np.abs(off)),
        "r2": 1 - square / spread if spread > 0 else math.nan,
        "nlpd": float(w @ nlpd),
        "coverage": float(w @ (np.abs(scaled) <= NORMAL_95)),
    }


def assess_targets(
    mean: Floats,
    std: Floats,
    y: Floats,
    weight: Floats,
    units: tuple[float, float],
    unit: Ints | None = None,
) -> Assessment:
    """Assess normal predictions; `unit` as for classes.

    The baseline predicts `units`, mean and spread of the training rows, for every row.
    """
    rows = (mean, std, y, weight)
    center, spread = (np.full(len(y), number) for number in units)
    plain = score_targets(center, spread, y, weight)
    ranges = bootstrap(score_targets, rows, 4, unit)
    return Assessment(score_targets(*rows), ranges, plain)


def compute_auc(score: Floats, positive: Flags, weight: Floats) -> float:
    """P(a positive row has the larger score) + ½ P(equal), by weight.

    NaN if all rows are positive, or none.
    """
    _, place = np.unique(score, return_inverse=True)
    up = np.bincount(place, weight * positive)
    down = np.bincount(place, weight * ~positive, len(up))
    total = up.sum() * down.sum()
    if total > 0:
        return min(1.0, float(up @ (np.cumsum(down) - 0.5 * down) / total))

    return math.nan


def bootstrap(
    score: Callable[..., Numbers],
    rows: Any,
    width: int,
    unit: Ints | None = None,
    most: int = MOST_RESAMPLED,
) -> Any:
    """Return percentile intervals of all scores, [low, high] in place of each number.

    Rows, or units of rows, are drawn with replacement: about `most` numbers, `width` per
    row.
    """
    n_rows = len(rows[0])
    n = n_rows
    if unit is not None:
        order = np.argsort(unit, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(unit))[:-1])
        n = len(members)

    m = max(min(n, most * n // (width * n_rows)), min(n, 100))
    rng = np.random.default_rng(0)
    again = []
    for _ in range(RESAMPLES):
        drawn = rng.integers(0, n, m)
        if unit is not None:
            drawn = np.concatenate([members[i] for i in drawn])
        again.append(score(*(column[drawn] for column in rows)))

    def find_ends(value: Any, *others: Any) -> Any:
        return _interval(value, np.array(others), math.sqrt(m / n))

    return _map(find_ends, score(*rows), *again)


def _interval(value: Any, again: Floats, shrink: float) -> Any:
    """Return the interval of a number, or of each number of an array.

    It is [NaN, NaN] where the number is not defined.
    """
    with np.errstate(invalid="ignore"):
        off = again - value
    tail = 50 * (1 - LEVEL)
    defined = np.isfinite(off).any(0)
    off = np.where(defined, off, 0.0)
    low, high = np.nanpercentile(off, [tail, 100 - tail], axis=0)
    ends = np.stack([value + shrink * low, value + shrink * high], axis=-1)
    return np.where(defined[..., None], ends, np.nan).tolist()


def _map(f: Callable[..., Any], *values: Any) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {k: _map(f, *(v[k] for v in values)) for k in first}

    return f(*values)


def _sum(place: Ints, values: Floats, n: int) -> Floats:
    return np.asarray(np.bincount(place, values, n), dtype=np.float64)


def _ratio(part: Floats, whole: Floats) -> Floats:
    found = np.full(len(part), np.nan)
    return np.divide(part, whole, out=found, where=whole > 0)


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    if len(known):
        return float(known.mean())

    return math.nan
