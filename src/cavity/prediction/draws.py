"""Draws of the latent functions from their posterior, and class probabilities under
them.
"""

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

FAR = 8.0  # standard deviations of a difference


class Normals:
    """Standard normal numbers on a model's device."""

    def __init__(self, model: FittedModel, seed: int) -> None:
        self.device = model.device
        self.random = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=self.random).to(
            self.device
        )


@torch.no_grad()
def draw_latent(
    model: FittedModel, groups: Iterable[Floats], n_draws: int, draw: Normals
) -> Iterator[Tensor]:
    """Yield draws of f without noise at each group of rows, [S n C].

    Within a group the rows are drawn jointly. All groups share the draws of the
    inducing values, so that averages over groups differ by little noise.
    """
    mean, lower = (_as_tensor(model, x) for x in (model.mean, model.lower))
    C = model.n_latent
    M = mean.numel() // model.n_latent
    noise = draw(n_draws, *lower.shape[:2])
    off = solve_lower_t(lower, noise.permute(1, 2, 0)).permute(2, 0, 1)
    w = mean.reshape(C, M) + off.reshape(n_draws, C, M)
    for rows in groups:
        X = as_rows(model, rows)
        a = _as_tensor(model, model.project(X)[0]).expand(C, -1, -1)
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
    """Yield log-probabilities [S n C] of each group of rows, given draws of f at its
    rows.

    The noise of f and the pool's weights stay as they are in predictions.
    """
    C = model.n_latent
    draw_normal = Normals(model, seed)
    variance = _as_tensor(model, model.noise).clamp_min(1e-12).expand(C)  # [C]
    for rows, f in zip(
        groups, draw_latent(model, groups, n_draws, draw_normal), strict=True
    ):
        # the quadrature of correlated classes is slow: draw the noise, too
        if model.coupled:
            f = f + variance.sqrt() * draw_normal(*f.shape)
            log_p = torch.log_softmax(f, -1).reshape(-1, C).cpu().numpy()
        else:
            flat = _limit(model, f.reshape(-1, C), variance)
            log_p = log_probabilities(model, Marginals(flat, variance.expand_as(flat)))
        yield _combine(model, log_p, rows, n_draws).reshape(n_draws, len(rows), -1)


def _limit(model: FittedModel, f: Tensor, variance: Tensor) -> Tensor:
    """Raise values far below the largest: their probabilities stay 0 to 1e-13, and the
    quadrature need not resolve them.
    """
    if type(model.likelihood) not in (ProbitPairs, RobustMax):
        return f
    return torch.maximum(
        f, f.max(1, keepdim=True).values - FAR * (2 * variance.max()).sqrt()
    )


def _combine(model: FittedModel, log_p: Floats, rows: Floats, n_draws: int) -> Floats:
    """Apply the pool; its other members, and how much they count, are the same in every
    draw.
    """
    if model.pool.is_trivial:
        return log_p
    if model.pool.gate is None:
        var = np.empty((len(rows), 0))
    else:
        var = as_array(predict_latent(model, rows).var)
    logs = [
        partial(lambda m: np.tile(m.log_proba(rows), (n_draws, 1)), m)
        for m in model.pool.members
    ]
    return normalised(model.pool.add_members(log_p, np.tile(var, (n_draws, 1)), logs))
