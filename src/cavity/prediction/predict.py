"""Predict latent functions, probabilities and labels of rows in memory.   [METHOD 8]

Does not load torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import NUMPY, Array, namespace
from cavity.common.slices import slices
from cavity.common.types import Floats
from cavity.engine.likelihoods.quadrature.grid import ORDER, SPREAD
from cavity.errors import BadInput
from cavity.prediction.latent import Joint, Marginals
from cavity.prediction.model import FittedModel

PREDICT_BYTES = 64 << 20
# a projection on the CPU: it stays in the cache
CACHE_BYTES = 1 << 20
# several latent functions: their quadratures take a few rows at a time themselves
QUADRATURE_BYTES = 256 << 20


def rows_per_block(model: FittedModel, held: int = PREDICT_BYTES) -> int:
    """Return how many rows have a projection [C M n] of at most `held` bytes."""
    C, M, _ = model.lower.shape
    return max(1, held // (8 * max(C, model.n_latent) * M))


def predict_latent(model: FittedModel, X: Any) -> Marginals | Joint:
    """Return marginals of f at rows, noise included: [n C], float64.

    Raises BadInput if a kernel overflows.
    """
    xp = model.xp
    rows = as_rows(model, X)
    size = rows_per_block(model, CACHE_BYTES if xp is NUMPY else PREDICT_BYTES)
    if not model.coupled:  # each block reads C matrices of M x M: M rows share that
        size = max(size, model.lower.shape[-1])
    kind: type[Marginals | Joint] = Joint if model.coupled else Marginals
    predict: Callable[[Any], Any] = model.joint if model.coupled else model.marginals

    parts = []
    for piece in slices(len(rows), size):
        parts.append([xp.double(x) for x in predict(rows[piece])])
    joined = parts[0]
    if len(parts) > 1:
        joined = [xp.join(column) for column in zip(*parts, strict=True)]
    f = kind(*joined)
    _check_finite(f, rows)
    return f


def as_rows(model: FittedModel, X: Any) -> Array:
    """Return rows as an array of the model's kind."""
    if model.xp is NUMPY:
        return np.asarray(X, dtype=np.float64)

    if isinstance(X, np.ndarray) and not X.flags.writeable:
        X = X.copy()
    return model.xp.like(X, model.mean)


def _check_finite(f: Marginals | Joint, X: Array) -> None:
    """Raise BadInput for rows at which a user's kernel is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(f.mean.sum() + f.var.sum())
    if math.isfinite(total):
        return

    # look at the rows: the sum itself may have overflowed
    xp = namespace(X)
    bad = np.flatnonzero(~np.isfinite(xp.host(f.mean) + xp.host(f.var)).all(-1))
    if len(bad):
        raise BadInput(
            f"{len(bad)} rows have no finite latent values, such as the row "
            f"{X[int(bad[0])].tolist()!s:.80}: the kernel overflows there. Leave these "
            "rows out, or limit their features before the kernel squares them."
        )


def log_probabilities(model: FittedModel, f: Any) -> Floats:
    """Return log-probabilities of marginals: [n C] → [n C], [n 1] → [n 2]."""
    if isinstance(f, Joint):
        import torch

        from cavity.engine.likelihoods.quadrature.correlated import (
            log_softmax_probability,
        )

        mean = torch.as_tensor(f.mean)
        cov = torch.as_tensor(f.cov)
        return to_host(log_softmax_probability(mean, cov))

    parts = [
        to_host(ask(model.outcome.log_probability, *part))
        for part in split_marginals(model, f)
    ]
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def to_host(x: Array) -> Floats:
    """Return an array or a tensor as an array in float64."""
    return np.asarray(namespace(x).host(x))


def ask(function: Callable[..., Any], *arrays: Array) -> Any:
    """Call a function of a likelihood; a user's likelihood may need tensors."""
    try:
        return function(*arrays)
    except (AttributeError, TypeError):
        import torch

        with torch.no_grad():
            return function(*map(torch.as_tensor, arrays))


def predict_log_proba(model: FittedModel, rows: Floats) -> tuple[Floats]:
    """Return log-probabilities of rows, [n C]."""
    f = predict_latent(model, rows)
    return (apply_pool(model, f, log_probabilities(model, f), rows),)


def predict_proba(model: FittedModel, rows: Floats) -> tuple[Floats]:
    """Return class probabilities of rows, [n C]."""
    return (np.exp(*predict_log_proba(model, rows)),)


def apply_pool(
    model: FittedModel, f: Marginals | Joint, log_p: Floats, rows: Floats
) -> Floats:
    """Apply temperature and pool to log-probabilities of the Gaussian process."""
    var = np.empty((len(rows), 0))
    if model.pool.gate is not None:
        var = model.xp.host(f.var)
    return model.pool.combine(log_p, rows, var)


def predict_labels(
    model: FittedModel, rows: Floats, classes: NDArray[Any]
) -> tuple[NDArray[Any]]:
    """Return the most probable class of each row, [n]."""
    (log_p,) = predict_log_proba(model, rows)
    return (classes[log_p.argmax(1)],)


def predict_moments(
    model: FittedModel, rows: Floats, noise: bool = True
) -> tuple[Floats, Floats]:
    """Return mean and variance of f at rows, with or without noise, each [n C]."""
    f = predict_latent(model, rows)
    var = model.xp.host(f.var)
    if not noise:
        var = np.maximum(var - model.noises, 0)
    return model.xp.host(f.mean), var


def split_marginals(model: FittedModel, f: Any) -> Iterator[tuple[Array, Array]]:
    """Yield means and variances of blocks of rows, as arrays of the model's kind.

    The quadrature takes memory per row.
    """
    xp = model.xp
    mean, var = (
        xp.double(x) if namespace(x) is xp else xp.like(x, model.mean) for x in f[:2]
    )
    C = mean.shape[1]
    held = PREDICT_BYTES if C == 1 else QUADRATURE_BYTES
    size = max(1, held // (8 * 2 * len(SPREAD) * ORDER * C))
    for piece in slices(len(mean), size):
        yield mean[piece], var[piece]
