"""Weight, mean and spread of rows that come in pieces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Spread(NamedTuple):
    """Weight, mean and Σ weight · deviation² of some rows; arrays that broadcast, for many columns at a time."""

    weight: Array
    mean: Array
    square: Array

    def merge(self, other: Spread) -> Spread:
        r"""Return those of all rows of both (Chan's rule).

        m = m_a + w_b/w (m_b − m_a)      S = S_a + S_b + w_a w_b/w (m_b − m_a)²      w = w_a + w_b
        """
        weight = np.asarray(self.weight + other.weight)
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight > 0)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = other.mean - self.mean
            square = self.square + other.square + self.weight * share * gap**2
        return Spread(weight, self.mean + share * gap, square)
