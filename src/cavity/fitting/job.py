"""A fit from its arguments to its result. The estimators call this, and store what it returns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity import distributed
from cavity.columns import Columns
from cavity.config import Config, Options
from cavity.config.options import complete
from cavity.config.regression_methods import RegressionMethod
from cavity.config.values import inducing_count
from cavity.distributed import Local, run_together
from cavity.fitting import agreement, build, monitoring, regression, runs
from cavity.fitting.partial_fit import Growing, keep_growing
from cavity.inference import Engine, State
from cavity.intake.sources import find_source, read_source
from cavity.intake.tables import Facts, Request, Start, Table, read_table
from cavity.intake.target_sources import StreamedTargets, read_target_source
from cavity.intake.targets import Targets, check_targets, read_targets
from cavity.intake.validation import Features
from cavity.kernels import Kernel
from cavity.prediction.model import FittedModel, extract_model, to_cpu
from cavity.prediction.rowwise import TrainingRows, make_training_rows, target_noise
from cavity.training.checkpoint import restore_run
from cavity.training.loop import Run

Array = NDArray[np.float64]


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
    warnings: list[str] = []  # noqa: RUF012
    classes: NDArray[Any] | None = None  # of a classifier
    growing: Growing | None = None  # what partial_fit adds to
    units: tuple[float, float] | None = None  # shift and scale of a regressor's targets
    rows: TrainingRows | None = None  # if predictions read the training rows
    continuation: Continuation | None = None


@dataclass
class Job:
    """A fit that is ready to train."""

    run: Run
    options: Options
    features: Features
    make_result: Callable[[Run], Result]
    lightest: float = 1.0
    found: list[tuple[str, type[Warning]]] = field(default_factory=list)

    def train(self) -> None:
        """Train to the end; on an interrupt go back to the best state so far, and raise."""
        try:
            self.run = runs.train(self.run, self.options)
        except KeyboardInterrupt:
            monitoring.restore_best(self.run)
            raise
        self.found = runs.find_warnings(self.run, self.options, self.lightest)
        self.found += monitoring.find_failed_checkpoint(self.run)

    def result(self) -> Result:
        """Return what the run has learnt so far."""
        return self.make_result(self.run)


def prepare_classification(config: Config, request: Request, earlier: Continuation | None) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    begun, reduce = time.perf_counter(), distributed.current()
    config.check_ranks(reduce.world)
    agreement.check_arguments(config, reduce)
    source = run_together(reduce, lambda: find_source(request, reads_whole_table=config.reads_whole_table))
    if source is not None:
        config.check_source(source.numbered)
    seed = monitoring.draw_seed(config, reduce)
    table, features, classes = (
        run_together(reduce, lambda: read_table(request, config.class_weight, config.owner))
        if source is None
        else read_source(source, config.class_weight, config.owner, seed, reduce)
    )
    agreement.check_rows(table, features, classes, reduce)
    config.method.check_classes(len(classes))
    config.check_size(table.n_rows)
    rng = np.random.default_rng(seed)
    table, held = monitoring.hold_out(table, config.validation_fraction, rng)
    begin = start_values(table, earlier, features, rng)
    M = inducing_count(config.n_inducing, table.class_totals.sum())
    Z = build.choose_points(config, begin.pool, M, table.n_latent, rng)
    numbered = source is None or source.numbered
    options = complete(config, table.n_rows, table.n_latent, build.whitened_size(config, Z), numbered)
    engine = build.make_engine(build.make_prior(options, table, begin, Z), table, options)
    run = start_run(engine, table, options, features, classes, seed, rng, reduce, held, earlier, begun)

    def make_result(run: Run) -> Result:
        growing = keep_growing(config.method, run, begin, table)
        found = common_result(run, begin, features, runs.final_evidence(run), config.warm_start)
        return found._replace(classes=classes, growing=growing)

    return Job(run, options, features, make_result, table.lightest)


def prepare_regression(config: Config, request: Request, earlier: Continuation | None) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    begun, reduce = time.perf_counter(), distributed.current()
    method = config.method
    assert isinstance(method, RegressionMethod)
    config.check_ranks(reduce.world)
    agreement.check_arguments(config, reduce)
    source = run_together(
        reduce,
        lambda: find_source(request, reads_whole_table=config.reads_whole_table, check=check_targets),
    )
    if source is not None:
        config.check_source(source.numbered)
    seed = monitoring.draw_seed(config, reduce)
    given: Targets | StreamedTargets
    given, features = (
        run_together(
            reduce, lambda: read_targets(request, config.owner, method.merges_rows, config.normalize_y)
        )
        if source is None
        else read_target_source(source, config.normalize_y, config.owner, seed, reduce)
    )
    agreement.check_rows(given, features, None, reduce)
    rng = np.random.default_rng(seed)
    begin = start_values(given, earlier, features, rng)
    table = regression.select_rows(config, given, begin, rng) if isinstance(given, Targets) else given
    Z = regression.choose_points(config, begin.pool, table, rng)
    options = complete(config, table.n_rows, table.n_latent, build.whitened_size(config, Z))
    module = build.make_prior(options, table, begin, Z)
    engine = build.make_engine(module, table, options, regression.make_likelihood(config, options.learn))
    run = start_run(engine, table, options, features, None, seed, rng, reduce, None, earlier, begun)

    def make_result(run: Run) -> Result:
        evidence = runs.final_evidence(run) - float(run.engine.total) * math.log(given.scale)
        found = common_result(run, begin, features, evidence, config.warm_start)
        rows = keep_rows(method, found.model, given) if isinstance(given, Targets) else None
        return found._replace(units=(given.shift, given.scale), rows=rows)

    return Job(run, options, features, make_result)


def start_values(
    table: Facts, earlier: Continuation | None, features: Features, rng: np.random.Generator
) -> Start:
    """Return the table's starting values; a warm start keeps the units of the old parameters."""
    begin = table.start(rng)
    if earlier is not None and len(earlier.columns.center) == features.n:
        begin = begin._replace(columns=earlier.columns)
    return begin


def start_run(
    engine: Engine,
    table: Facts,
    options: Options,
    features: Features,
    classes: NDArray[Any] | None,
    seed: int,
    rng: np.random.Generator,
    reduce: Local,
    held: Table | None,
    earlier: Continuation | None,
    begun: float,
) -> Run:
    """Return a run that has not started, or one restored from a checkpoint."""
    config = options.config
    state = None if earlier is None else earlier.state
    run = runs.make_run(engine, table.rows(config), options, int(rng.integers(2**31 - 1)), reduce, state)
    run.started = begun  # max_seconds counts the start-up, too
    facts = (
        monitoring.describe_run(config, table, classes, engine.prior.size, seed) if config.checkpoint else {}
    )
    run.callbacks = monitoring.make_callbacks(config, held, features, classes, facts, reduce)
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
        relevance=find_relevance(model.prior.kernel, begin.columns),
        continuation=None if state is None else Continuation(state, begin.columns),
    )


def settle_kernel(model: FittedModel) -> None:
    """Write the kernel's learnt values into its constructor arguments, one set per class."""
    kernel = model.prior.kernel
    if isinstance(kernel, Kernel):
        kernel.settle(1 if model.likelihood.linear else model.prior.n_latent)


def find_relevance(kernel: Any, columns: Columns) -> Array | None:
    """Return the share of each feature: inverse lengthscales in units of the spread, averaged over classes."""
    weights = kernel.relevance(columns) if isinstance(kernel, Kernel) else None
    if weights is None:
        return None
    mean = np.asarray(weights).mean(0)
    return np.asarray(mean / mean.sum())


def keep_rows(method: RegressionMethod, model: FittedModel, table: Targets) -> TrainingRows | None:
    """Return the training rows, if predictions read them."""
    if not method.keeps_rows:
        return None
    X, y, weight = (torch.tensor(t) for t in table.sample())
    return make_training_rows(model, X, y, weight, target_noise(model), method.solver_tol)
