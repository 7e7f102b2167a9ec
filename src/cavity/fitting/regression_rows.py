"""What regression adds to a fit: which rows it trains on, and where its inducing points come from."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cavity.common.column_statistics import distinct_rows
from cavity.fitting import build, subset
from cavity.inference import Engine, State
from cavity.kernels import RBF, Kernel, inducing
from cavity.likelihoods import Gaussian
from cavity.options import RegressorConfig, policy
from cavity.options.plan import TableSize
from cavity.options.value_checks import inducing_count
from cavity.prediction.model import FittedModel, snapshot
from cavity.prediction.regression import TrainingRows, predict_moments, target_noise
from cavity.rows.sources import Streamed
from cavity.rows.tables import Array, Start, Table


def select_rows(config: RegressorConfig, table: Table, begin: Start, rng: np.random.Generator) -> Table:
    """Select the rows that the method trains on: an active set, all of them in blocks, or all.

    Rows at the same place go together, so that repeating a row and giving it a weight are the same.
    """
    method = config.method
    if method.committee is not None:
        (n_blocks, blocks), (distinct, place) = method.committee, distinct_rows(table.X)
        member = subset.BLOCKS[blocks](distinct, min(n_blocks, len(distinct)), begin.columns, rng)
        return replace(table, member=member[place])
    if method.active_set is not None:
        return _select_active_set(config, method.active_set, table, begin)
    return table


def _select_active_set(config: RegressorConfig, selection: str, table: Table, begin: Start) -> Table:
    distinct, place = distinct_rows(table.X)
    assert config.n_inducing is not None
    M = inducing_count(config.n_inducing, table.weight.sum())
    if M >= len(distinct):
        return table
    weight = np.bincount(place, weights=table.weight)
    y = np.bincount(place, weights=table.weight * table.y) / weight
    noise = np.maximum(config.noise[0], 1e-6) / weight
    chosen = subset.active_rows(_starting_kernel(config, begin), distinct, y, noise, M, selection)
    kept = np.isin(place, chosen)
    return replace(table, X=table.X[kept], y=table.y[kept], weight=table.weight[kept])


def _starting_kernel(config: RegressorConfig, begin: Start) -> Any:
    kernel = RBF() if config.kernel is None else copy.deepcopy(config.kernel)
    if isinstance(kernel, Kernel):
        kernel.bind(1, begin.columns)
    return kernel


def choose_points(
    config: RegressorConfig,
    candidates: inducing.Candidates,
    table: Table | Streamed,
    size: TableSize,
    rng: np.random.Generator,
) -> Array:
    """Choose inducing inputs [1 M D]; for a committee those of each member, [p M D]."""
    origin = config.method.inducing_from
    if isinstance(table, Table) and table.member is not None:
        return subset.points_of(table.X, table.member, rng)
    if isinstance(table, Table) and origin == "subset":
        return distinct_rows(table.X)[0][None]
    config.check_size(table.n_rows)
    if origin == "rows" or config.inducing is None:
        return inducing.choose(None, candidates, 0, 1, rng)
    return build.choose_points(config, candidates, policy.count_points(config, size), 1, rng)


def make_likelihood(config: RegressorConfig) -> Gaussian:
    """Make the likelihood, with its noise in the units of the targets."""
    likelihood = config.method.make_likelihood(1, config.learn, float(config.noise[0]))
    return likelihood.to(config.device, config.dtype)


def make_judge(
    held: Table, with_residual: bool, keep: Callable[[FittedModel], TrainingRows | None]
) -> Callable[[Engine, State], float]:
    """Return a function that judges a state by the mean negative log density of held-out targets, in their own units.

    `keep` returns what predictions need of the training rows.
    """

    _, scale = held.units or (0.0, 1.0)

    def judge(engine: Engine, state: State) -> float:
        model = snapshot(engine, state)
        new = torch.tensor(held.X, device=state.theta.device)
        f = predict_moments(model, keep(model), with_residual, new)
        mean, var = f.mean.cpu().numpy(), f.var.clamp_min(0).cpu().numpy() + target_noise(model)
        loss = 0.5 * ((held.y - mean) ** 2 / var + np.log(2 * np.pi * var)) + math.log(scale)
        return float(np.average(loss, weights=held.weight))

    return judge
