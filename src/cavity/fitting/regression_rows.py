"""The rows that a regressor is trained on, and its predictions of other rows."""

from __future__ import annotations

import numpy as np
import torch

from cavity.common.column_statistics import distinct_rows
from cavity.common.types import Floats
from cavity.engine.training.callbacks import Callback
from cavity.fitting.options.configuration import RegressorConfig
from cavity.fitting.options.plan import TableSize
from cavity.fitting.options.policy.work import count_points
from cavity.fitting.points import choose_points
from cavity.fitting.request import Request
from cavity.fitting.row_subsets import choose_training_rows, points_of
from cavity.fitting.training_rows import TrainingRows, draw_run_seed, find_start
from cavity.prediction import targets as predictions
from cavity.prediction.latent import Marginals
from cavity.prediction.model import FittedModel
from cavity.tables import inducing_points
from cavity.tables.table import Facts, Start, Table
from cavity.tables.validation import Features


def prepare_rows(
    request: Request[RegressorConfig],
    given: Facts,
    features: Features,
    stopping: tuple[Callback, ...] = (),
) -> TrainingRows:
    """Choose the rows to train on and the inducing inputs."""
    config = request.config
    rng = np.random.default_rng(request.seed)
    start = find_start(request, given, features, rng)
    table = given
    if isinstance(given, Table):
        table = choose_training_rows(config, given, start, rng)
    size = TableSize.of(table, features.n)
    Z = choose_inputs(config, start, table, size, rng)
    return TrainingRows(
        seen=table,
        table=table,
        start=start,
        Z=Z,
        seed=draw_run_seed(rng),
        n_columns=features.n,
        stopping=stopping,
    )


def choose_inputs(
    config: RegressorConfig,
    start: Start,
    table: Facts,
    size: TableSize,
    rng: np.random.Generator,
) -> Floats:
    """Choose inducing inputs [1 M D]; for a committee those of each member, [p M D]."""
    origin = config.method.inducing_from
    if isinstance(table, Table) and table.member is not None:
        return points_of(table.X, table.member, rng)
    if isinstance(table, Table) and origin == "subset":
        return distinct_rows(table.X)[0][None]

    config.check_size(table.n_rows)
    if origin == "rows" or config.inducing is None:
        return inducing_points.choose(None, start.candidates, 0, 1, rng)

    M = count_points(config, size)
    return choose_points(config, start.candidates, M, 1, rng)


def keep_rows(
    config: RegressorConfig, given: Facts, model: FittedModel
) -> predictions.TrainingRows | None:
    """Return what predictions need of the training rows."""
    if not config.method.keeps_rows or not isinstance(given, Table):
        return None

    X, y, weight = (
        torch.tensor(t, device=model.device) for t in (given.X, given.y, given.weight)
    )
    noise = predictions.target_noise(model)
    tol = config.method.solver_tol
    return predictions.make_training_rows(model, X, y, weight, noise, tol)


def predict_new(
    config: RegressorConfig, model: FittedModel, given: Facts, X: Floats
) -> Marginals:
    """Predict targets of new rows in the units of the fit; variances have the noise."""
    new = torch.tensor(X, device=model.device)
    rows = keep_rows(config, given, model)
    residual = config.method.predicts_residual
    f = predictions.predict_values(model, rows, residual, new)
    noise = predictions.target_noise(model)
    return Marginals(f.mean, np.maximum(f.var, 0) + noise)
