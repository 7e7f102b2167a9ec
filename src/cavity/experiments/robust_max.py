"""GPflow's SVGP with the robust-max likelihood, as its documentation has it, trained until a validation set says stop."""

from __future__ import annotations

import time
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf

from cavity.experiments import peers
from cavity.experiments.defaults import our_sizes
from cavity.experiments.peers import EVERY, LEAST, OFTEN, PATIENCE, Trained, validation
from cavity.experiments.sets import Array, Split

PIECE = 1000


class Model:
    """C latent processes with one ARD-RBF kernel and one set of inducing points; q whitened, with full covariances."""

    def __init__(self, X: Array, C: int, M: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        kernel = gpflow.kernels.SquaredExponential(
            lengthscales=np.full(X.shape[1], peers.median_distance(X, rng))
        )
        Z = X[rng.choice(len(X), M, replace=False)]
        self.M = M
        self.svgp = gpflow.models.SVGP(
            kernel, gpflow.likelihoods.MultiClass(C), Z, num_latent_gps=C, num_data=len(X), whiten=True
        )
        anything = tf.TensorSpec([None, X.shape[1]], tf.float64)
        self.predict = tf.function(lambda rows: self.svgp.predict_y(rows)[0], input_signature=[anything])

    def weights(self) -> list[Any]:
        """What has to be kept."""
        return [variable.numpy() for variable in self.svgp.trainable_variables]

    def load(self, values: list[Any]) -> None:
        """Put weights back."""
        for variable, value in zip(self.svgp.trainable_variables, values, strict=True):
            variable.assign(value)

    def log_proba(self, X: Array) -> Array:
        """Logarithms of the class probabilities, normalised."""
        parts = [self.predict(X[i : i + PIECE]).numpy() for i in range(0, len(X), PIECE)]
        P = np.maximum(np.concatenate(parts), 1e-300)
        return np.asarray(np.log(P / P.sum(1, keepdims=True)))


def train(data: Split, seed: int, rate: float) -> Trained:
    """One run of Adam at one rate."""
    rest, held = validation(data, seed)
    classes = np.unique(data.y)
    M, batch = our_sizes(len(rest.y), len(classes))
    model, rng = Model(rest.X, len(classes), M, seed), np.random.default_rng([seed, 3])
    labels = np.searchsorted(classes, rest.y)[:, None]
    step_once = _stepper(model, rate)
    every = EVERY if batch is None else min(OFTEN, -(-len(labels) // batch))
    best, kept = Trained(rate, model), model.weights()
    spent, since = 0.0, 0
    for step in range(1, peers.MOST_STEPS + 1):
        index = np.arange(len(labels)) if batch is None else rng.integers(len(labels), size=batch)
        begin = time.perf_counter()
        step_once(tf.constant(rest.X[index]), tf.constant(labels[index]))
        spent += time.perf_counter() - begin
        if step % every:
            continue
        log_p = model.log_proba(held.X)
        judged = float(-log_p[np.arange(len(held.y)), np.searchsorted(classes, held.y)].mean())
        best.curve.append((spent, judged))
        since = 0 if judged < best.judged - LEAST else since + 1
        if judged < best.judged:
            best.judged, best.seconds, best.steps, kept = judged, spent, step, model.weights()
        if since >= PATIENCE:
            break
    model.load(kept)
    return best


def _stepper(model: Model, rate: float) -> Any:
    adam = tf.keras.optimizers.Adam(rate)
    variables = model.svgp.trainable_variables

    @tf.function  # type: ignore[untyped-decorator]
    def step(X: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = model.svgp.training_loss((X, y))
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    return step
