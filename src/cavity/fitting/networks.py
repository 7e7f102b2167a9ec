"""The networks of a pool, trained by scikit-learn."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.prediction.networks import FARTHEST, Network

UNITS = 100, 50  # of the hidden layers
DECAY, RATE, EPOCHS = 0.03, 0.01, 20
LEAST_BATCHES, MOST_BATCHES, USUAL_BATCH = 4, 32, 64  # of an epoch, and rows of one


class Networks(NamedTuple):
    """A classifier of several networks that differ in their starting values."""

    n_networks: int
    seed: int

    def __sklearn_clone__(self) -> Networks:
        return self

    def fit(
        self, X: NDArray[np.float64], y: NDArray[np.int64], weight: NDArray[np.float64] | None = None
    ) -> Network:
        """Train the networks on all rows, or on rows that are drawn by their weight."""
        from sklearn.neural_network import MLPClassifier

        shift = np.average(X, 0, weight)
        spread = np.sqrt(np.average(np.square(X - shift), 0, weight))
        scale = 1 / np.where(spread > 0, spread, 1.0)
        Z = np.clip((X - shift) * scale, -FARTHEST, FARTHEST).astype(np.float32)
        batch = max(1, min(max(USUAL_BATCH, len(y) // MOST_BATCHES), len(y) // LEAST_BATCHES))
        rng, each = np.random.default_rng(self.seed), list[Any]()
        for i in range(self.n_networks):
            rows = np.arange(len(y)) if weight is None else _draw_rows(y, weight, rng)
            network = MLPClassifier(
                UNITS,
                alpha=DECAY,
                learning_rate_init=RATE,
                batch_size=batch,
                max_iter=EPOCHS,
                random_state=self.seed + i,
            )
            each.append(network.fit(Z[rows], y[rows]))
        layers = [stack for i in range(3) for stack in _stack_layer(each, i)]
        return Network(np.arange(X.shape[1]), shift, scale, *layers)


def _draw_rows(
    y: NDArray[np.int64], weight: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return as many rows as there are, drawn by their weight, and one of each class."""
    one = np.unique(y, return_index=True)[1]
    return np.concatenate([one, rng.choice(len(y), len(y), p=weight / weight.sum())])


def _stack_layer(networks: list[Any], i: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return slopes [K n m] and intercepts [K 1 m] of a layer; two classes have one score, here with a 0 beside it."""
    slope = np.stack([network.coefs_[i] for network in networks])
    bias = np.stack([network.intercepts_[i] for network in networks])[:, None, :]
    if i == 2 and bias.shape[-1] == 1:
        return np.concatenate([0 * slope, slope], -1), np.concatenate([0 * bias, bias], -1)
    return slope, bias
