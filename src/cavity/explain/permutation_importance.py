"""Which columns matter: how much worse predictions become when the cells of one column are shuffled."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.explain.raw_rows import find_columns
from cavity.rows.validation import Features

Array = NDArray[np.float64]
Losses = Callable[[Array], Array]  # features [n D] to one loss per row [n]


class Importance(NamedTuple):
    """Permutation importance of the columns of a table.

    Attributes
    ----------
    names : tuple of str
        Columns of the table, in its order.
    importance : ndarray of shape (n_features_in_,)
        By how much the mean loss increases when the cells of a column are shuffled, in nats. About 0 for a column that the
        predictions do not need; 0 for a column that the model ignores.
    standard_error : ndarray of shape (n_features_in_,)
        Standard errors, over rows.
    loss : float
        Mean loss of the rows as they are.
    """

    names: tuple[str, ...]
    importance: Array
    standard_error: Array
    loss: float

    def __str__(self) -> str:
        order = np.argsort(-self.importance, kind="stable")
        width = max(map(len, self.names))
        lines = [
            f"{self.names[j]:<{width}}  {self.importance[j]:+.4f} ± {self.standard_error[j]:.4f}"
            for j in order
        ]
        return "\n".join(
            [f"increase of the mean loss ({self.loss:.4f} nats) if a column is shuffled", *lines]
        )


def permutation_importance(
    losses: Losses, X: Array, weight: Array, features: Features, n_repeats: int, rng: np.random.Generator
) -> Importance:
    """Shuffle each column of the table in turn: all its features together, `n_repeats` times."""
    names, owner = find_columns(features)
    before, total = losses(X), weight.sum()
    importance, error = np.zeros(len(names)), np.zeros(len(names))
    orders = [
        rng.permutation(len(X)) for _ in range(n_repeats)
    ]  # the same for every column: fewer chances to differ
    for j in range(len(names)):
        own = owner == j
        if not own.any():
            continue
        more = np.zeros(len(X))
        for order in orders:
            shuffled = X.copy()
            shuffled[:, own] = X[order][:, own]
            more += (losses(shuffled) - before) / n_repeats
        importance[j] = weight @ more / total
        error[j] = np.sqrt(weight**2 @ (more - importance[j]) ** 2) / total
    return Importance(names, importance, error, float(weight @ before / total))
