"""The trapezoidal rule of `trapezoid` for one row, in NumPy: a served row should not wait for dozens of small torch calls.

It does not load torch, except for crowds of classes whose span is scanned.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.likelihoods.array_tails import SQRT_2_OVER_PI, SQRT_HALF, Tails
from cavity.likelihoods.quadrature.trapezoid_constants import (
    AFTER,
    BEND,
    CEILING,
    CROWD,
    DROP,
    GROWTH,
    LEAST,
    MEAN_SLOPE,
    MOST,
    NEARER_SHARES,
    SLOPE_SPREAD,
    STEP,
    WIDE,
    most_change,
)

Array = NDArray[np.float64]


class RowSpan(NamedTuple):
    """Where the integrands of the row have their mass, as in `trapezoid`."""

    low: float
    high: float
    panels: float
    best: float
    step: float


def log_probabilities(mean: Array, sd: Array, tails: Tails) -> Array | None:
    """Return log p of one row, [C]; None if the rule does not resolve it. `trapezoid` has the formulas.

    `tails` is `scipy.special`, or `cavity.likelihoods.array_tails`, which loads faster.
    """
    if not sd.min() > 0:
        return None
    span = _find_span(mean, sd, tails)
    place = _place if len(mean) <= CROWD else _place_crowd
    for finer in (1, 2):
        count = 0.25 * finer * span.panels
        if not 4 * count <= MOST:
            return None
        p, change = _integrate(mean, sd, tails, *place(span, 4 * math.ceil(count) + 1))
        if change < most_change(len(mean)) and p.min() > LEAST:
            return np.asarray(np.log(p))
    return None


def _find_span(mean: Array, sd: Array, tails: Tails) -> RowSpan:
    var, leader = sd * sd, int(mean.argmax())
    best, best_var = mean[leader], var[leader]
    gap = best - mean
    log_cdf = tails.log_ndtr(gap / sd)
    drop = 2 * (DROP - log_cdf.sum())
    high = (mean + np.sqrt(gap * gap + var * drop)).max()
    share = best_var / (var + best_var)
    back, width2 = gap * share, var * share
    width2[leader] = best_var
    low = (best - back - np.sqrt(back * back + width2 * drop)).min()
    if len(mean) > CROWD:
        low = _raise_low(low, mean, sd, best, log_cdf, tails)
    z = ((best - back - np.sqrt(width2)).min() - mean) / sd
    beta = SQRT_2_OVER_PI / tails.erfcx(-SQRT_HALF * z)
    bend = np.where(z < -50, 1.0, beta * (beta + z))
    precision = (bend / var).sum() + ((1 - bend) / var).max()
    span = RowSpan(low, high, (high - low) * math.sqrt(precision) / STEP, best, STEP / math.sqrt(precision))
    if len(mean) > CROWD:
        first, last = _find_ends(span)
        span = span._replace(panels=last - first)
    return _narrow(span, mean, sd) if len(mean) > CROWD and span.panels > WIDE else span


def _narrow(span: RowSpan, mean: Array, sd: Array) -> RowSpan:
    import torch

    from cavity.likelihoods.quadrature import trapezoid

    row = trapezoid.Span(*(torch.tensor([value], dtype=torch.float64) for value in span))
    found = trapezoid.narrow(row, torch.from_numpy(mean)[None], torch.from_numpy(sd)[None])
    return RowSpan(*(float(value) for value in found))


def _raise_low(low: float, mean: Array, sd: Array, best: float, log_cdf: Array, tails: Tails) -> float:
    at_best = log_cdf.sum() - log_cdf - 0.5 * ((best - mean) / sd) ** 2
    nearest = low
    for share in NEARER_SHARES:
        point = best + share * (low - best)
        z = (point - mean) / sd
        log_cdf = tails.log_ndtr(z)
        if (log_cdf.sum() - log_cdf - 0.5 * z * z - at_best).max() < -DROP:
            nearest = point
    return nearest


def _find_ends(span: RowSpan) -> Array:
    x = (np.array([span.low, span.high]) - span.best) / span.step - AFTER
    return np.asarray((MEAN_SLOPE * x - SLOPE_SPREAD * np.sqrt(x * x + GROWTH * BEND**2)) / GROWTH)


def _place_crowd(span: RowSpan, nodes: int) -> tuple[Array, Array]:
    first, last = _find_ends(span)
    dt = (last - first) / (nodes - 1)
    t = first + dt * np.arange(nodes)
    root = np.sqrt(t * t + BEND**2)
    f = span.best + span.step * (AFTER + MEAN_SLOPE * t + SLOPE_SPREAD * root)
    return f, span.step * dt * (MEAN_SLOPE + SLOPE_SPREAD * t / root)


def _place(span: RowSpan, nodes: int) -> tuple[Array, Array]:
    """Return nodes f and their weights, each [Q]."""
    h = (span.high - span.low) / (nodes - 1)
    return np.asarray(span.low + h * np.arange(nodes), np.float64), np.full(nodes, h)


def _integrate(mean: Array, sd: Array, tails: Tails, f: Array, weight: Array) -> tuple[Array, float]:
    u = np.maximum((f - mean[:, None]) * (-SQRT_HALF / sd)[:, None], -CEILING)  # [C Q]
    E = tails.erfcx(u)
    terms = np.prod(0.5 * np.exp(-u * u) * E, 0) / E * weight
    total, half = terms.sum(1), terms[:, ::2].sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total * (SQRT_2_OVER_PI / sd), float(np.abs(2 * half / total - 1).max())
