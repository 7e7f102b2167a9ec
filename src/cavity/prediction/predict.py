"""Predict rows with a fitted model: latent functions, probabilities, labels.

It does not load torch. [METHOD 8]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import NUMPY, Array, namespace
from cavity.common.types import Floats
from cavity.engine.likelihoods.quadrature.grid import ORDER, SPREAD
from cavity.errors import BadInput
from cavity.prediction.latent import Joint, Marginals
from cavity.prediction.model import FittedModel

PREDICT_BYTES = 64 << 20
CACHE_BYTES = 1 << 20  # of a projection on the CPU: it stays in the cache
# with several latent functions, whose quadratures take a few rows at a time themselves
QUADRATURE_BYTES = 256 << 20


def rows_per_block(model: FittedModel, held: int = PREDICT_BYTES) -> int:
    """Return how many rows have a projection [C M n] of at most so many bytes."""
    C, M, _ = model.lower.shape
    return max(1, held // (8 * max(C, model.n_latent) * M))


def predict_latent(model: FittedModel, X: Any) -> Marginals | Joint:
    """Return marginals of f at new rows, noise included: [n C], float64.

    Raises BadInput if a kernel overflows.
    """
    rows = as_rows(model, X)
    size = rows_per_block(model, CACHE_BYTES if model.xp is NUMPY else PREDICT_BYTES)
    if model.coupled:
        predict: Callable[[Any], Any] = model.joint
    else:
        predict = model.marginals
    pieces = (rows[i : i + size] for i in range(0, max(1, len(rows)), size))
    parts = [[model.xp.double(x) for x in predict(piece)] for piece in pieces]
    if len(parts) == 1:
        joined = parts[0]
    else:
        joined = [model.xp.join(column) for column in zip(*parts, strict=True)]
    if model.coupled:
        f: Marginals | Joint = Joint(*joined)
    else:
        f = Marginals(*joined)
    _check_finite(f, rows)
    return f


def as_rows(model: FittedModel, X: Any) -> Array:
    """Return rows as an array of the model's kind."""
    if model.xp is NUMPY:
        return np.asarray(X, dtype=np.float64)
    return model.xp.like(
        X if not isinstance(X, np.ndarray) or X.flags.writeable else X.copy(),
        model.mean,
    )


def _check_finite(f: Marginals | Joint, X: Array) -> None:
    """Refuse rows for which a kernel of the user's own has no finite values; those of
    the library always have.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(f.mean.sum() + f.var.sum())
    if math.isfinite(total):  # a sum can also overflow
        return
    xp = namespace(X)
    bad = np.flatnonzero(~np.isfinite(xp.host(f.mean) + xp.host(f.var)).all(-1))
    if len(bad):
        raise BadInput(
            f"{len(bad)} rows have no finite latent values, such as the row "
            f"{X[int(bad[0])].tolist()!s:.80}: the kernel overflows "
            "there. Leave such rows out, or limit their features before the kernel "
            "squares them."
        )


def log_probabilities(model: FittedModel, f: Any) -> Floats:
    """Return normalised logarithms of the class probabilities of marginals: [n C] → [n
    C], [n 1] → [n 2].
    """
    if isinstance(f, Joint):
        import torch

        from cavity.engine.likelihoods.quadrature.correlated import (
            log_softmax_probability,
        )

        return to_host(
            log_softmax_probability(torch.as_tensor(f.mean), torch.as_tensor(f.cov))
        )
    parts = [
        to_host(ask(model.outcome.log_probability, *part))
        for part in split_marginals(model, f)
    ]
    if len(parts) > 1:
        return np.concatenate(parts)
    return parts[0]


def to_host(x: Array) -> Floats:
    """Return an array or a tensor as an array in float64."""
    return np.asarray(namespace(x).host(x))


def ask(function: Callable[..., Any], *arrays: Array) -> Any:
    """Call a function of a likelihood with arrays; one of the user's own may know
    tensors alone.
    """
    try:
        return function(*arrays)
    except (AttributeError, TypeError):
        import torch

        with torch.no_grad():
            return function(*map(torch.as_tensor, arrays))


def predict_log_proba(model: FittedModel, rows: Floats) -> tuple[Floats]:
    """Return logarithms of the class probabilities of rows in memory, [n C]."""
    f = predict_latent(model, rows)
    return (apply_pool(model, f, log_probabilities(model, f), rows),)


def predict_proba(model: FittedModel, rows: Floats) -> tuple[Floats]:
    """Return the class probabilities of rows in memory, [n C]."""
    return (np.exp(*predict_log_proba(model, rows)),)


def apply_pool(
    model: FittedModel, f: Marginals | Joint, log_p: Floats, rows: Floats
) -> Floats:
    """Return log-probabilities with the temperature and the pool, given those of the
    Gaussian process at rows.
    """
    if model.pool.gate is not None:
        var = model.xp.host(f.var)
    else:
        var = np.empty((len(rows), 0))
    return model.pool.combine(log_p, rows, var)


def predict_labels(
    model: FittedModel, rows: Floats, classes: NDArray[Any]
) -> tuple[NDArray[Any]]:
    """Return the most probable class of rows in memory, [n]."""
    return (classes[predict_log_proba(model, rows)[0].argmax(1)],)


def predict_moments(model: FittedModel, rows: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of the latent functions at rows in memory, noise
    included, each [n C].
    """
    f = predict_latent(model, rows)
    return model.xp.host(f.mean), model.xp.host(f.var)


def split_marginals(model: FittedModel, f: Any) -> Iterator[tuple[Array, Array]]:
    """Yield means and variances of a few rows at a time, as arrays of the model's kind:
    the quadrature takes memory per row.
    """
    xp = model.xp
    mean, var = (
        xp.double(x) if namespace(x) is xp else xp.like(x, model.mean) for x in f[:2]
    )
    C = mean.shape[1]
    held = PREDICT_BYTES if C == 1 else QUADRATURE_BYTES
    size = max(1, held // (8 * 2 * len(SPREAD) * ORDER * C))
    return (
        (mean[i : i + size], var[i : i + size])
        for i in range(0, max(1, len(mean)), size)
    )
