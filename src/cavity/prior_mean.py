"""A prior mean of the latent functions: centred log-probabilities of other classifiers, each with one weight. [METHOD 14]

    f_c(x) = Σ_j β_j g_jc(x) + GP_c(x),    g_jc = max(log p_j(c | x), LOWEST) minus its mean over classes

Two classes have one latent function and one score, the difference of the two logarithms.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.forest import Forest

Array = NDArray[np.float64]
LOWEST = -10.0  # log-probabilities below this count as this: trees are sure of what a few rows told them


class PriorMean(NamedTuple):
    """Fitted classifiers and their weights. Without members the mean is zero."""

    members: tuple[Forest, ...] = ()
    weights: tuple[float, ...] = ()

    def at(self, X: Array) -> Array:
        """Return the prior mean at rows, [n C], or [n 1] for two classes; there must be a member."""
        parts = [
            weight * center_scores(member.log_proba(X))
            for weight, member in zip(self.weights, self.members, strict=True)
        ]
        return np.asarray(sum(parts[1:], parts[0]))


NO_MEAN = PriorMean()


def center_scores(log_p: Array) -> Array:
    """Return the scores of log-probabilities [n C]: [n C], or [n 1] for two classes."""
    log_p = np.maximum(log_p, LOWEST)
    if log_p.shape[1] == 2:
        return np.asarray(log_p[:, 1:] - log_p[:, :1])
    return np.asarray(log_p - log_p.mean(1, keepdims=True))
