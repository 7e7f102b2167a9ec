"""Members of a pool that are smooth where trees are not, as plain arrays: logistic
regression and neural networks.

`pool.members` and `pool.network_training` train them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import namespace
from cavity.pool.tree_ensembles import LEAST

Array = NDArray[np.floating[Any]]
# standardised cells are clipped to this distance from the mean of their column
FARTHEST = 10.0


class LinearModel(NamedTuple):
    """Logistic regression.        [METHOD 18]

    p = softmax(z A + b)      z = clip((x − shift) scale, ±10)
    """

    used: NDArray[np.integer[Any]]  # [U], columns
    shift: Array  # [U]
    scale: Array  # [U]
    slope: Array  # [U C]
    bias: Array  # [1 C]

    def log_proba(self, X: Any) -> Any:
        """Return log class probabilities, [n C]; X is an array or an ONNX value."""
        return _log_softmax(_standardise(self, X) @ self.slope + self.bias)


class Network(NamedTuple):
    """K networks with two hidden layers each; their scores are averaged.

    z = clip((x − shift) scale, ±10)      a = max(z A + a₀, 0)      b = max(a B + b₀, 0)
    p = softmax mean_K (b C + c₀)
    """

    used: NDArray[np.integer[Any]]  # [U], columns
    shift: Array  # [U]
    scale: Array  # [U]
    first: Array  # [K U A]
    first_bias: Array  # [K 1 A]
    second: Array  # [K A B]
    second_bias: Array  # [K 1 B]
    last: Array  # [K B C]
    last_bias: Array  # [K 1 C]

    def log_proba(self, X: Any) -> Any:
        """Return log class probabilities, [n C]; X is an array or an ONNX value."""
        xp = namespace(X)
        a = xp.maximum(_standardise(self, X) @ self.first + self.first_bias, 0.0)
        b = xp.maximum(a @ self.second + self.second_bias, 0.0)
        scores = b @ self.last + self.last_bias  # [K n C]
        return _log_softmax(scores.sum(0) / len(self.first))


def _standardise(member: LinearModel | Network, X: Any) -> Any:
    z = (X[:, member.used] - member.shift) * member.scale
    return namespace(X).clip(z, -FARTHEST, FARTHEST)


def _log_softmax(score: Any) -> Any:
    xp = namespace(score)
    return xp.maximum(xp.log_softmax(score), math.log(LEAST))
