"""Members of a pool that are smooth where trees are not, as plain arrays: logistic
regression and neural networks.

`fitting.members` and `fitting.networks` train them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import namespace
from cavity.pool.tree_ensembles import LEAST

Array = NDArray[np.floating[Any]]
# spreads at which a cell counts, if it is further from the mean of its column
FARTHEST = 10.0


class LinearModel(NamedTuple):
    """Logistic regression: p = softmax(z A + b)      z = clip((x − shift) scale, ±10)
    [METHOD 18]
    """

    used: NDArray[np.integer[Any]]  # [U], columns
    shift: Array  # [U]
    scale: Array  # [U]
    slope: Array  # [U C]
    bias: Array  # [1 C]

    def log_proba(self, X: Any) -> Any:
        """Return logarithms of the class probabilities, [n C], of rows in an array or a
        value of an ONNX graph.
        """
        return _log_softmax(_standardise(self, X) @ self.slope + self.bias)


class Network(NamedTuple):
    """K networks with two hidden layers each; the mean of their scores counts.

    z = clip((x − shift) scale, ±10)      a = max(z A + a₀, 0)      b = max(a B + b₀, 0)      p = softmax mean_K (b C + c₀)
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
        """Return logarithms of the class probabilities, [n C], of rows in an array or a
        value of an ONNX graph.
        """
        xp = namespace(X)
        a = xp.maximum(_standardise(self, X) @ self.first + self.first_bias, 0.0)
        b = xp.maximum(a @ self.second + self.second_bias, 0.0)
        return _log_softmax((b @ self.last + self.last_bias).sum(0) / len(self.first))


def _standardise(member: LinearModel | Network, X: Any) -> Any:
    return namespace(X).clip(
        (X[:, member.used] - member.shift) * member.scale, -FARTHEST, FARTHEST
    )


def _log_softmax(score: Any) -> Any:
    return namespace(score).maximum(
        namespace(score).log_softmax(score), math.log(LEAST)
    )
