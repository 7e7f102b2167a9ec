"""Class probabilities from marginals of f. [METHOD 8]

Each formula is written once, for torch, NumPy and ONNX graphs. Marginals are [n C], or
[n 1] for two classes; results are normalised logarithms, [n C].
This module does not load torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from cavity.common.namespaces import GRAPH, NUMPY, Array, namespace
from cavity.common.onnx_graph import Value
from cavity.engine.likelihoods.quadrature.largest import (
    integrate_in_graph,
    log_probabilities,
)


def log_probit(mean: Array, var: Array) -> Array:
    """Return log Φ(∓m/√v)."""
    xp = namespace(mean)
    alpha = mean / xp.sqrt(var)
    return xp.concat([xp.log_ndtr(-alpha), xp.log_ndtr(alpha)])


def log_largest(mean: Array, var: Array) -> Array:
    """Return log P(f_c is the largest)."""
    if isinstance(mean, Value):
        return GRAPH.log_softmax(integrate_in_graph(mean, var))
    if isinstance(mean, np.ndarray):
        return NUMPY.log_softmax(log_probabilities(mean, np.sqrt(var)))

    log_p = log_probabilities(mean.double(), var.double().sqrt())
    return log_p.log_softmax(-1).to(mean.dtype)


def log_logistic(mean: Array, var: Array) -> Array:
    """Return log E σ(∓f)."""
    from cavity.engine.likelihoods.quadrature import softmax_integrals

    xp = namespace(mean)
    log_p = softmax_integrals.log_sigmoid_probability(mean[:, 0], var[:, 0])
    return xp.log_softmax(xp.stack(log_p))


def log_logistic_by_probit(mean: Array, var: Array) -> Array:
    """Return log σ(∓m/√(1 + πv/8)); σ(∓m/...) is within 0.02 of E σ(∓f)."""
    xp = namespace(mean)
    z = mean / xp.sqrt(1 + math.pi / 8 * var)
    return log_logistic_at_mean(z, var)


def log_logistic_at_mean(mean: Array, var: Array) -> Array:
    """Return log σ(∓m), the probabilities if f had no variance."""
    xp = namespace(mean)
    return xp.concat([xp.log_sigmoid(-mean), xp.log_sigmoid(mean)])


# how σ(f) is averaged over f for two classes, by the name in options
LOGISTIC: dict[str, Callable[[Array, Array], Array]] = {
    "quadrature": log_logistic,
    "probit": log_logistic_by_probit,
    "mode": log_logistic_at_mean,
}


def log_softmax(mean: Array, var: Array) -> Array:
    """Return log E softmax(f). In a graph, only for standard deviations below 3."""
    from cavity.engine.likelihoods.quadrature import softmax_integrals

    xp = namespace(mean)
    p = softmax_integrals.expected_softmax(mean, var)
    return xp.log_softmax(xp.log(xp.maximum(p, 1e-300)))


def with_random_labels(log_p: Array, epsilon: float, n_classes: int) -> Array:
    """Return log((1 − ε) p + ε/C)."""
    if epsilon == 0:
        return log_p

    xp = namespace(log_p)
    return xp.log((1 - epsilon) * xp.exp(log_p) + epsilon / n_classes)
