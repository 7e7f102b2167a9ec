"""The networks of a pool: a few hundred steps of AdamW in NumPy, a quarter of the time of autograd."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import find_signs
from cavity.common.namespaces import NUMPY
from cavity.prediction.networks import FARTHEST, Network

UNITS = 100, 50  # of the hidden layers
STEPS, LEAST_EPOCHS = 300, 3
USUAL_BATCH, MOST_BATCH = 64, 512  # rows
LEAST_BATCHES, MOST_BATCHES = 4, 32  # of an epoch, if MOST_BATCH allows
RATE, DECAY = 0.03, 0.1  # of AdamW; slopes decay, biases do not
# shares of the running means of gradients and of their squares that a step keeps
MOMENTUM, SQUARES = 0.9, 0.99
AVERAGED = 0.25  # of the steps, the last ones: the mean of their weights counts

Array = NDArray[np.float32]


def train_networks(
    X: NDArray[np.float64],
    y: NDArray[np.int64],
    weight: NDArray[np.float64] | None,
    n_classes: int,
    count: int,
    seed: int,
) -> Network:
    """Train networks that differ in their starting values and in the order of their rows, all at a time."""
    omega = np.ones(len(y)) if weight is None else weight / weight.mean()
    shift = np.average(X, 0, omega)
    spread = np.sqrt(np.average(np.square(X - shift), 0, omega))
    scale = 1 / np.where(spread > 0, spread, 1.0)
    Z = np.clip((X - shift) * scale, -FARTHEST, FARTHEST).astype(np.float32)
    # columns with signs of their own, and classes in the order of their first rows, so that neither decides how a network starts
    order = np.argsort([(y == c).argmax() for c in range(n_classes)], kind="stable")
    labels = np.eye(n_classes, dtype=np.float32)[y][:, order]
    signs = find_signs(X[omega > 0]).astype(np.float32)
    rng, Z = np.random.default_rng(seed), Z * signs
    axes = (
        _find_axes(Z) if Z.shape[1] > len(y) else None
    )  # slopes between columns that no row tells apart need no steps
    if axes is not None:
        Z = Z @ axes
    layers = _draw_layers(count, (Z.shape[1], *UNITS, n_classes), rng)
    batches = list(_draw_batches(len(y), count, rng))
    first, *rest, slope, bias = _train(layers, Z, labels, omega.astype(np.float32), batches)
    back = np.argsort(order)
    found = [
        signs[:, None] * (first if axes is None else axes @ first),
        *rest,
        slope[..., back],
        bias[..., back],
    ]
    return Network(np.arange(X.shape[1]), shift, scale, *found)


def _find_axes(Z: Array) -> Array:
    """Return axes [D R] on which the rows have a mean square of 1: all that fewer rows than columns span."""
    _, size, axes = np.linalg.svd(Z, full_matrices=False)
    kept = axes[size > 1e-5 * size[0]]
    kept *= np.sign(kept[np.arange(len(kept)), np.abs(kept).argmax(1)])[:, None]
    return np.asarray(kept.T * math.sqrt(len(kept) / Z.shape[1]), np.float32)


def _draw_layers(K: int, sizes: tuple[int, ...], rng: np.random.Generator) -> list[Array]:
    """Return slopes [K n m] and biases [K 1 m] of each layer, uniform as Glorot and Bengio have them."""
    drawn = []
    for n, m in pairwise(sizes):
        most = math.sqrt(6 / (n + m))
        drawn += [rng.uniform(-most, most, (K, rows, m)).astype(np.float32) for rows in (n, 1)]
    return drawn


def _draw_batches(n_rows: int, K: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Return the row numbers [K b] of every step; each network has its own order."""
    size = min(max(USUAL_BATCH, n_rows // MOST_BATCHES), MOST_BATCH)
    size = max(1, min(size, n_rows // LEAST_BATCHES))
    for _ in range(max(LEAST_EPOCHS, math.ceil(STEPS / math.ceil(n_rows / size)))):
        order = np.stack([rng.permutation(n_rows) for _ in range(K)])
        yield from np.split(order, range(size, n_rows, size), 1)


def _train(
    layers: list[Array], Z: Array, labels: Array, omega: Array, batches: list[NDArray[np.int64]]
) -> list[Array]:
    """Minimise the log loss of rows Z with weights ω from the given layers on; return the mean layers of the last steps."""
    theta, gradient = (np.concatenate([part.ravel() for part in layers]) for _ in range(2))
    here, slope = _view(theta, layers), _view(gradient, layers)
    kept = np.concatenate([np.full(part.size, 1 - RATE * DECAY * (part.shape[1] > 1)) for part in layers])
    kept, mean, square, found = kept.astype(np.float32), 0 * theta, 0 * theta, 0 * theta
    first = len(batches) - math.ceil(AVERAGED * len(batches))
    for t, rows in enumerate(batches, 1):
        _differentiate(here, slope, Z[rows], labels[rows], omega[rows][..., None] / rows.shape[1])
        mean += (1 - MOMENTUM) * (gradient - mean)
        square += (1 - SQUARES) * (gradient * gradient - square)
        theta *= kept
        theta -= RATE / (1 - MOMENTUM**t) * mean / (np.sqrt(square / (1 - SQUARES**t)) + 1e-8)
        if t > first:
            found += (theta - found) / (t - first)
    return _view(found, layers)


def _view(vector: Array, layers: list[Array]) -> list[Array]:
    """Return the parts of a vector in the shapes of the layers."""
    ends = np.cumsum([part.size for part in layers])[:-1]
    return [v.reshape(part.shape) for v, part in zip(np.split(vector, ends), layers, strict=True)]


def _differentiate(layers: list[Array], slope: list[Array], z: Array, labels: Array, omega: Array) -> None:
    """Write the gradient of the log loss of rows z [K b D] with weights ω [K b 1] into `slope`."""
    values = [z]
    for A, a in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        values.append(np.maximum(values[-1] @ A + a, 0))
    score = values[-1] @ layers[-2] + layers[-1]
    error = (np.exp(NUMPY.log_softmax(score)) - labels) * omega
    for i, value in reversed(list(enumerate(values))):
        np.matmul(value.swapaxes(1, 2), error, out=slope[2 * i])
        error.sum(1, keepdims=True, out=slope[2 * i + 1])
        if i:
            error = (error @ layers[2 * i].swapaxes(1, 2)) * (value > 0)
