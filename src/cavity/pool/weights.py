r"""Fit the weights of a pool, its temperature and its gate to held-out rows.

The weights maximise the likelihood of held-out rows minus a penalty that keeps them
near (1, 0, ..., 0) on small tables: [METHOD 13, 14]

    temperature  Σ_n ω_n log softmax(w L)[y_n] − 5 |log w|
    pool         Σ_n ω_n log softmax(Σ_j w_j L_j)[y_n] − 3 (log Σ_j w_j)² − 2 |w − (1, 0, ..., 0)|²
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cavity.common.types import Floats, Ints
from cavity.pool.pool import Gate, normalised

# penalty on |log w|: a Laplace prior of scale 0.2, whose tails allow w = 3 on easy tables
TEMPERATURE_PENALTY = 5.0
LOWEST_TEMPERATURE_WEIGHT = 0.05
HIGHEST_WEIGHT = 20.0
# penalty on (log Σw)² of a pool: standard deviation 0.4
POOL_PENALTY = 3.0
# penalty on the squared distance of a pool's weights from (1, 0, ..., 0)
MEMBER_PENALTY = 2.0
LEAST_WEIGHT = 1e-6  # lower bound of a weight in a pool
# floor of log-probabilities: one certain but wrong row must not decide a weight
LOWEST = -30.0
USUAL = 0.95  # quantile of u at held-out rows up to which the members count in full
MOST_USUAL = 0.99  # largest u at that quantile for which a gate is useful


class _HeldRows(NamedTuple):
    """Held-out rows: log-probabilities of J classifiers, labels and weights."""

    logs: Floats  # [J n C]
    y: Ints
    omega: Floats  # [n]

    def log_likelihood(self, w: Floats) -> tuple[float, Floats]:
        """Return Σ_n ω_n log softmax(Σ_j w_j L_j)[y_n] and its gradient in w, [J]."""
        rows = np.arange(len(self.y))
        log_q = normalised(np.tensordot(w, self.logs, 1))
        expected = (np.exp(log_q) * self.logs).sum(2)  # [J n]
        own = self.logs[:, rows, self.y]
        value = float(self.omega @ log_q[rows, self.y])
        return value, (own - expected) @ self.omega


def fit_temperature(log_p: Floats, y: Ints, omega: Floats) -> float:
    """Fit the weight w of log-probabilities [n C] to labels y of rows weighted by ω."""
    from scipy.optimize import brentq

    rows = _HeldRows(np.maximum(log_p, LOWEST)[None], y, omega)

    def slope(v: float, penalty: float = 0.0) -> float:
        """Derivative of the penalised log-likelihood in v = log w."""
        w = math.exp(v)
        _, gradient = rows.log_likelihood(np.array([w]))
        return w * gradient.item() - penalty

    at_one = slope(0.0)
    # not `<=`: a user's own likelihood may lack probabilities, and the slope is then NaN
    if not abs(at_one) > TEMPERATURE_PENALTY:
        return 1.0

    bound = HIGHEST_WEIGHT if at_one > 0 else LOWEST_TEMPERATURE_WEIGHT
    end = math.log(bound)
    penalty = math.copysign(TEMPERATURE_PENALTY, at_one)
    if slope(end, penalty) * penalty >= 0:
        return math.exp(end)

    return math.exp(brentq(slope, 0.0, end, args=(penalty,), xtol=1e-9))


def fit_weights(
    parts: list[Floats], y: Ints, omega: Floats, *, without_first: bool = False
) -> Floats:
    """Fit the weights of log-probabilities [n C] to labels y of rows weighted by ω.

    A member whose weight ends at its lower bound gets 0: it would change log p by less
    than 2e-5, and it is never computed. `without_first`: the Gaussian process gets 0.
    """
    from scipy.optimize import minimize

    if len(parts) == 1:
        return np.array([fit_temperature(parts[0], y, omega)])

    rows = _HeldRows(np.stack([np.maximum(part, LOWEST) for part in parts]), y, omega)
    alone = np.eye(len(parts))[0]

    def loss(w: Floats) -> tuple[float, Floats]:
        value, gradient = rows.log_likelihood(w)
        total = np.log(w.sum())
        off = MEMBER_PENALTY * (w - alone)
        penalty = POOL_PENALTY * total**2 + off @ (w - alone)
        slope = 2 * POOL_PENALTY * total / w.sum() + 2 * off
        return float(penalty - value), slope - gradient

    start = np.where(alone > 0, 1.0, 0.1)
    bounds = [(LEAST_WEIGHT, HIGHEST_WEIGHT)] * len(parts)
    if without_first:
        start[0] = 0.0
        bounds[0] = (0.0, 0.0)
    weights: Floats = minimize(
        loss, start, jac=True, bounds=bounds, method="L-BFGS-B"
    ).x
    members = weights[1:]
    members[members <= LEAST_WEIGHT] = 0.0
    return weights


def make_gate(scale: Floats, u: Floats) -> Gate | None:
    """Make the gate of a model with u [n] at held-out rows.

    None if the model knows too little about f at these rows.
    """
    usual = float(np.quantile(u, USUAL))
    if usual < MOST_USUAL:
        return Gate(scale, usual)

    return None
