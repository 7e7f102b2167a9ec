"""The networks of a pool: hundreds of steps of AdamW in NumPy, a quarter of the time of
autograd.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count as count_from
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import find_signs
from cavity.common.namespaces import NUMPY
from cavity.common.types import Floats, Ints
from cavity.pool.networks import FARTHEST, Network

UNITS = 100, 50  # of the hidden layers
LEAST_EPOCHS = 2  # of the first steps
# rows
USUAL_BATCH = 64
MOST_BATCH = 512
# of an epoch, if MOST_BATCH allows
LEAST_BATCHES = 4
MOST_BATCHES = 32
# of AdamW; slopes decay, biases do not
RATE = 0.03
DECAY = 0.1
# shares of the running means of gradients and of their squares that a step keeps
MOMENTUM = 0.9
SQUARES = 0.99
AVERAGED = 0.25  # of the steps, the last ones: the mean of their weights counts

Array = NDArray[np.float32]


def train_networks(
    X: Floats,
    y: Ints,
    weight: Floats | None,
    n_classes: int,
    count: int,
    seed: int,
    steps: int,
) -> Iterator[tuple[int, Network]]:
    """Train networks that differ in their starting values and in the order of their
    rows, all at a time.

    Yields the networks after so many steps, or two passes over the rows if these are
    more, after twice as many, and so on.
    """
    if weight is None:
        omega = np.ones(len(y))
    else:
        omega = weight / weight.mean()
    Z, shift, scale = standardise(X, omega)
    # columns with signs of their own, and classes in the order of their first rows, so
    # that neither decides how a network starts
    order = np.argsort([(y == c).argmax() for c in range(n_classes)], kind="stable")
    labels = np.eye(n_classes, dtype=np.float32)[y][:, order]
    signs = find_signs(X[omega > 0]).astype(np.float32)
    rng = np.random.default_rng(seed)
    Z = Z.astype(np.float32) * signs
    # slopes between columns that no row tells apart need no steps
    axes = None
    if Z.shape[1] > len(y):
        axes = _find_axes(Z)
    if axes is not None:
        Z = Z @ axes
    layers = _draw_layers(count, (Z.shape[1], *UNITS, n_classes), rng)
    size = choose_batch(len(y))
    back = np.argsort(order)
    first_stage = max(steps, LEAST_EPOCHS * math.ceil(len(y) / size))
    batches = _draw_batches(len(y), size, count, rng)
    stages = _train(layers, Z, labels, omega.astype(np.float32), batches, first_stage)
    for taken, (first, *hidden, last, last_bias) in stages:
        first = signs[:, None] * (first if axes is None else axes @ first)
        arrays = (
            np.arange(X.shape[1]),
            shift,
            scale,
            first,
            *hidden,
            last[..., back],
            last_bias[..., back],
        )
        yield taken, Network(*arrays)


def standardise(X: Floats, weight: Floats | None) -> tuple[Any, Any, Any]:
    """Return columns of mean 0 and variance 1 by weight, clipped, with the shift and
    the scale of each.
    """
    shift = np.average(X, 0, weight)
    spread = np.sqrt(np.average(np.square(X - shift), 0, weight))
    scale = 1 / np.where(spread > 0, spread, 1.0)
    return np.clip((X - shift) * scale, -FARTHEST, FARTHEST), shift, scale


def choose_batch(n_rows: int) -> int:
    """Return the rows of a step."""
    size = min(max(USUAL_BATCH, n_rows // MOST_BATCHES), MOST_BATCH)
    return max(1, min(size, n_rows // LEAST_BATCHES))


def _find_axes(Z: Array) -> Array:
    """Return axes [D R] on which the rows have a mean square of 1: all that fewer rows
    than columns span.
    """
    _, size, axes = np.linalg.svd(Z, full_matrices=False)
    kept = axes[size > 1e-5 * size[0]]
    kept *= np.sign(kept[np.arange(len(kept)), np.abs(kept).argmax(1)])[:, None]
    return np.asarray(kept.T * math.sqrt(len(kept) / Z.shape[1]), np.float32)


def _draw_layers(
    K: int, sizes: tuple[int, ...], rng: np.random.Generator
) -> list[Array]:
    """Return slopes [K n m] and biases [K 1 m] of each layer, uniform as Glorot and
    Bengio have them.
    """
    drawn = []
    for n, m in pairwise(sizes):
        most = math.sqrt(6 / (n + m))
        drawn += [
            rng.uniform(-most, most, (K, rows, m)).astype(np.float32) for rows in (n, 1)
        ]
    return drawn


def _draw_batches(
    n_rows: int, size: int, K: int, rng: np.random.Generator
) -> Iterator[Ints]:
    """Yield the row numbers [K b] of one step after the other; each network has its own
    order.
    """
    while True:
        order = np.stack([rng.permutation(n_rows) for _ in range(K)])
        yield from np.split(order, range(size, n_rows, size), 1)


def _train(
    layers: list[Array],
    Z: Array,
    labels: Array,
    omega: Array,
    batches: Iterator[Ints],
    stage: int,
) -> Iterator[tuple[int, list[Array]]]:
    """Minimise the log loss of rows Z with weights ω; yield the mean layers of the last
    quarter of `stage` steps, 2 `stage`, ...
    """
    theta, gradient = (
        np.concatenate([part.ravel() for part in layers]) for _ in range(2)
    )
    here = _view(theta, layers)
    slope = _view(gradient, layers)
    kept = np.concatenate(
        [np.full(part.size, 1 - RATE * DECAY * (part.shape[1] > 1)) for part in layers]
    )
    kept = kept.astype(np.float32)
    mean = 0 * theta
    square = 0 * theta
    found = 0 * theta
    for t, rows in zip(count_from(1), batches, strict=False):
        _differentiate(
            here, slope, Z[rows], labels[rows], omega[rows][..., None] / rows.shape[1]
        )
        mean += (1 - MOMENTUM) * (gradient - mean)
        square += (1 - SQUARES) * (gradient * gradient - square)
        theta *= kept
        theta -= (
            RATE
            / (1 - MOMENTUM**t)
            * mean
            / (np.sqrt(square / (1 - SQUARES**t)) + 1e-8)
        )
        averaged = t - stage + math.ceil(AVERAGED * stage)
        if averaged > 0:
            found += (theta - found) / averaged
        if t == stage:
            yield t, [part.copy() for part in _view(found, layers)]
            stage = 2 * stage
            found = 0 * found


def _view(vector: Array, layers: list[Array]) -> list[Array]:
    """Return the parts of a vector in the shapes of the layers."""
    ends = np.cumsum([part.size for part in layers])[:-1]
    return [
        v.reshape(part.shape)
        for v, part in zip(np.split(vector, ends), layers, strict=True)
    ]


def _differentiate(
    layers: list[Array], slope: list[Array], z: Array, labels: Array, omega: Array
) -> None:
    """Write the gradient of the log loss of rows z [K b D] with weights ω [K b 1] into
    `slope`.
    """
    values = [z]
    for A, a in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        values.append(np.maximum(values[-1] @ A + a, 0))
    error = (
        np.exp(NUMPY.log_softmax(values[-1] @ layers[-2] + layers[-1])) - labels
    ) * omega
    for i, value in reversed(list(enumerate(values))):
        np.matmul(value.swapaxes(1, 2), error, out=slope[2 * i])
        error.sum(1, keepdims=True, out=slope[2 * i + 1])
        if i:
            error = (error @ layers[2 * i].swapaxes(1, 2)) * (value > 0)
