"""Tails of the normal in NumPy, from the standard library's erfc: predictions of a few rows load neither torch nor SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
SQRT_PI = math.sqrt(math.pi)
FAR = 10.0  # where erfcx becomes a series; exp(x²) erfc(x) has a relative error of about 2e-16 x²
NEAR = -26.6  # erfcx of smaller numbers overflows
TERMS = 12  # of the series: the next one is below 1e-16 at FAR
ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)  # coefficients, of t⁵ first
_erfc = np.frompyfunc(math.erfc, 1, 1)


def erf(x: NDArray[Any]) -> NDArray[Any]:
    """Return erf(x) in the precision of x, with an error of at most 2e-7 (Abramowitz and Stegun, 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    tail = np.zeros_like(x)
    for coefficient in ERF:
        tail = t * (coefficient + tail)
    return np.copysign(1 - tail * np.exp(-x * x), x)


def erfc(x: Array) -> Array:
    """Return 1 − erf(x), accurate in both tails."""
    return np.asarray(_erfc(x), dtype=np.float64)


def erfcx(x: Array, /) -> Array:
    r"""Return exp(x²) erfc(x), which overflows below NEAR.

    Σ_k (−1)^k (2k − 1)!!/(2x²)^k / (x √π)        x → ∞
    """
    x = np.asarray(x, dtype=np.float64)
    near, far = np.clip(x, NEAR - 1, FAR), np.maximum(x, FAR)
    series, ratio = np.ones_like(x), (SQRT_HALF / far) ** 2
    for k in range(TERMS, 0, -1):
        series = 1 - (2 * k - 1) * ratio * series
    with np.errstate(over="ignore"):
        return np.where(x > FAR, series / (far * SQRT_PI), np.exp(near * near) * erfc(near))


def log_ndtr(x: Array, /) -> Array:
    """Return log Φ(x), accurate in both tails."""
    x = np.asarray(x, dtype=np.float64)
    left, right = np.minimum(x, 0), np.maximum(x, 0)
    below = np.log(0.5 * erfcx(-SQRT_HALF * left)) - 0.5 * left * left
    return np.where(x < 0, below, np.log1p(-0.5 * erfc(SQRT_HALF * right)))
