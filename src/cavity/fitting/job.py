"""A fit from its arguments to its result. The estimators call this, and store what it returns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity import distributed
from cavity.columns import Columns
from cavity.config import ClassifierConfig, Config, Method, Options, RegressorConfig
from cavity.config.options import complete
from cavity.config.values import inducing_count
from cavity.distributed import Local, run_together
from cavity.fitting import agreement, build, monitoring, regression, runs
from cavity.fitting.calibration import (
    Calibration,
    LeaveOneOut,
    find_leave_one_out,
    hold_out_for_calibration,
)
from cavity.fitting.partial_fit import Growing, keep_growing
from cavity.inference import Engine, State
from cavity.intake.sources import find_source, read_source
from cavity.intake.tables import Facts, Request, Start, Table, read_table, share_lengthscales
from cavity.intake.target_sources import StreamedTargets, read_target_source
from cavity.intake.targets import Targets, check_targets, read_targets
from cavity.intake.validation import Features
from cavity.kernels import Kernel
from cavity.prediction.estimate import Estimate
from cavity.prediction.model import FittedModel, extract_model, to_cpu
from cavity.prediction.rowwise import TrainingRows, make_training_rows, target_noise
from cavity.training.callbacks import Callback
from cavity.training.checkpoint import restore_run
from cavity.training.loop import Run
from cavity.training.threads import limit_threads

Array = NDArray[np.float64]
BACKGROUND = 150  # training rows that are kept for the importance of columns


class Continuation(NamedTuple):
    """What `warm_start` continues from."""

    state: State
    columns: Columns


class Result(NamedTuple):
    """What a fit leaves. Model files hold the same, except the continuation."""

    model: FittedModel
    features: Features
    evidence: float
    is_bound: bool  # the evidence is a lower bound
    history: list[dict[str, Any]]
    relevance: Array | None  # [D], shares of the features
    warnings: tuple[str, ...] = ()
    classes: NDArray[Any] | None = None  # of a classifier
    growing: Growing | None = None  # what partial_fit adds to
    units: tuple[float, float] = (0.0, 1.0)  # shift and scale of a regressor's targets
    rows: TrainingRows | None = None  # if predictions read the training rows
    predicts_residual: bool = True  # predictive variances have the residual
    continuation: Continuation | None = None
    loo: LeaveOneOut | None = None  # of a classifier
    calibration: str | None = None  # how the temperature or the pool was found; None: there is none
    class_prior: Array | None = None  # [C], class frequencies of the training rows
    estimate: Estimate | None = None  # of a classifier, from rows that were held out
    importance: Array | None = None  # [columns], computed when it is first needed
    background: Array | None = (
        None  # [n D], some training rows to compute it from; model files do not have them
    )


@dataclass
class Job:
    """A fit that is ready to train."""

    run: Run
    options: Options
    make_result: Callable[[Run], Result]
    lightest: float = 1.0
    calibrate: Callable[[Result], Result] | None = None  # after training

    def train_quietly(self) -> tuple[Engine, State]:
        """Train to the end without results, warnings or a progress bar."""
        run = runs.find_loop(self.run, self.options)(self.run)
        return run.engine, run.state

    def train(self, store: Callable[[Result], None]) -> list[str]:
        """Train to the end, hand the result to `store`, and return the warnings.

        On an interrupt, `store` gets the best state so far.
        """
        with limit_threads(runs.count_work(self.run)):
            return self._train(store)

    def _train(self, store: Callable[[Result], None]) -> list[str]:
        try:
            self.run = runs.find_loop(self.run, self.options)(self.run)
            result = self.make_result(self.run)
            store(result)
        except KeyboardInterrupt:
            monitoring.restore_best(self.run)
            store(self.make_result(self.run))
            raise
        if self.calibrate is not None:  # an interrupt from here on leaves the model as it is
            result = self.calibrate(result)
            store(result)
        found = runs.find_warnings(self.run, self.options, self.lightest)
        found += monitoring.find_failed_checkpoint(self.run)
        if math.isnan(result.evidence):
            found.append(runs.NO_EVIDENCE)
        return runs.warn(found, stacklevel=4)


class Session(NamedTuple):
    """What all parts of one fit share."""

    config: Config
    earlier: Continuation | None
    reduce: Local
    seed: int
    rng: np.random.Generator
    begun: float  # when the fit began, in seconds


def open_session(config: Config, earlier: Continuation | None) -> Session:
    """Draw the seed of a fit, after checking what its ranks can do."""
    begun, reduce = time.perf_counter(), distributed.current()
    config.check_ranks(reduce.world)
    agreement.check_arguments(config, reduce)
    seed = monitoring.draw_seed(config, reduce)
    return Session(config, earlier, reduce, seed, np.random.default_rng(seed), begun)


def prepare_classification(config: ClassifierConfig, request: Request, earlier: Continuation | None) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    session = open_session(config, earlier)
    reduce = session.reduce
    source = run_together(reduce, lambda: find_source(request, reads_whole_table=config.reads_whole_table))
    if source is not None:
        config.check_source(source.numbered)
    table, features, classes = (
        run_together(reduce, lambda: read_table(request, config.class_weight, config.owner))
        if source is None
        else read_source(source, config.class_weight, config.owner, session.seed, session.reduce)
    )
    agreement.check_rows(table, features, classes, reduce)
    config.method.check_classes(len(classes))
    config.check_size(table.n_rows)
    numbered = source is None or source.numbered
    held = None
    if config.holds_out(table.n_rows) and isinstance(table, Table):
        table, held = hold_out_for_calibration(table, session.seed)
    job = prepare_table(session, table, features, classes, numbered, every_row=held is None)
    if not config.calibrates and config.ensemble is None:
        return job

    def fit_part(part: Table, seconds: float | None) -> FittedModel:
        inner = session._replace(
            config=config.for_folds(seconds),
            earlier=None,
            rng=np.random.default_rng(session.seed),
            begun=time.perf_counter(),
        )
        made = prepare_table(inner, part, features, classes, numbered)
        return extract_model(*made.train_quietly())

    def calibrate(result: Result) -> Result:
        about = Calibration(config, table, reduce, session.seed, fit_part, session.begun, held)
        pool, how, estimate = about.find_pool(result.model, result.loo)
        return result._replace(model=result.model._replace(pool=pool), calibration=how, estimate=estimate)

    job.calibrate = calibrate
    return job


def prepare_table(
    session: Session,
    table: Facts,
    features: Features,
    classes: NDArray[Any],
    numbered: bool,
    every_row: bool = True,
) -> Job:
    """Build the engine for labelled rows, and start or resume a run. `every_row`: no row is held out."""
    config, rng = session.config, session.rng
    assert isinstance(config, ClassifierConfig)
    stopping: tuple[Callback, ...] = ()
    if isinstance(table, Table) and config.validation_fraction is not None:
        table, held = monitoring.hold_out(table, config.validation_fraction, rng)
        stopping, every_row = (monitoring.make_early_stopping(held, config.patience),), False
    begin = start_values(session, table, features)
    M = inducing_count(config.inducing_points(table.n_rows, table.n_latent), table.class_totals.sum())
    Z = build.choose_points(config, begin.pool, M, table.n_latent, rng)
    options = complete(config, table.n_rows, table.n_latent, build.whitened_size(config, Z), numbered)
    engine = build.make_engine(build.make_prior(options, table, begin, Z), table, options)
    run = start_run(session, engine, table, options, features, classes, stopping)

    def make_result(run: Run) -> Result:
        growing = keep_growing(config.method, run, begin, table)
        loo = find_leave_one_out(run, table, every_row)
        found = common_result(run, begin, features, runs.label_evidence(run), config.warm_start)
        prior = table.class_totals / table.class_totals.sum()
        return found._replace(classes=classes, growing=growing, loo=loo, class_prior=prior)

    return Job(run, options, make_result, table.lightest)


def prepare_regression(config: RegressorConfig, request: Request, earlier: Continuation | None) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
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
    begin = start_values(session, given, features)
    table = regression.select_rows(config, given, begin, rng) if isinstance(given, Targets) else given
    Z = regression.choose_points(config, begin.pool, table, rng)
    options = complete(config, table.n_rows, table.n_latent, build.whitened_size(config, Z))
    module = build.make_prior(options, table, begin, Z)
    engine = build.make_engine(module, table, options, regression.make_likelihood(config))
    run = start_run(session, engine, table, options, features)

    def make_result(run: Run) -> Result:
        evidence = runs.final_evidence(run) - float(run.engine.total) * math.log(given.scale)
        found = common_result(run, begin, features, evidence, config.warm_start)
        return found._replace(
            units=(given.shift, given.scale),
            rows=keep_rows(config.method, found.model, given) if isinstance(given, Targets) else None,
            predicts_residual=config.method.predicts_residual,
        )

    return Job(run, options, make_result)


def start_values(session: Session, table: Facts, features: Features) -> Start:
    """Return the table's starting values; a warm start keeps the units of the old parameters."""
    begin, earlier = share_lengthscales(table.start(session.rng), features, session.rng), session.earlier
    if earlier is not None and len(earlier.columns.center) == features.n:
        begin = begin._replace(columns=earlier.columns)
    return begin


def start_run(
    session: Session,
    engine: Engine,
    table: Facts,
    options: Options,
    features: Features,
    classes: NDArray[Any] | None = None,
    stopping: tuple[Callback, ...] = (),
) -> Run:
    """Return a run that has not started, or one restored from a checkpoint."""
    config, earlier, reduce, seed, rng, begun = session
    state = None if earlier is None else earlier.state
    run = runs.make_run(engine, table.rows(config), options, int(rng.integers(2**31 - 1)), reduce, state)
    run.started = begun  # max_seconds counts the start-up, too
    facts: dict[str, Any] = {}
    if config.checkpoint:  # an optimiser cannot read what another one remembers
        facts = monitoring.describe_run(config, table, classes, engine.prior.size, seed)
        facts["optimizer"] = options.optimizer
    run.callbacks = (*stopping, *monitoring.make_callbacks(config, features, classes, facts, reduce))
    stored = monitoring.find_checkpoint(config, reduce)
    if stored is not None:
        restore_run(run, stored, facts)
    return run


def common_result(run: Run, begin: Start, features: Features, evidence: float, warm_start: bool) -> Result:
    """Return what the fits of both estimators leave."""
    state = to_cpu(run.state) if warm_start else None
    model = extract_model(run.engine, run.state)
    settle_kernel(model)
    return Result(
        model=model,
        features=features,
        evidence=evidence,
        is_bound=run.engine.removal == 0 and run.engine.factor.bounds,
        history=run.history,
        relevance=find_relevance(model.prior.kernel, begin.columns, features),
        continuation=None if state is None else Continuation(state, begin.columns),
        background=choose_background(begin),
    )


def choose_background(begin: Start) -> Array | None:
    """Choose some training rows by weight; None after `partial_fit`, which keeps none."""
    X, weight = begin.pool.X, begin.pool.weight
    if not len(X):
        return None
    rng = np.random.default_rng(0)
    return np.asarray(X[rng.choice(len(X), BACKGROUND, p=weight / weight.sum())])


def settle_kernel(model: FittedModel) -> None:
    """Write the kernel's learnt values into its constructor arguments, one set per class."""
    kernel = model.prior.kernel
    if isinstance(kernel, Kernel):
        kernel.settle(1 if model.likelihood.linear else model.prior.n_latent)


def find_relevance(kernel: Any, columns: Columns, features: Features) -> Array | None:
    """Return the share of each column of X: inverse lengthscales in units of the spread, averaged over classes."""
    weights = kernel.relevance(columns) if isinstance(kernel, Kernel) else None
    if weights is None:
        return None
    prepare = features.preparation
    mean = np.asarray(weights).mean(0) if prepare is None else prepare.fold_relevance(weights).mean(0)
    return np.asarray(mean / mean.sum())


def keep_rows(method: Method, model: FittedModel, table: Targets) -> TrainingRows | None:
    """Return the training rows, if predictions read them."""
    if not method.keeps_rows:
        return None
    X, y, weight = (torch.tensor(t, device=model.device) for t in table.sample())
    return make_training_rows(model, X, y, weight, target_noise(model), method.solver_tol)
