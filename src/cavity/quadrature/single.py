"""The trapezoidal rule of `trapezoid` for one row, in NumPy: a served row should not wait for dozens of small torch calls."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cavity.numerics import SQRT_2_OVER_PI, SQRT_HALF
from cavity.quadrature.trapezoid import CEILING, DROP, LEAST, MOST, STEP, most_change

Array = NDArray[np.float64]


def log_probabilities(mean: Array, sd: Array) -> Array | None:
    """Return log p of one row, [C]; None if the rule does not resolve it. `trapezoid` has the formulas."""
    if not sd.min() > 0:
        return None
    low, high, panels = _find_span(mean, sd)
    for finer in (1, 2):
        count = 0.25 * finer * panels
        if not 4 * count <= MOST:
            return None
        p, change = _integrate(mean, sd, low, high, 4 * math.ceil(count) + 1)
        if change < most_change(len(mean)) and p.min() > LEAST:
            return np.asarray(np.log(p))
    return None


def _find_span(mean: Array, sd: Array) -> tuple[float, float, float]:
    from scipy.special import erfcx, log_ndtr

    var, leader = sd * sd, int(mean.argmax())
    best, best_var = mean[leader], var[leader]
    gap = best - mean
    drop = 2 * (DROP - log_ndtr(gap / sd).sum())
    high = (mean + np.sqrt(gap * gap + var * drop)).max()
    share = best_var / (var + best_var)
    back, width2 = gap * share, var * share
    width2[leader] = best_var
    low = (best - back - np.sqrt(back * back + width2 * drop)).min()
    z = ((best - back - np.sqrt(width2)).min() - mean) / sd
    beta = SQRT_2_OVER_PI / erfcx(-SQRT_HALF * z)
    bend = np.where(z < -50, 1.0, beta * (beta + z))
    precision = (bend / var).sum() + ((1 - bend) / var).max()
    return low, high, (high - low) * math.sqrt(precision) / STEP


def _integrate(mean: Array, sd: Array, low: float, high: float, nodes: int) -> tuple[Array, float]:
    from scipy.special import erfcx

    h = (high - low) / (nodes - 1)
    rate = -SQRT_HALF / sd
    u = ((low - mean) * rate)[:, None] + (h * rate)[:, None] * np.arange(nodes)  # [C Q]
    u = np.maximum(u, CEILING)
    E = erfcx(u)
    terms = np.prod(0.5 * np.exp(-u * u) * E, 0) / E
    total, half = terms.sum(1), terms[:, ::2].sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return total * (h * SQRT_2_OVER_PI / sd), float(np.abs(2 * half / total - 1).max())
