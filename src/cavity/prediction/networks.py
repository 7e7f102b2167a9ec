"""Neural networks as plain arrays: a member of a pool that is smooth where trees are not. `fitting.networks` trains them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import namespace
from cavity.prediction.tree_ensembles import LEAST

Array = NDArray[np.floating[Any]]
FARTHEST = 10.0  # spreads at which a cell counts, if it is further from the mean of its column


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
        """Return logarithms of the class probabilities, [n C], of rows in an array or a value of an ONNX graph."""
        xp = namespace(X)
        z = xp.clip((X[:, self.used] - self.shift) * self.scale, -FARTHEST, FARTHEST)
        a = xp.maximum(z @ self.first + self.first_bias, 0.0)
        b = xp.maximum(a @ self.second + self.second_bias, 0.0)
        score = (b @ self.last + self.last_bias).sum(0) / len(self.first)
        return xp.maximum(xp.log_softmax(score), math.log(LEAST))
