"""The fit of a classifier, ready to train: the model itself, and folds of its calibration."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.distributed import run_together
from cavity.fitting import agreement, build, monitoring, runs
from cavity.fitting.calibration import Calibration, hold_out_for_calibration
from cavity.fitting.job import Job, Session, choose_device, open_session, read_budget, start_run, start_values
from cavity.fitting.leave_one_out import find_leave_one_out
from cavity.fitting.partial_fit import keep_growing
from cavity.fitting.results import Continuation, Result, common_result
from cavity.fitting.time_budget import Budget, more_follows
from cavity.kernels import Ranked
from cavity.options import ClassifierConfig
from cavity.options.completed import complete
from cavity.options.value_checks import inducing_count
from cavity.prediction.model import FittedModel, as_array, as_tensor, extract_model, predict_latent
from cavity.prediction.pool import Gate, make_gate
from cavity.rows.eval_set import read_eval_labels
from cavity.rows.sources import find_source, read_source
from cavity.rows.tables import Facts, Request, Table, read_table
from cavity.rows.validation import Features
from cavity.training.callbacks import Callback
from cavity.training.loop import Run

# Of fits at known hyper-parameters, whose models only predict other rows. [decision 39]
FOLD_SWEEPS, FOLD_TOL = 5, 1e-2
GATE_ROWS = 500  # training rows that say how well f is known near them


class FitRows(NamedTuple):
    """The rows of a fit, with their labels encoded."""

    table: Facts
    features: Features
    classes: NDArray[Any]
    numbered: bool  # a row has the same number in every pass


class HeldOut(NamedTuple):
    """Rows that calibrate the model instead of training it, and the callback that stops by them."""

    table: Table | None = None
    name: str = "held out"
    stopping: tuple[Callback, ...] = ()


def prepare_classification(config: ClassifierConfig, request: Request, earlier: Continuation | None) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    session, budget = open_session(config, earlier), read_budget(config, request)
    rows = read_rows(session, config, request)
    agreement.check_rows(rows.table, rows.features, rows.classes, session.reduce)
    config.method.check_classes(len(rows.classes))
    config.check_size(rows.table.n_rows)
    session, config = choose_device(session, config, rows.table)
    rows, held = hold_rows_out(session, config, request, rows)
    return ClassifierFits(session, config, rows, held, budget).prepare()


def read_rows(session: Session, config: ClassifierConfig, request: Request) -> FitRows:
    """Read a table, or the facts of a source."""
    reduce = session.reduce
    source = run_together(reduce, lambda: find_source(request, reads_whole_table=config.reads_whole_table))
    if source is not None:
        config.check_source(source.numbered)
        found = read_source(source, config.class_weight, config.owner, session.seed, reduce)
        return FitRows(*found, source.numbered)
    table, features, classes = run_together(
        reduce, lambda: read_table(request, config.class_weight, config.owner, groups=reduce.world == 1)
    )
    return FitRows(table, features, classes, numbered=True)


def hold_rows_out(
    session: Session, config: ClassifierConfig, request: Request, rows: FitRows
) -> tuple[FitRows, HeldOut]:
    """Return the rows to train on, and those of `eval_set` or of a large table that are held out."""
    if request.eval_set is not None:
        held = read_eval_labels(request.eval_set, rows.features, rows.classes)
        return rows, HeldOut(held, "of eval_set", (monitoring.make_early_stopping(held, config.patience),))
    if config.holds_out(rows.table.n_rows) and isinstance(rows.table, Table):
        table, held = hold_out_for_calibration(rows.table, session.seed)
        return rows._replace(table=table), HeldOut(held)
    return rows, HeldOut()


@dataclass
class ClassifierFits:
    """All fits of one classifier."""

    session: Session
    config: ClassifierConfig
    rows: FitRows
    held: HeldOut
    budget: Budget

    def prepare(self) -> Job:
        """Return the fit to all rows, which the calibration follows."""
        config = self.config
        seconds = self.budget.training_seconds(more_follows(config, self.held.table is not None))
        chosen = replace(config, max_seconds=seconds)
        stopping = self.held.stopping
        every_row = self.held.table is None or bool(stopping)
        job = prepare_table(self.session._replace(config=chosen), self.rows, every_row, stopping)
        job.limit = "max_seconds" if self.budget.limit is None else "time_limit"
        if config.calibrates or config.ensemble is not None:
            job.finish = self.calibrate
        return job

    def fit_part(self, config: ClassifierConfig, part: Table, seconds: float | None) -> FittedModel:
        """Train on part of the rows, for a model that only predicts others: rough sites are good enough."""
        inner = self.session._replace(
            config=config.for_folds(seconds),
            earlier=None,
            rng=np.random.default_rng(self.session.seed),
            begun=time.perf_counter(),
        )
        job = prepare_table(inner, self.rows._replace(table=part))
        run = job.train_quietly(settle=False)
        return extract_model(run.engine, run.state)

    def calibrate(self, result: Result, at_once: bool) -> Result:
        """Find the temperature, or the pool with trees; `at_once`: without more fits."""
        how = replace(self.config, effort="fast", ensemble=None) if at_once else self.config
        session, (held, name, _) = self.session, self.held
        used = self.config if self.config.relearns else fix_hyperparameters(self.config, result.model)
        fit_part = partial(self.fit_part, used)
        table, pools = self.rows.table, self.config.ensemble is not None
        gate = find_gate(result.model, table) if pools and isinstance(table, Table) else None
        about = Calibration(how, table, session.reduce, session.seed, fit_part, self.budget, gate, held, name)
        pool, found, estimate, notes = about.find_pool(result.model, result.loo)
        model = result.model._replace(pool=pool)
        return result._replace(model=model, calibration=found, estimate=estimate, warnings=notes)


@torch.no_grad()
def find_gate(model: FittedModel, table: Table) -> Gate | None:
    """Return how much the trees of a pool count at a row, by the variances of f at some training rows."""
    rng, share = np.random.default_rng(0), table.weight / table.weight.sum()
    rows = table.X[rng.choice(table.n_rows, GATE_ROWS, p=share)]
    prior = model.prior
    known = as_array(prior.kernel.diag(as_tensor(rows).to(model.mean)).mean(-1) + prior.noise)
    var = as_array(predict_latent(model, as_tensor(rows)).var)
    return make_gate(np.broadcast_to(known, (prior.n_latent,)), var)


def fix_hyperparameters(config: ClassifierConfig, model: FittedModel) -> ClassifierConfig:
    """Return the configuration of fits at the hyper-parameters of a fitted model: only their sites are found."""
    prior = model.prior
    return replace(
        config,
        kernel=prior.kernel,
        inducing=None if config.inducing is None else as_array(prior.Z),  # as its kernel sees them
        noise=as_array(prior.noise),
        learn=frozenset(),
        max_epochs=FOLD_SWEEPS,
        tol=FOLD_TOL,
    )


def prepare_table(
    session: Session, rows: FitRows, every_row: bool = True, stopping: tuple[Callback, ...] = ()
) -> Job:
    """Build the engine for labelled rows, and start or resume a run. `every_row`: no row is held out."""
    (table, features, classes, numbered), config, rng = rows, session.config, session.rng
    assert isinstance(config, ClassifierConfig)
    if isinstance(table, Table) and config.validation_fraction is not None:
        table, held = monitoring.hold_out(table, config.validation_fraction, rng)
        stopping, every_row = (monitoring.make_early_stopping(held, config.patience),), False
    begin = start_values(session, as_scores(config.kernel, table), features)
    M = inducing_count(config.inducing_points(table.n_rows, table.n_latent), table.class_totals.sum())
    Z = build.choose_points(config, begin.pool, M, table.n_latent, rng)
    options = complete(config, table.n_rows, table.n_latent, build.whitened_size(config, Z), numbered)
    module = build.make_prior(options, table, begin, Z)
    engine = build.make_engine(module, table, options)
    run = start_run(session, engine, table, options, features, classes, stopping)

    def make_result(run: Run) -> Result:
        growing = keep_growing(config.method, run, begin, table)
        loo = find_leave_one_out(run, table, every_row)
        found = common_result(run, begin, features, runs.label_evidence(run), config.warm_start)
        prior = table.class_totals / table.class_totals.sum()
        return found._replace(classes=classes, growing=growing, loo=loo, class_prior=prior)

    return Job(run, options, make_result, table.lightest)


def as_scores(kernel: Any, table: Facts) -> Facts:
    """Return the table as the kernel's inducing points see it."""
    if not isinstance(kernel, Ranked) or not isinstance(table, Table):
        return table
    return replace(table, X=kernel.score(table.X))
