"""The fit of a regressor, ready to train."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from cavity.distributed import run_together
from cavity.fitting import agreement, build, regression_rows, runs
from cavity.fitting.job import Job, choose_device, open_session, read_budget, start_run, start_values
from cavity.fitting.novelty import leave_out
from cavity.fitting.results import Continuation, Result, common_result
from cavity.options import Method, RegressorConfig
from cavity.options.completed import complete
from cavity.prediction.model import FittedModel
from cavity.prediction.regression import TrainingRows, make_training_rows, target_noise
from cavity.rows.eval_set import read_eval_targets
from cavity.rows.sources import find_source
from cavity.rows.tables import Request
from cavity.rows.target_sources import StreamedTargets, read_target_source
from cavity.rows.targets import Targets, check_targets, read_targets
from cavity.training.callbacks import Callback, EarlyStopping
from cavity.training.loop import Run

PATIENCE = 10  # epochs without a smaller loss of the eval_set before training stops


def prepare_regression(config: RegressorConfig, request: Request, earlier: Continuation | None) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    budget = read_budget(config, request)
    config = replace(config, max_seconds=budget.training_seconds(more_follows=False))
    session = open_session(config, earlier)
    rng, reduce, whole = session.rng, session.reduce, config.reads_whole_table
    source = run_together(reduce, lambda: find_source(request, reads_whole_table=whole, check=check_targets))
    if source is not None:
        config.check_source()
    given: Targets | StreamedTargets
    given, features = (
        run_together(
            reduce, lambda: read_targets(request, config.owner, config.method.merges_rows, config.normalize_y)
        )
        if source is None
        else read_target_source(source, config.normalize_y, config.owner, session.seed, session.reduce)
    )
    agreement.check_rows(given, features, None, reduce)
    session, config = choose_device(session, config, given)
    begin = start_values(session, given, features)
    table = regression_rows.select_rows(config, given, begin, rng) if isinstance(given, Targets) else given
    Z = regression_rows.choose_points(config, begin.pool, table, rng)
    options = complete(config, table.n_rows, table.n_latent, build.whitened_size(config, Z))
    module = build.make_prior(options, table, begin, Z)
    engine = build.make_engine(module, table, options, regression_rows.make_likelihood(config))

    def keep(model: FittedModel) -> TrainingRows | None:
        return keep_rows(config.method, model, given) if isinstance(given, Targets) else None

    stopping: tuple[Callback, ...] = ()
    if request.eval_set is not None:
        held = read_eval_targets(request.eval_set, features, (given.shift, given.scale))
        judge = regression_rows.make_judge(held, config.method.predicts_residual, keep)
        stopping = (EarlyStopping(judge, PATIENCE),)
    run = start_run(session, engine, table, options, features, stopping=stopping)

    def make_result(run: Run) -> Result:
        evidence = runs.final_evidence(run) - float(run.engine.total) * math.log(given.scale)
        left_out = leave_out(run) if isinstance(given, Targets) else None  # a source would be read once more
        found = common_result(run, begin, features, evidence, config.warm_start, left_out)
        return found._replace(
            units=(given.shift, given.scale),
            rows=keep(found.model),
            predicts_residual=config.method.predicts_residual,
        )

    return Job(run, options, make_result, limit="max_seconds" if budget.limit is None else "time_limit")


def keep_rows(method: Method, model: FittedModel, table: Targets) -> TrainingRows | None:
    """Return the training rows, if predictions read them."""
    if not method.keeps_rows:
        return None
    X, y, weight = (torch.tensor(t, device=model.device) for t in table.sample())
    return make_training_rows(model, X, y, weight, target_noise(model), method.solver_tol)
