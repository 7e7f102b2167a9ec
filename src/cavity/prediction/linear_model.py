"""Logistic regression as plain arrays: the member of a pool that is right where classes are linear. `fitting.members` fits it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import namespace
from cavity.prediction.tree_ensembles import LEAST

Array = NDArray[np.floating[Any]]
FARTHEST = 10.0  # spreads at which a cell counts, if it is further from the mean of its column


class LinearModel(NamedTuple):
    """p = softmax(z A + b)      z = clip((x − shift) scale, ±10)        [METHOD 18]"""

    used: NDArray[np.integer[Any]]  # [U], columns
    shift: Array  # [U]
    scale: Array  # [U]
    slope: Array  # [U C]
    bias: Array  # [1 C]

    def log_proba(self, X: Any) -> Any:
        """Return logarithms of the class probabilities, [n C], of rows in an array or a value of an ONNX graph."""
        xp = namespace(X)
        z = xp.clip((X[:, self.used] - self.shift) * self.scale, -FARTHEST, FARTHEST)
        return xp.maximum(xp.log_softmax(z @ self.slope + self.bias), math.log(LEAST))
