"""log Φ from a table of cubic polynomials: on a CPU, erfcx takes several times as long. [METHOD 10] Does not load torch."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import NUMPY, Array, namespace

LOW, HIGH = -37.0, 9.0  # Φ < 1e-299 on the left, and 1 in float64 on the right
CELLS = 256  # per unit of z: the cubics err by less than 1e-13
DEGREE = 3


class Table:
    """`nodes.by_erfcx` from the table. Arrays are used again: memory that is new to a process costs as much as the arithmetic."""

    def __init__(self, like: Array) -> None:
        self._xp, self._like = namespace(like), like
        self._coefficients = [self._xp.like(row, like) for row in _coefficients()]
        self._numbers, self._cells = self._xp.scratch(0, like)

    def __call__(self, shift: Array, rate: Array, d: Array) -> tuple[Array, Array]:
        """Return √(2π) φ/Φ, which the next call overwrites, and −Σ log Φ at z = shift + rate · d."""
        xp, shape = self._xp, (*rate.shape, d.shape[1])
        t = self._reserve(math.prod(shape))[0].reshape(shape)  # z in cells of the table
        xp.multiply((CELLS * rate)[..., None], d[:, None], out=t)
        t += (CELLS * shift)[..., None]
        minus_log = self.minus_log_cdf(t)
        total = minus_log.sum(1)
        return xp.exp_(xp.add_product_(minus_log, t, t, -0.5 / CELLS**2)), total

    def minus_log_cdf(self, t: Array) -> Array:
        """Return −log Φ(t/CELLS), for t/CELLS < LOW that of LOW. The next call overwrites it."""
        xp, numbers = self._xp, self._reserve(math.prod(t.shape))
        _, found, local, coefficient = numbers
        cell = self._cells[: len(found)]
        xp.clip_(t.reshape(-1), CELLS * LOW, CELLS * HIGH, local)
        local -= CELLS * LOW
        xp.split_whole_(local, cell)
        highest, *lower = self._coefficients
        xp.take_(highest, cell, found)
        for values in lower:
            xp.take_(values, cell, coefficient)
            found, coefficient = xp.add_product_(coefficient, found, local), found
        return found.reshape(t.shape)

    def _reserve(self, size: int) -> Array:
        if size > len(self._cells):
            self._numbers, self._cells = self._xp.scratch(size, self._like)
        return self._numbers[:, :size]


@cache
def _coefficients() -> NDArray[np.float64]:
    """Return the coefficients of −log Φ in each cell, highest power first: cubics through the Chebyshev points; 0 beyond HIGH."""
    n = int((HIGH - LOW) * CELLS)
    angles = np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1)
    x = 0.5 + 0.5 * np.cos(angles)  # in [0, 1]
    z = LOW + (np.arange(n)[:, None] + x) / CELLS
    values = np.linalg.solve(np.vander(x), -NUMPY.log_ndtr(z).T)  # [4 n]
    return np.pad(values, ((0, 0), (0, 1)))
