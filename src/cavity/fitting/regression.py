"""The fit of a regressor: read the rows, plan, train, record."""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from cavity.common.ranks import run_together
from cavity.engine import runs
from cavity.engine.inference import Engine, State
from cavity.engine.training.callbacks import EarlyStopping
from cavity.fitting.begin import Begun, begin_run
from cavity.fitting.evidence import hold_rows
from cavity.fitting.finish import Store, keep_on_interrupt, warn
from cavity.fitting.left_out import find_usual_rows
from cavity.fitting.options.configuration import RegressorConfig
from cavity.fitting.options.plan import FitPlan, JudgingPlan, TableSize
from cavity.fitting.options.policy.targets import TargetCases, plan_target_judging
from cavity.fitting.options.policy.training import plan_training
from cavity.fitting.planning import announce_plan, with_seconds
from cavity.fitting.regression_judges import (
    TargetsHeldOut,
    TargetVerdict,
    hold_out,
    leave_out,
    weigh_residuals,
)
from cavity.fitting.regression_rows import keep_rows, predict_new, prepare_rows
from cavity.fitting.request import Request, check_ranks_agree, check_storable
from cavity.fitting.results import Result, common_result, describe_rows
from cavity.fitting.screening import name_kernel
from cavity.fitting.training_rows import TrainingRows
from cavity.prediction.model import snapshot
from cavity.tables.labelled import read_eval_targets, read_target_source, read_targets
from cavity.tables.labels import check_targets
from cavity.tables.sources import find_source
from cavity.tables.table import Facts, GivenRows, Table
from cavity.tables.validation import Features

# shares of a time limit, without and with fits that judge
TRAINING = 0.9
TRAINING_OF_ALL = 0.5
PATIENCE = 10  # epochs without a smaller loss of the eval_set before training stops


def fit_regressor(request: Request[RegressorConfig], store: Store) -> list[str]:
    """Fit a regressor, hand the result to `store`, and return the warnings.

    After an interrupt the result is what was learnt so far.
    """
    given, features = read_target_rows(request)
    fit = plan_fit(request, given, features)
    announce_plan(fit.request, fit.plan)

    share = TRAINING_OF_ALL if fit.judging.parts else TRAINING
    begun = begin_run(fit.request, fit.plan.training, fit.training, share)
    make_record = partial(record, fit, begun)
    with keep_on_interrupt(begun, store, make_record) as progress:
        with name_kernel(begun.run.engine):
            runs.train(begun.run)
        progress.trained = True
        held = hold_out(fit.request, fit.judging, fit.given, fit.features, begun)
        result = make_record(held)
        store(result)

    return warn(begun, fit.plan, result, [])


class RegressorFit(NamedTuple):
    """What is known and decided before anything is trained."""

    request: Request[RegressorConfig]
    given: Facts  # the rows of the user
    features: Features
    training: TrainingRows
    plan: FitPlan

    @property
    def judging(self) -> JudgingPlan:
        assert self.plan.judging is not None
        return self.plan.judging


def plan_fit(
    request: Request[RegressorConfig], given: Facts, features: Features
) -> RegressorFit:
    """Choose the rows to train on and the inducing inputs, and plan the training."""
    request = request.on_best_device(TableSize.of(given, features.n))
    config = request.config
    stopping = make_early_stopping(config, request.raw, features, given)
    training = prepare_rows(request, given, features, stopping)
    facts = TargetCases(
        training.size, isinstance(given, Table), request.raw.eval_set is not None
    )
    plan = FitPlan(
        training=plan_training(config, training.size, training.Z.shape[-2]),
        judging=plan_target_judging(config, facts),
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


def record(
    fit: RegressorFit, begun: Begun, held: TargetsHeldOut | None = None
) -> Result:
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
    if held is None and left_out is not None and isinstance(table, Table):
        held = leave_out(left_out, found.model, table, config)
    verdict = TargetVerdict()
    if held is not None:
        verdict = weigh_residuals(held, units)
    return found._replace(
        units=units,
        rows=keep_rows(config, given, found.model),
        predicts_residual=config.method.predicts_residual,
        estimate=verdict.estimate,
        spread=verdict.spread,
        plan=fit.plan,
        evidence_rows=hold_rows(begun),
        shares=describe_rows(given, fit.features),
    )


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
        y = predict_new(config, model, given, held.X)
        loss = 0.5 * (
            (held.y - y.mean) ** 2 / y.var + np.log(2 * np.pi * y.var)
        ) + math.log(units[1])
        return float(np.average(loss, weights=held.weight))

    return (EarlyStopping(judge, PATIENCE),)
