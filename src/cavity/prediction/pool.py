r"""A geometric pool: p ∝ p_GP^w₀ Π_j p_j^w_j. One weight alone is a temperature. [METHOD 13, 14]

The weights maximise the likelihood of held-out rows minus a penalty that keeps them near (1, 0, ..., 0) on small tables:

    temperature    Σ_n ω_n log softmax(w L)[y_n] − 12.5 (log w)²
    pool           Σ_n ω_n log softmax(Σ_j w_j L_j)[y_n] − 3 (log Σ_j w_j)² − 2 |w − (1, 0, ..., 0)|²
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.forest import Forest

Array = NDArray[np.float64]
TEMPERATURE_PENALTY = 12.5  # on (log w)²: a prior of standard deviation 0.2
POOL_PENALTY = 3.0  # on (log Σw)² of a pool: standard deviation 0.4
MEMBER_PENALTY = 2.0  # on the squared distance of a pool's weights from (1, 0, ..., 0)
LEAST_WEIGHT = 1e-6  # lower bound of a weight
LOWEST = (
    -30.0
)  # log-probabilities below this count as this: one certain and wrong row must not decide a weight


class Pool(NamedTuple):
    """How predictions are made of the Gaussian process and other classifiers."""

    weight: float = 1.0  # of the Gaussian process
    members: tuple[Forest, ...] = ()
    weights: tuple[float, ...] = ()  # of the members

    @property
    def is_trivial(self) -> bool:
        """Whether predictions are those of the Gaussian process alone."""
        return self.weight == 1.0 and not self.members

    def combine(self, log_p: Array, X: Array) -> Array:
        """Return normalised log-probabilities of rows, [n C], given those of the Gaussian process."""
        if self.is_trivial:
            return log_p
        total = self.weight * log_p
        for weight, member in zip(self.weights, self.members, strict=True):
            if weight:  # trees that do not count need not be walked
                total = total + weight * member.log_proba(X)
        return normalised(total)


NO_POOL = Pool()


def normalised(log_p: Array) -> Array:
    """Return log_p minus its log-sum over classes, [n C]."""
    off = log_p - log_p.max(1, keepdims=True)
    return np.asarray(off - np.log(np.exp(off).sum(1, keepdims=True)))


def fit_weights(
    parts: list[Array], y: NDArray[np.int64], omega: Array, add: Callable[[Array], Array] = lambda sums: sums
) -> Array:
    """Return the weights of log-probabilities `parts`, each [n C], at rows with labels y and weights ω.

    A member whose weight ends at its lower bound gets 0: it would change log p by less than 2e-5, and it is never computed.
    `add` sums a vector over all ranks.
    """
    from scipy.optimize import minimize

    logs = np.stack([np.maximum(part, LOWEST) for part in parts])
    first = np.eye(len(parts))[0]
    own = logs[:, np.arange(len(y)), y]  # [J n]
    penalty = (POOL_PENALTY, MEMBER_PENALTY) if len(parts) > 1 else (TEMPERATURE_PENALTY, 0.0)

    def loss(w: Array) -> tuple[float, Array]:
        log_q = normalised(np.tensordot(w, logs, 1))
        expected = (np.exp(log_q) * logs).sum(2)  # [J n]
        value, *slope = add(np.array([-(omega @ log_q[np.arange(len(y)), y]), *((expected - own) @ omega)]))
        total, off = np.log(w.sum()), penalty[1] * (w - first)
        value += penalty[0] * total**2 + off @ (w - first)
        return float(value), np.array(slope) + 2 * penalty[0] * total / w.sum() + 2 * off

    start = np.where(first > 0, 1.0, 0.1) if len(parts) > 1 else first
    bounds = [(0.05, 20.0)] if len(parts) == 1 else [(LEAST_WEIGHT, 20.0)] * len(parts)
    found = np.asarray(minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B").x)
    found[1:][found[1:] <= LEAST_WEIGHT] = 0.0
    return found
