"""A fit from its arguments to its result. The estimators call this, and store what it returns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from cavity.fitting.budget import Budget, more_follows, read_limit
from cavity.fitting.calibration import (
    Calibration,
    LeaveOneOut,
    find_leave_one_out,
    hold_out_for_calibration,
)
from cavity.fitting.partial_fit import Growing, keep_growing
from cavity.fitting.prior_mean import MeanFits
from cavity.fitting.selection import ModelSearch, Selection
from cavity.inference import Engine, State
from cavity.intake.eval_set import read_eval_labels, read_eval_targets
from cavity.intake.sources import find_source, read_source
from cavity.intake.tables import Facts, Request, Start, Table, read_table, share_lengthscales
from cavity.intake.target_sources import StreamedTargets, read_target_source
from cavity.intake.targets import Targets, check_targets, read_targets
from cavity.intake.validation import Features
from cavity.kernels import Kernel, Ranked
from cavity.prediction.estimate import Estimate
from cavity.prediction.model import FittedModel, extract_model, to_cpu
from cavity.prediction.rowwise import TrainingRows, make_training_rows, target_noise
from cavity.training.callbacks import Callback, EarlyStopping
from cavity.training.checkpoint import restore_run
from cavity.training.loop import Run
from cavity.training.threads import flush_denormals, limit_threads

Array = NDArray[np.float64]
PATIENCE = 10  # epochs without a smaller loss of a regressor's eval_set before training stops
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
    selection: Selection | None = None  # of a classifier
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
    finish: Callable[[Result], Result] | None = None  # after training: select and calibrate
    limit: str = "max_seconds"  # the argument that limits the time of training

    def train_quietly(self) -> Run:
        """Train to the end without results, warnings or a progress bar."""
        self.run = runs.find_loop(self.run, self.options)(self.run)
        return self.run

    def train(self, store: Callable[[Result], None]) -> list[str]:
        """Train to the end, hand the result to `store`, and return the warnings.

        On an interrupt, `store` gets the best state so far.
        """
        with limit_threads(runs.count_work(self.run)), flush_denormals(self.options.config.dtype):
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
        if self.finish is not None:  # an interrupt from here on leaves the model as it is
            result = self.finish(result)
            store(result)
        found = runs.find_warnings(self.run, self.options, self.lightest, self.limit)
        found += [(text, UserWarning) for text in result.warnings]
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
    means: MeanFits


def open_session(config: Config, earlier: Continuation | None) -> Session:
    """Draw the seed of a fit, after checking what its ranks can do."""
    begun, reduce = time.perf_counter(), distributed.current()
    config.check_ranks(reduce.world)
    agreement.check_arguments(config, reduce)
    seed = monitoring.draw_seed(config, reduce)
    return Session(config, earlier, reduce, seed, np.random.default_rng(seed), begun, MeanFits())


def read_budget(config: Config, request: Request) -> Budget:
    """Start the clock of a fit, after checking the arguments of `fit` that need no rows."""
    monitoring.check_eval_set(config, request.eval_set)
    return Budget(time.perf_counter(), read_limit(request.time_limit), config.max_seconds)


def prepare_classification(config: ClassifierConfig, request: Request, earlier: Continuation | None) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    session, budget = open_session(config, earlier), read_budget(config, request)
    reduce, held_name = session.reduce, "held out"
    source = run_together(reduce, lambda: find_source(request, reads_whole_table=config.reads_whole_table))
    if source is not None:
        config.check_source(source.numbered)
    table, features, classes = (
        run_together(
            reduce, lambda: read_table(request, config.class_weight, config.owner, groups=reduce.world == 1)
        )
        if source is None
        else read_source(source, config.class_weight, config.owner, session.seed, session.reduce)
    )
    agreement.check_rows(table, features, classes, reduce)
    config.method.check_classes(len(classes))
    config.check_size(table.n_rows)
    numbered = source is None or source.numbered
    stopping: tuple[Callback, ...] = ()
    held: Table | None = None
    if request.eval_set is not None:
        held, held_name = read_eval_labels(request.eval_set, features, classes), "of eval_set"
        stopping = (monitoring.make_early_stopping(held, config.patience),)
    elif config.holds_out(table.n_rows) and isinstance(table, Table):
        table, held = hold_out_for_calibration(table, session.seed)
    every_row = held is None or bool(stopping)

    def fit_again(config: ClassifierConfig, part: Table, seconds: float | None) -> Job:
        inner = session._replace(
            config=config.for_folds(seconds),
            earlier=None,
            rng=np.random.default_rng(session.seed),
            begun=time.perf_counter(),
        )
        job = prepare_table(inner, part, features, classes, numbered)
        job.train_quietly()
        return job

    search = None
    if isinstance(table, Table) and config.selects and reduce.world == 1:
        search = ModelSearch(config, table, session.seed, fit_again, budget)
    selection = None if search is None else search.screen()
    chosen = config if selection is None else selection.apply(config)
    seconds = budget.training_seconds(more_follows(config, held is not None))
    main = session._replace(config=replace(chosen, max_seconds=seconds))
    job = prepare_table(main, table, features, classes, numbered, every_row, stopping)
    job.limit = "max_seconds" if budget.limit is None else "time_limit"

    def finish(result: Result) -> Result:
        found = result._replace(selection=selection)
        if (
            search is not None and selection is None and not (config.callbacks or stopping)
        ):  # they saw this fit
            found = search.improve(result)
        used = config if found.selection is None else found.selection.apply(config)

        def fit_part(part: Table, seconds: float | None) -> FittedModel:
            run = fit_again(used, part, seconds).run
            return extract_model(run.engine, run.state)

        about = Calibration(used, table, reduce, session.seed, fit_part, budget, held, held_name)
        pool, how, estimate, notes = about.find_pool(found.model, found.loo)
        model = found.model._replace(pool=pool)
        return found._replace(model=model, calibration=how, estimate=estimate, warnings=notes)

    if config.calibrates or config.ensemble is not None or search is not None:
        job.finish = finish
    return job


def prepare_table(
    session: Session,
    table: Facts,
    features: Features,
    classes: NDArray[Any],
    numbered: bool,
    every_row: bool = True,
    stopping: tuple[Callback, ...] = (),
) -> Job:
    """Build the engine for labelled rows, and start or resume a run. `every_row`: no row is held out."""
    config, rng = session.config, session.rng
    assert isinstance(config, ClassifierConfig)
    if isinstance(table, Table) and config.validation_fraction is not None:
        table, held = monitoring.hold_out(table, config.validation_fraction, rng)
        stopping, every_row = (monitoring.make_early_stopping(held, config.patience),), False
    begin = start_values(session, as_scores(config.kernel, table), features)
    M = inducing_count(config.inducing_points(table.n_rows, table.n_latent), table.class_totals.sum())
    Z = build.choose_points(config, begin.pool, M, table.n_latent, rng)
    options = complete(config, table.n_rows, table.n_latent, build.whitened_size(config, Z), numbered)
    module = build.make_prior(options, table, begin, Z)
    offset = None
    if config.mean is not None:
        assert isinstance(table, Table)
        offset = session.means.make_offset(config, table, session.seed)
    engine = build.make_engine(module, table, options, offset=offset)
    run = start_run(session, engine, table, options, features, classes, stopping)

    def make_result(run: Run) -> Result:
        growing = None if offset is not None else keep_growing(config.method, run, begin, table)
        loo = find_leave_one_out(run, table, every_row)
        found = common_result(run, begin, features, runs.label_evidence(run), config.warm_start)
        prior = table.class_totals / table.class_totals.sum()
        return found._replace(classes=classes, growing=growing, loo=loo, class_prior=prior)

    return Job(run, options, make_result, table.lightest)


def as_scores(kernel: Any, table: Facts) -> Facts:
    """Return the table as the kernel's inducing points see it."""
    if not isinstance(kernel, Ranked) or not isinstance(table, Table):
        return table
    return Table(kernel.score(table.X), table.y, table.weight, table.n_classes)


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
    begin = start_values(session, given, features)
    table = regression.select_rows(config, given, begin, rng) if isinstance(given, Targets) else given
    Z = regression.choose_points(config, begin.pool, table, rng)
    options = complete(config, table.n_rows, table.n_latent, build.whitened_size(config, Z))
    module = build.make_prior(options, table, begin, Z)
    engine = build.make_engine(module, table, options, regression.make_likelihood(config))

    def keep(model: FittedModel) -> TrainingRows | None:
        return keep_rows(config.method, model, given) if isinstance(given, Targets) else None

    stopping: tuple[Callback, ...] = ()
    if request.eval_set is not None:
        held = read_eval_targets(request.eval_set, features, (given.shift, given.scale))
        judge = regression.make_judge(held, config.method.predicts_residual, keep)
        stopping = (EarlyStopping(judge, PATIENCE),)
    run = start_run(session, engine, table, options, features, stopping=stopping)

    def make_result(run: Run) -> Result:
        evidence = runs.final_evidence(run) - float(run.engine.total) * math.log(given.scale)
        found = common_result(run, begin, features, evidence, config.warm_start)
        return found._replace(
            units=(given.shift, given.scale),
            rows=keep(found.model),
            predicts_residual=config.method.predicts_residual,
        )

    return Job(run, options, make_result, limit="max_seconds" if budget.limit is None else "time_limit")


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
    config, earlier, reduce, seed, rng, begun, _ = session
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
