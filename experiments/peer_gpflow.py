"""GPflow's SVGP, set up as in its documentation. TensorFlow needs its own environment."""

from __future__ import annotations

from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from experiments.early_stopping import RATES, Fitted, Trained, choose_best, hold_out, median_distance, train
from experiments.sets import Array, Split

BLOCK = 1000  # rows per block of predictions
INDUCING, BATCH = 100, 200
STEPS, EVERY = 1000, 10  # most steps per learning rate, and steps between evaluations of the validation rows

tf.config.threading.set_intra_op_parallelism_threads(1)  # one thread per fit, as all others
tf.config.threading.set_inter_op_parallelism_threads(1)


class Model:
    """Latent processes with one ARD-RBF kernel and one set of inducing points; q is whitened, with full covariances.

    One process and a probit likelihood for two classes, otherwise one per class and the robust-max likelihood.
    """

    def __init__(self, data: Split, M: int, batch: int | None, seed: int, rate: float) -> None:
        X, classes, rng = data.X, np.unique(data.y), np.random.default_rng(seed)
        scales = np.full(X.shape[1], median_distance(X, rng))
        kernel = gpflow.kernels.SquaredExponential(lengthscales=scales)
        Z = X[rng.choice(len(X), M, replace=False)]
        binary, C = len(classes) == 2, len(classes)
        likelihood = gpflow.likelihoods.Bernoulli() if binary else gpflow.likelihoods.MultiClass(C)
        self.svgp = gpflow.models.SVGP(
            kernel, likelihood, Z, num_latent_gps=1 if binary else C, num_data=len(X), whiten=True
        )
        self.binary = binary
        self.M, self.batch, self.rng = M, batch, np.random.default_rng([seed, 3])
        self.X, self.y = X, np.searchsorted(classes, data.y)[:, None]
        any_rows = tf.TensorSpec([None, X.shape[1]], tf.float64)
        self._predict = tf.function(lambda rows: self.svgp.predict_y(rows)[0], input_signature=[any_rows])
        self._update = _make_update(self.svgp, rate)

    def step(self) -> None:
        n = len(self.y)
        index = np.arange(n) if self.batch is None else self.rng.integers(n, size=self.batch)
        self._update(tf.constant(self.X[index]), tf.constant(self.y[index]))

    def weights(self) -> list[Any]:
        return [variable.numpy() for variable in self.svgp.trainable_variables]

    def load(self, weights: list[Any]) -> None:
        for variable, value in zip(self.svgp.trainable_variables, weights, strict=True):
            variable.assign(value)

    def log_proba(self, X: Array) -> Array:
        """Logarithms of the class probabilities, normalised."""
        parts = [self._predict(X[i : i + BLOCK]).numpy() for i in range(0, len(X), BLOCK)]
        P = np.concatenate(parts)
        P = np.maximum(np.column_stack([1 - P, P]) if self.binary else P, 1e-300)
        return np.asarray(np.log(P / P.sum(1, keepdims=True)))


def _make_update(svgp: Any, rate: float) -> Any:
    adam, variables = tf.keras.optimizers.Adam(rate), svgp.trainable_variables

    @tf.function  # type: ignore[untyped-decorator]
    def update(X: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = svgp.training_loss((X, y))
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    return update


def fit_gpflow(data: Split, seed: int, device: str) -> Fitted:
    """The better of two learning rates, each with early stopping and at most `STEPS` steps."""
    return choose_best([_train(data, seed, rate) for rate in RATES], np.unique(data.y))


def _train(data: Split, seed: int, rate: float) -> Trained:
    rest, held = hold_out(data, seed)
    n, classes = len(rest.y), np.unique(rest.y)
    model = Model(rest, min(INDUCING, n), BATCH if n > BATCH else None, seed, rate)
    return train(model, rate, held, classes, EVERY, STEPS)
