"""Train the networks of a pool: hundreds of steps of AdamW, four times as fast as
autograd on a CPU.

The same lines run in NumPy and, on a GPU, in torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import find_signs
from cavity.common.namespaces import namespace
from cavity.common.types import Floats, Ints
from cavity.pool.networks import FARTHEST, Network

LEAST_EPOCHS = 2  # passes over the rows before the first stage ends
# rows per step
USUAL_BATCH = 64
MOST_BATCH = 512
# steps per epoch, as far as MOST_BATCH allows
LEAST_BATCHES = 4
MOST_BATCHES = 32
# of AdamW: the rate times the units of the first layer; wide layers need small steps
RATE_BY_UNITS = 3.0
# slopes decay, biases do not
DECAY = 0.1
# shares that the running means of gradients and of their squares keep at each step
MOMENTUM = 0.9
SQUARES = 0.99
AVERAGED = 0.25  # share of the steps, at the end, whose weights are averaged

Array = Any  # of NumPy or, on a GPU, of torch; 32 bits per number
Host = NDArray[np.float32]


class NetworkShape(NamedTuple):
    """How large networks are, and where they are trained."""

    number: int  # of networks, whose scores are averaged
    units: tuple[int, int]  # of the hidden layers
    device: str = "cpu"


def train_networks(
    X: Floats,
    y: Ints,
    weight: Floats | None,
    n_classes: int,
    *,
    shape: NetworkShape,
    seed: int,
    steps: int,
) -> Iterator[tuple[int, Network]]:
    """Train networks that differ in their starting values and the order of their rows.

    Yield the number of steps and the networks after `steps` steps, after twice as many,
    and so on. The first stage passes over the rows at least twice.
    """
    omega = np.ones(len(y)) if weight is None else weight / weight.mean()
    standard, shift, scale = standardise(X, omega)

    # neither the signs of columns nor the order of classes decides how a network starts
    signs = find_signs(X[omega > 0]).astype(np.float32)
    Z = standard.astype(np.float32) * signs
    first_row = [(y == c).argmax() for c in range(n_classes)]
    order = np.argsort(first_row, kind="stable")
    back = np.argsort(order)
    labels = np.eye(n_classes, dtype=np.float32)[y][:, order]

    # directions in which the rows do not differ need no steps
    axes = _find_axes(Z) if Z.shape[1] > len(y) else None
    if axes is not None:
        Z = Z @ axes

    rng = np.random.default_rng(seed)
    layers = _draw_layers(shape.number, (Z.shape[1], *shape.units, n_classes), rng)
    size = choose_batch(len(y))
    batches = _draw_batches(len(y), size, shape.number, rng)
    stage = max(steps, LEAST_EPOCHS * math.ceil(len(y) / size))
    rows = Rows(
        send(Z, shape.device),
        send(labels, shape.device),
        send(omega.astype(np.float32), shape.device),
    )
    layers = [send(part, shape.device) for part in layers]
    for taken, averaged in _train(layers, rows, batches, stage):
        on_host = [namespace(part).host(part).astype(np.float32) for part in averaged]
        first, first_bias, second, second_bias, last, last_bias = on_host
        if axes is not None:
            first = axes @ first
        network = Network(
            used=np.arange(X.shape[1]),
            shift=shift,
            scale=scale,
            first=signs[:, None] * first,
            first_bias=first_bias,
            second=second,
            second_bias=second_bias,
            last=last[..., back],
            last_bias=last_bias[..., back],
        )
        yield taken, network


class Rows(NamedTuple):
    """What networks are trained on."""

    Z: Array  # [N D], standardised
    labels: Array  # [N C], 1 at the label
    omega: Array  # [N], weights


def send(x: Host, device: str) -> Array:
    """Return an array, or a tensor on a GPU."""
    if device == "cpu":
        return x

    import torch

    return torch.as_tensor(x, device=device)


def standardise(X: Floats, weight: Floats | None) -> tuple[Any, Any, Any]:
    """Return columns with weighted mean 0 and variance 1, clipped; shift and scale."""
    shift = np.average(X, 0, weight)
    spread = np.sqrt(np.average(np.square(X - shift), 0, weight))
    scale = 1 / np.where(spread > 0, spread, 1.0)
    return np.clip((X - shift) * scale, -FARTHEST, FARTHEST), shift, scale


def choose_batch(n_rows: int) -> int:
    """Return the number of rows per step."""
    size = min(max(USUAL_BATCH, n_rows // MOST_BATCHES), MOST_BATCH)
    return max(1, min(size, n_rows // LEAST_BATCHES))


def _find_axes(Z: Host) -> Host:
    """Return axes [D R] that span the rows, on which these have a mean square of 1."""
    _, size, axes = np.linalg.svd(Z, full_matrices=False)
    kept = axes[size > 1e-5 * size[0]]
    largest = np.abs(kept).argmax(1)
    kept *= np.sign(kept[np.arange(len(kept)), largest])[:, None]
    unit = math.sqrt(len(kept) / Z.shape[1])
    return np.asarray(kept.T * unit, np.float32)


def _draw_layers(
    K: int, sizes: tuple[int, ...], rng: np.random.Generator
) -> list[Host]:
    """Draw slopes [K n m] and biases [K 1 m] of each layer.

    Uniform, with the bounds of Glorot and Bengio.
    """
    layers = []
    for n, m in pairwise(sizes):
        most = math.sqrt(6 / (n + m))
        for inputs in (n, 1):
            drawn = rng.uniform(-most, most, (K, inputs, m))
            layers.append(drawn.astype(np.float32))

    return layers


def _draw_batches(
    n_rows: int, size: int, K: int, rng: np.random.Generator
) -> Iterator[Ints]:
    """Yield the row numbers [K b] of each step; each network has its own order."""
    while True:
        order = np.stack([rng.permutation(n_rows) for _ in range(K)])
        yield from np.split(order, range(size, n_rows, size), 1)


def _train(
    layers: list[Array], rows: Rows, batches: Iterator[Ints], stage: int
) -> Iterator[tuple[int, list[Array]]]:
    """Minimise the log loss of the rows.

    Yield layers averaged over the last quarter of `stage` steps, 2 `stage`, ...
    """
    average: Any = 0.0
    updates = _take_steps(layers, rows, batches)
    for t, theta in enumerate(updates, start=1):
        averaged = t - stage + math.ceil(AVERAGED * stage)
        if averaged > 0:
            average += (theta - average) / averaged
        if t == stage:
            yield t, _view(average, layers)
            average = 0.0
            stage *= 2


def _take_steps(
    layers: list[Array], rows: Rows, batches: Iterator[Ints]
) -> Iterator[Array]:
    """Yield all weights as one vector after each step of AdamW.

    The next step overwrites it.
    """
    xp = namespace(layers[0])
    theta = xp.join([part.reshape(-1) for part in layers])
    gradient = 0 * theta
    mean = 0 * theta
    square = 0 * theta
    here = _view(theta, layers)
    slope = _view(gradient, layers)
    first_rate = RATE_BY_UNITS / here[0].shape[2]
    for t, some in enumerate(batches, start=1):
        weight = rows.omega[some][..., None] / some.shape[1]
        _differentiate(here, slope, rows.Z[some], rows.labels[some], weight)

        mean += (1 - MOMENTUM) * (gradient - mean)
        square += (1 - SQUARES) * (gradient * gradient - square)
        spread = xp.sqrt(square / (1 - SQUARES**t)) + 1e-8
        rate = first_rate / (1 - MOMENTUM**t)

        for part in here[::2]:
            part *= 1 - first_rate * DECAY
        theta -= rate * mean / spread
        yield theta


def _view(vector: Array, layers: list[Array]) -> list[Array]:
    """Return the parts of a vector in the shapes of the layers."""
    views = []
    start = 0
    for layer in layers:
        stop = start + math.prod(layer.shape)
        views.append(vector[start:stop].reshape(layer.shape))
        start = stop

    return views


def _differentiate(
    layers: list[Array], slope: list[Array], z: Array, labels: Array, omega: Array
) -> None:
    """Write the gradient of the log loss into `slope`.

    z: rows [K b D]; ω: their weights [K b 1].
    """
    xp = namespace(z)
    slopes = layers[::2]
    biases = layers[1::2]
    values = [z]  # inputs of each layer
    for A, a in zip(slopes[:-1], biases[:-1], strict=True):
        values.append(xp.maximum(values[-1] @ A + a, 0))

    log_p = xp.log_softmax(values[-1] @ slopes[-1] + biases[-1])
    error = (xp.exp(log_p) - labels) * omega
    for i in reversed(range(len(values))):
        value = values[i]
        slope[2 * i][...] = xp.swap(value) @ error
        slope[2 * i + 1][...] = error.sum(1)[:, None]
        if i:
            error = (error @ xp.swap(slopes[i])) * (value > 0)
