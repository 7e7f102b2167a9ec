"""Novelty: how unlike the training rows a row is, as the model sees it.   [METHOD 16]

Does not load torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cavity.common.namespaces import namespace
from cavity.common.types import Floats
from cavity.errors import BadInput

QUANTILES = 101
# novelty of the most unusual training row
INSIDE = 0.99
# limits of v⁰ and of u
LEAST_VARIANCE = 1e-300
MOST = 1e15
# smallest step between quantiles: where many training rows share a value, rounding must
# not decide
LEAST_STEP = 1e-9


class Novelty(NamedTuple):
    """Quantiles of u at training rows, each left out of the posterior.

        u(x) = mean_c v_c(x) / v⁰_c
        novelty(x) = 0.99 F(u(x)) + 0.01 (u(x) − u₁₀₀) / (1 − u₁₀₀)

    F is the share of training rows with a smaller u, which the gate of a pool also
    uses. The second term counts beyond the last quantile u₁₀₀, up to u = 1, where f is
    known as little as before training. If a linear term of the kernel makes u₁₀₀ > 1,
    the end is 2 u₁₀₀.
    """

    scale: Floats  # [C], 1 / (C v⁰_c)
    quantiles: Floats  # [101], ascending

    def at(self, var: Any) -> Any:
        """Return the novelty [n] of variances [n C], which may be ONNX values."""
        last = self.quantiles[-1]
        knots = np.append(self.quantiles, 1.0 if last < 1 else 2 * last)
        steps = np.maximum(np.diff(knots), LEAST_STEP)
        share = np.append(np.full(QUANTILES - 1, INSIDE / (QUANTILES - 1)), 1 - INSIDE)
        xp = namespace(var)
        u = var @ self.scale[:, None]
        passed = xp.clip((u - knots[:-1]) / steps, 0.0, 1.0)  # [n 101]
        return xp.minimum(passed @ share[:, None], 1.0)[:, 0]


def make_novelty(prior_var: Floats, var: Floats, weight: Floats) -> Novelty | None:
    """Return the quantiles at weighted rows, or None if no u is finite.

    prior_var: v⁰ [C]. var: variances at the rows [n C].
    """
    scale = 1 / (len(prior_var) * np.maximum(prior_var, LEAST_VARIANCE))
    values = (var @ scale).clip(0, MOST)
    known = np.isfinite(values)
    if not known.any() or not np.isfinite(scale).all():
        return None

    u, place = np.unique(values[known].round(12), return_inverse=True)
    each = np.bincount(place, weight[known])
    below = each.cumsum() - 0.5 * each
    shares = np.linspace(below[0], below[-1], QUANTILES)
    return Novelty(scale, np.interp(shares, below, u))


def find_novelty(novelty: Novelty | None) -> Novelty:
    """Return the stored novelty; raise BadInput if a fit stored none."""
    if novelty is None:
        raise BadInput(
            "this model cannot measure novelty: it comes from a version before 0.3, or "
            "from partial_fit(), which keeps no training rows. Fit it again with fit()."
        )

    return novelty
