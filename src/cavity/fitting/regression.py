"""The fit of a regressor: read the rows, plan, train, record."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from cavity.common.column_statistics import distinct_rows
from cavity.common.ranks import run_together
from cavity.common.types import Floats
from cavity.engine import runs
from cavity.engine.inference import Engine, State
from cavity.engine.training.callbacks import EarlyStopping
from cavity.fitting.begin import Begun, begin_run
from cavity.fitting.evidence import hold_rows
from cavity.fitting.finish import Store, keep_on_interrupt, warn
from cavity.fitting.left_out import LeftOut, find_usual_rows
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import RegressorConfig
from cavity.fitting.options.plan import FitPlan, TableSize
from cavity.fitting.planning import announce_plan, with_seconds
from cavity.fitting.points import choose_points
from cavity.fitting.request import Request, check_ranks_agree, check_storable
from cavity.fitting.results import Result, common_result, describe_rows
from cavity.fitting.row_subsets import choose_training_rows, points_of
from cavity.fitting.screening import name_kernel
from cavity.fitting.training_rows import TrainingRows, draw_run_seed, find_start
from cavity.prediction import targets as predictions
from cavity.prediction.model import FittedModel, snapshot
from cavity.prediction.target_estimate import TargetEstimate, estimate_targets
from cavity.tables import inducing_points
from cavity.tables.labelled import read_eval_targets, read_target_source, read_targets
from cavity.tables.labels import check_targets
from cavity.tables.sources import find_source
from cavity.tables.table import Facts, GivenRows, Start, Table
from cavity.tables.validation import Features

TRAINING = 0.9  # share of a time limit
PATIENCE = 10  # epochs without a smaller loss of the eval_set before training stops


def fit_regressor(request: Request[RegressorConfig], store: Store) -> list[str]:
    """Fit a regressor, hand the result to `store`, and return the warnings.

    After an interrupt the result is what was learnt so far.
    """
    given, features = read_target_rows(request)
    fit = plan_fit(request, given, features)
    announce_plan(fit.request, fit.plan)

    begun = begin_run(fit.request, fit.plan.training, fit.training, TRAINING)
    make_record = partial(record, fit, begun)
    with keep_on_interrupt(begun, store, make_record) as progress:
        with name_kernel(begun.run.engine):
            runs.train(begun.run)
        progress.trained = True
        result = make_record()
        store(result)

    return warn(begun, fit.plan, result, [])


class RegressorFit(NamedTuple):
    """What is known and decided before anything is trained."""

    request: Request[RegressorConfig]
    given: Facts  # the rows of the user
    features: Features
    training: TrainingRows
    plan: FitPlan


def plan_fit(
    request: Request[RegressorConfig], given: Facts, features: Features
) -> RegressorFit:
    """Choose the rows to train on and the inducing inputs, and plan the training."""
    request = request.on_best_device(TableSize.of(given, features.n))
    config = request.config
    rng = np.random.default_rng(request.seed)
    start = find_start(request, given, features, rng)
    table = given
    if isinstance(given, Table):
        table = choose_training_rows(config, given, start, rng)
    size = TableSize.of(table, features.n)
    Z = choose_inputs(config, start, table, size, rng)
    training = TrainingRows(
        seen=table,
        table=table,
        start=start,
        Z=Z,
        seed=draw_run_seed(rng),
        n_columns=features.n,
        stopping=make_early_stopping(config, request.raw, features, given),
    )
    plan = FitPlan(
        training=policy.plan_training(config, size, Z.shape[-2]),
        time_limit=request.clock.limit,
    )
    return RegressorFit(request, given, features, training, with_seconds(request, plan))


def read_target_rows(request: Request[RegressorConfig]) -> tuple[Facts, Features]:
    """Read a table into memory, or survey a source.

    Checks that every rank has the same rows.
    """
    config = request.config
    reduce = request.reduce
    raw = request.raw
    whole = config.reads_whole_table
    source = run_together(
        reduce, lambda: find_source(raw, reads_whole_table=whole, check=check_targets)
    )
    given: Facts
    if source is None:
        merge = config.method.needs_all_rows  # batches follow the order of the rows
        read = partial(read_targets, raw, config.owner, merge, config.normalize_y)
        given, features = run_together(reduce, read)
    else:
        config.check_source()
        given, features = read_target_source(
            source, config.normalize_y, config.owner, request.seed, reduce
        )

    check_ranks_agree(given, features, None, reduce)
    check_storable(features, None)
    return given, features


def record(fit: RegressorFit, begun: Begun) -> Result:
    """Return what a fit leaves: the model, the rows it predicts from, its estimate."""
    config = fit.request.config
    given = fit.given
    units = given.units or (0.0, 1.0)
    run = begun.run
    table = begun.rows.table
    evidence = run.evidence() - float(run.engine.total) * math.log(units[1])
    left_out = None
    if isinstance(given, Table):  # a source would be read once more
        left_out = find_usual_rows(run, table.n_rows)
    start = begun.rows.start
    found = common_result(
        run,
        start.columns,
        fit.features,
        evidence=evidence,
        warm_start=config.warm_start,
        candidates=start.candidates,
        left_out=left_out,
    )
    estimate = None
    if left_out is not None and isinstance(table, Table):
        estimate = estimate_left_out(left_out, found.model, table, units, config)
    return found._replace(
        units=units,
        rows=keep_rows(config, given, found.model),
        predicts_residual=config.method.predicts_residual,
        estimate=estimate,
        plan=fit.plan,
        evidence_rows=hold_rows(begun),
        shares=describe_rows(given, fit.features),
    )


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


def estimate_left_out(
    loo: LeftOut,
    model: FittedModel,
    table: Table,
    units: tuple[float, float],
    config: RegressorConfig,
) -> TargetEstimate | None:
    """Score rows without their own sites.

    None if predictions do not come from q alone: from all rows, or from a committee.
    """
    if config.method.keeps_rows or config.method.committee is not None:
        return None

    (shift, scale) = units
    (mean, var) = (part[:, 0] for part in loo.f)
    if not config.method.predicts_residual:
        var = var - torch.from_numpy(predictions.residual(model, table.X[loo.rows]))
    sd = scale * (var.clamp_min(0) + predictions.target_noise(model)).sqrt().numpy()
    means = shift + scale * mean.double().numpy()
    y = shift + scale * loo.y.astype(np.float64)
    return estimate_targets(means, sd, y, loo.weight, of=table.n_rows)


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

    M = policy.count_points(config, size)
    return choose_points(config, start.candidates, M, 1, rng)


def make_early_stopping(
    config: RegressorConfig, raw: GivenRows, features: Features, given: Facts
) -> tuple[EarlyStopping, ...]:
    """Judge states by the negative log density of eval_set's targets, if there are any.

    The loss is in the targets' own units.
    """
    if raw.eval_set is None:
        return ()

    units = given.units or (0.0, 1.0)
    held = read_eval_targets(raw.eval_set, features, units)

    def judge(engine: Engine, state: State) -> float:
        model = snapshot(engine, state)
        new = torch.tensor(held.X, device=state.theta.device)
        rows = keep_rows(config, given, model)
        residual = config.method.predicts_residual
        f = predictions.predict_values(model, rows, residual, new)
        var = np.maximum(f.var, 0) + predictions.target_noise(model)
        loss = 0.5 * (
            (held.y - f.mean) ** 2 / var + np.log(2 * np.pi * var)
        ) + math.log(units[1])
        return float(np.average(loss, weights=held.weight))

    return (EarlyStopping(judge, PATIENCE),)
