"""Scores of a classifier's or a regressor's predictions with weights: overall, per
class, with bootstrap intervals.
"""

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
MOST_RESAMPLED = (
    # numbers per resample; intervals of more are those of fewer rows, scaled by √(m/n)
    100_000
)
LEVEL = 0.95
FEW_ROWS = 10  # of a class: its scores say little


class Assessment(NamedTuple):
    values: Numbers
    ranges: Numbers  # 95% intervals, [low, high] in place of each number
    plain: Numbers  # scores of a baseline


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
    each = {
        "precision": _ratio(both, chosen),
        "recall": _ratio(both, true),
        "f1": _ratio(2 * both, true + chosen),
        "auc": np.array([compute_auc(P[:, c], y == c, w) for c in range(C)]),
    }
    means = {"auc": _mean(each["auc"]), "f1": _mean(each["f1"][true > 0])}
    return {**score_log_proba(log_p, y, weight), **means, "classes": each}


def assess_classes(
    log_p: Floats,
    y: Ints,
    weight: Floats,
    prior: Floats | None,
    unit: Ints | None = None,
) -> Assessment:
    """Assess log-probabilities [n C].

    The baseline are the class frequencies of the training rows; None: of these rows.

    Intervals are those of a bootstrap; the error has Wilson's. `unit`: the same number
    for rows that belong together.
    """
    rows = (log_p, y, weight)
    C = log_p.shape[1]
    ranges: Numbers = bootstrap(score_classes, rows, C, unit)
    error = average(log_p.argmax(1) != y, weight).value
    if unit is None:
        each = weight
    else:
        each = _sum(unit, weight, int(unit.max()) + 1)
    ranges["error"] = [
        float(end) for end in find_interval(error, count_effective(each))
    ]
    with np.errstate(divide="ignore"):
        log_prior = np.log(
            _sum(y, weight / weight.sum(), C) if prior is None else prior
        )
        plain = score_classes(np.broadcast_to(log_prior, log_p.shape), y, weight)
    return Assessment(score_classes(*rows), ranges, plain)


def find_weak_classes(
    classes: list[str], rows: Ints, predicted: Ints
) -> tuple[list[str], list[str]]:
    """Return the classes that are never predicted, and those of few rows with their
    numbers.
    """
    never = [c for c, n, k in zip(classes, rows, predicted, strict=True) if n and not k]
    return never, [
        f"{c} ({n})" for c, n in zip(classes, rows, strict=True) if 0 < n < FEW_ROWS
    ]


def score_targets(mean: Floats, std: Floats, y: Floats, weight: Floats) -> Numbers:
    """Score normal predictions of numbers: rmse, mae, r2, nlpd (nats per row), coverage
    of 95% intervals.
    """
    w = weight / weight.sum()
    off = y - mean
    spread = float(w @ (y - w @ y) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(off == 0, 0.0, off / std)
        nlpd = float(w @ (0.5 * scaled**2 + np.log(std) + 0.5 * math.log(2 * math.pi)))
    return {
        "rmse": math.sqrt(float(w @ off**2)),
        "mae": float(w @ np.abs(off)),
        "r2": 1 - float(w @ off**2) / spread if spread > 0 else math.nan,
        "nlpd": nlpd,
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
    """Assess normal predictions; `units`: mean and spread of the training rows, the
    baseline; `unit` as for classes.
    """
    rows = (mean, std, y, weight)
    center, spread = (np.full(len(y), number) for number in units)
    plain = score_targets(center, spread, y, weight)
    return Assessment(
        score_targets(*rows), bootstrap(score_targets, rows, 4, unit), plain
    )


def compute_auc(score: Floats, positive: Flags, weight: Floats) -> float:
    """P(a positive row has the larger score) + half of P(equal), by weight; NaN if all
    rows are on one side.
    """
    _, place = np.unique(score, return_inverse=True)
    up = np.bincount(place, weight * positive)
    down = np.bincount(place, weight * ~positive, len(up))
    total = up.sum() * down.sum()
    if total > 0:
        return min(1.0, float(up @ (np.cumsum(down) - 0.5 * down) / total))
    return math.nan


def bootstrap(
    score: Callable[..., Numbers], rows: Any, width: int, unit: Ints | None = None
) -> Any:
    """Return percentile intervals of all scores, [low, high] in place of each number.

    Rows, or units of rows, are drawn with replacement. `width`: numbers per row, which
    limits how many are drawn.
    """
    if unit is None:
        place = np.arange(len(rows[0]))
    else:
        place = np.argsort(unit, kind="stable")
    of: Any
    if unit is not None:
        of = np.split(place, np.cumsum(np.bincount(unit))[:-1])
    else:
        of = place
    n = len(of)
    rng = np.random.default_rng(0)
    m = max(min(n, MOST_RESAMPLED * n // (width * len(place))), min(n, 100))
    found = score(*rows)
    drawn = (rng.integers(0, n, m) for _ in range(RESAMPLES))
    taken = (i if unit is None else np.concatenate([of[j] for j in i]) for i in drawn)
    again = [score(*(column[i] for column in rows)) for i in taken]
    return _map(
        lambda value, *others: _interval(value, np.array(others), math.sqrt(m / n)),
        found,
        *again,
    )


def _interval(value: Any, again: Floats, shrink: float) -> Any:
    """Return the interval of a number, or of each number of an array; [NaN, NaN] where
    it is not defined.
    """
    with np.errstate(invalid="ignore"):
        off = again - value
    tail = 50 * (1 - LEVEL)
    defined = np.isfinite(off).any(0)
    ends = np.nanpercentile(np.where(defined, off, 0.0), [tail, 100 - tail], axis=0)
    return np.moveaxis(np.where(defined, value + shrink * ends, np.nan), 0, -1).tolist()


def _map(f: Callable[..., Any], *values: Any) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {k: _map(f, *(v[k] for v in values)) for k in first}
    return f(*values)


def _sum(place: Ints, values: Floats, n: int) -> Floats:
    return np.asarray(np.bincount(place, values, n), dtype=np.float64)


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.asarray(
        np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    )


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    if len(known):
        return float(known.mean())
    return math.nan
