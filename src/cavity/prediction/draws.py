"""Posterior draws of the latent functions, and class probabilities given the draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cavity.common.linalg import solve_lower_t
from cavity.common.types import Floats
from cavity.engine.likelihoods import ProbitPairs, RobustMax
from cavity.pool.pool import normalised
from cavity.prediction.latent import Marginals
from cavity.prediction.model import FittedModel, as_array
from cavity.prediction.predict import as_rows, log_probabilities, predict_latent

FAR = 8.0  # a value this many standard deviations below the largest has probability 0


class Normals:
    """Standard normal draws on a model's device."""

    def __init__(self, model: FittedModel, seed: int) -> None:
        self.device = model.device
        self.random = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        drawn = torch.randn(*shape, dtype=torch.float64, generator=self.random)
        return drawn.to(self.device)


@torch.no_grad()
def draw_latent(
    model: FittedModel, groups: Iterable[Floats], n_draws: int, draw: Normals
) -> Iterator[Tensor]:
    """Yield draws of f without noise at each group of rows, [S n C].

        w = μ + Λ^(−½) ε      f = Aᵀw + (k(X, X) − AᵀA)^½ ε'

    Rows of a group are drawn jointly. All groups share the draws of w, so that averages
    over groups differ by little noise.
    """
    mean = _as_tensor(model, model.mean)
    lower = _as_tensor(model, model.lower)
    C = model.n_latent
    M = mean.numel() // C
    noise = draw(n_draws, *lower.shape[:2])
    off = solve_lower_t(lower, noise.permute(1, 2, 0)).permute(2, 0, 1)
    w = mean.reshape(C, M) + off.reshape(n_draws, C, M)

    for rows in groups:
        X = as_rows(model, rows)
        projection, _ = model.project(X)
        a = _as_tensor(model, projection).expand(C, -1, -1)
        f = torch.einsum("scm,cmn->snc", w, a)
        given_w = _as_tensor(model, model.among(X)) - a.mT @ a
        values, vectors = torch.linalg.eigh(given_w)
        root = vectors * values.clamp_min(0).sqrt()[:, None]
        yield f + torch.einsum("cnk,sck->snc", root, draw(n_draws, C, len(rows)))


def _as_tensor(model: FittedModel, x: Any) -> Tensor:
    """Return an array of the model as a tensor in float64."""
    return torch.as_tensor(model.xp.double(x))


@torch.no_grad()
def draw_log_proba(
    model: FittedModel, groups: list[Floats], n_draws: int, seed: int
) -> Iterator[Floats]:
    """Yield log-probabilities of each group of rows given draws of f, [S n C].

    They average over the noise of f and apply the pool, as predictions do.
    """
    C = model.n_latent
    draw_normal = Normals(model, seed)
    variance = _as_tensor(model, model.noise).clamp_min(1e-12).expand(C)  # [C]
    draws = draw_latent(model, groups, n_draws, draw_normal)
    for rows, f in zip(groups, draws, strict=True):
        if model.coupled:
            # quadrature over correlated classes is slow: draw the noise, too
            f = f + variance.sqrt() * draw_normal(*f.shape)
            log_p = torch.log_softmax(f, -1).reshape(-1, C).cpu().numpy()
        else:
            flat = _limit(model, f.reshape(-1, C), variance)
            log_p = log_probabilities(model, Marginals(flat, variance.expand_as(flat)))

        yield _combine(model, log_p, rows, n_draws).reshape(n_draws, len(rows), -1)


def _limit(model: FittedModel, f: Tensor, variance: Tensor) -> Tensor:
    """Raise values far below the largest, which the quadrature need not resolve.

    Their probabilities stay 0 to 1e-13.
    """
    if type(model.likelihood) not in (ProbitPairs, RobustMax):
        return f

    largest = f.max(1, keepdim=True).values
    return torch.maximum(f, largest - FAR * (2 * variance.max()).sqrt())


def _combine(model: FittedModel, log_p: Floats, rows: Floats, n_draws: int) -> Floats:
    """Apply the pool, whose other members and gate are the same in every draw."""
    pool = model.pool
    if pool.is_trivial:
        return log_p

    var = np.empty((len(rows), 0))
    if pool.gate is not None:
        var = as_array(predict_latent(model, rows).var)

    def repeat(x: Floats) -> Floats:
        return np.tile(x, (n_draws, 1))

    def predict(member: Any) -> Floats:
        return repeat(member.log_proba(rows))

    logs = [partial(predict, member) for member in pool.members]
    return normalised(pool.add_members(log_p, repeat(var), logs))
