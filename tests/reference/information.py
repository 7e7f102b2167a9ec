"""Entropy and its parts by Monte Carlo over latent values, in NumPy."""

from typing import Any

import numpy as np
from scipy.special import ndtr, softmax, xlogy


def conditional(
    f: np.ndarray, noise: np.ndarray, kind: str, rng: np.random.Generator
) -> np.ndarray:
    """p(y|f), [S C]: Gauss–Hermite in the winner's own noise, or an average of
    softmaxes over draws of the noise.
    """
    C = f.shape[-1]
    if kind == "softmax":
        e = rng.normal(size=(50, C)) * np.sqrt(noise)
        return np.mean([softmax(f + draw, -1) for draw in np.concatenate([e, -e])], 0)
    z, w = np.polynomial.hermite_e.hermegauss(30)
    p = np.empty_like(f)
    for k in range(C):
        u = f[:, [k]] + np.sqrt(noise[k]) * z
        others = [ndtr((u - f[:, [c]]) / np.sqrt(noise[c])) for c in range(C) if c != k]
        p[:, k] = np.prod(others, 0) @ w / w.sum()
    return p / p.sum(-1, keepdims=True)


def monte_carlo(
    mean: Any,
    var: Any,
    noise: Any,
    kind: str,
    epsilon: float,
    draws: int,
    seed: int = 0,
):
    """((value, standard error) of total, aleatoric, epistemic), [n] each.

    One latent column: its sign decides.
    """
    rng = np.random.default_rng(seed)
    mean, var, noise = (np.asarray(a) for a in (mean, var, noise))
    found = []
    for m, v in zip(mean, var, strict=True):
        f = m + np.sqrt(v) * rng.normal(size=(draws, len(m)))
        if (
            len(m) == 1
        ):  # the same as two latent values, the first of them 0 and without noise of its own
            half = np.concatenate([noise, noise]) / 2
            p = conditional(np.concatenate([0 * f, f], 1), half, kind, rng)
        else:
            p = conditional(f, noise, kind, rng)
        p = (1 - epsilon) * p + epsilon / p.shape[1]
        average = p.mean(0)
        surprise = -xlogy(p, average).sum(1)
        entropy = -xlogy(p, p).sum(1)
        each = (surprise, entropy, surprise - entropy)
        found.append([(x.mean(), x.std() / np.sqrt(draws)) for x in each])
    return np.moveaxis(np.array(found), 0, -1)
