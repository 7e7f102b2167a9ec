"""Mean and spread of rows that come in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

Spread = tuple[Any, Any, Any]  # weight, mean and Σ weight · deviation²: numbers, or arrays that broadcast


def merge_spread(a: Spread, b: Spread) -> Spread:
    r"""Merge weight, mean m and S = Σ weight · deviation² of two groups of rows (Chan's rule).

    m = m_a + w_b/w (m_b − m_a)      S = S_a + S_b + w_a w_b/w (m_b − m_a)²      w = w_a + w_b
    """
    weight = np.asarray(a[0] + b[0], dtype=np.float64)
    share = np.divide(b[0], weight, out=np.zeros_like(weight), where=weight > 0)
    with np.errstate(over="ignore", invalid="ignore"):
        gap = b[1] - a[1]
        return weight, a[1] + share * gap, a[2] + b[2] + a[0] * share * gap**2
