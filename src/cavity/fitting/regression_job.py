"""The fit of a regressor, ready to train."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch

from cavity.distributed import run_together
from cavity.fitting import agreement, build, regression_rows, runs
from cavity.fitting.job import Job, choose_device, open_session, start_run, start_values
from cavity.fitting.novelty import leave_out
from cavity.fitting.results import Continuation, Result, common_result
from cavity.fitting.time_budget import Budget
from cavity.options import Method, Plan, RegressorConfig, policy
from cavity.options.plan import TableSize
from cavity.prediction.model import FittedModel
from cavity.prediction.regression import TrainingRows, make_training_rows, target_noise
from cavity.rows.labels import check_targets
from cavity.rows.sources import Streamed, find_source
from cavity.rows.tables import Request, Table
from cavity.rows.targets import read_eval_targets, read_target_source, read_targets
from cavity.training.callbacks import Callback, EarlyStopping
from cavity.training.loop import Run

PATIENCE = 10  # epochs without a smaller loss of the eval_set before training stops


def prepare_regression(config: RegressorConfig, request: Request, earlier: Continuation | None) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    budget = Budget(time.perf_counter(), request.time_limit, config.max_seconds)
    config = replace(config, max_seconds=policy.share_time(budget.limit, config.max_seconds, False))
    session = open_session(config, earlier)
    rng, reduce, whole = session.rng, session.reduce, config.reads_whole_table
    source = run_together(reduce, lambda: find_source(request, reads_whole_table=whole, check=check_targets))
    if source is not None:
        config.check_source()
    given: Table | Streamed
    given, features = (
        run_together(
            reduce, lambda: read_targets(request, config.owner, config.method.merges_rows, config.normalize_y)
        )
        if source is None
        else read_target_source(source, config.normalize_y, config.owner, session.seed, session.reduce)
    )
    units = given.units or (0.0, 1.0)
    agreement.check_rows(given, features, None, reduce)
    session, config = choose_device(session, config, TableSize.of(given, features.n))
    begin = start_values(session, given, features)
    table = regression_rows.select_rows(config, given, begin, rng) if isinstance(given, Table) else given
    size = TableSize.of(table, features.n)
    Z = regression_rows.choose_points(config, begin.pool, table, size, rng)
    options = policy.complete(config, size, build.whitened_size(config, Z))
    module = build.make_prior(options, table, begin, Z)
    engine = build.make_engine(module, table, options, regression_rows.make_likelihood(config))

    def keep(model: FittedModel) -> TrainingRows | None:
        return keep_rows(config.method, model, given) if isinstance(given, Table) else None

    stopping: tuple[Callback, ...] = ()
    if request.eval_set is not None:
        held = read_eval_targets(request.eval_set, features, units)
        judge = regression_rows.make_judge(held, config.method.predicts_residual, keep)
        stopping = (EarlyStopping(judge, PATIENCE),)
    run = start_run(session, engine, table, options, features, stopping=stopping)

    def make_result(run: Run) -> Result:
        evidence = runs.final_evidence(run) - float(run.engine.total) * math.log(units[1])
        left_out = leave_out(run) if isinstance(given, Table) else None  # a source would be read once more
        found = common_result(run, begin, features, evidence, config.warm_start, left_out)
        return found._replace(
            units=units,
            rows=keep(found.model),
            predicts_residual=config.method.predicts_residual,
        )

    plan = Plan(training=options.plan, time_limit=budget.limit)
    return Job(run, options, plan, make_result)


def keep_rows(method: Method, model: FittedModel, table: Table) -> TrainingRows | None:
    """Return the training rows, if predictions read them."""
    if not method.keeps_rows:
        return None
    X, y, weight = (torch.tensor(t, device=model.device) for t in table.sample())
    return make_training_rows(model, X, y, weight, target_noise(model), method.solver_tol)
