"""The fit of a classifier, ready to train: the model itself, candidates of the model selection, folds of the calibration."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.config import ClassifierConfig
from cavity.config.options import complete
from cavity.config.values import inducing_count
from cavity.distributed import run_together
from cavity.fitting import agreement, build, monitoring, runs
from cavity.fitting.budget import Budget, more_follows
from cavity.fitting.calibration import Calibration, hold_out_for_calibration
from cavity.fitting.job import Job, Session, choose_device, open_session, read_budget, start_run, start_values
from cavity.fitting.learnt import find_learnt
from cavity.fitting.leave_one_out import find_leave_one_out
from cavity.fitting.partial_fit import keep_growing
from cavity.fitting.results import Continuation, Result, common_result
from cavity.fitting.selection import ModelSearch, Selection
from cavity.intake.eval_set import read_eval_labels
from cavity.intake.sources import find_source, read_source
from cavity.intake.tables import Facts, Request, Table, read_table
from cavity.intake.validation import Features
from cavity.kernels import Ranked
from cavity.prediction.model import FittedModel, extract_model
from cavity.training.callbacks import Callback
from cavity.training.loop import Run


class Labelled(NamedTuple):
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


def read_rows(session: Session, config: ClassifierConfig, request: Request) -> Labelled:
    """Read a table, or the facts of a source."""
    reduce = session.reduce
    source = run_together(reduce, lambda: find_source(request, reads_whole_table=config.reads_whole_table))
    if source is not None:
        config.check_source(source.numbered)
        found = read_source(source, config.class_weight, config.owner, session.seed, reduce)
        return Labelled(*found, source.numbered)
    table, features, classes = run_together(
        reduce, lambda: read_table(request, config.class_weight, config.owner, groups=reduce.world == 1)
    )
    return Labelled(table, features, classes, numbered=True)


def hold_rows_out(
    session: Session, config: ClassifierConfig, request: Request, rows: Labelled
) -> tuple[Labelled, HeldOut]:
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
    rows: Labelled
    held: HeldOut
    budget: Budget
    search: ModelSearch | None = None
    selection: Selection | None = None  # made before training

    def prepare(self) -> Job:
        """Select a model by part of a large table, and return the fit of the selected one."""
        config, table = self.config, self.rows.table
        if isinstance(table, Table) and config.selects and self.session.reduce.world == 1:
            self.search = ModelSearch(config, table, self.session.seed, self.prepare_again, self.budget)
            self.selection = self.search.screen()
        seconds = self.budget.training_seconds(more_follows(config, self.held.table is not None))
        chosen = replace(self._apply(self.selection), max_seconds=seconds)
        stopping = self.held.stopping
        every_row = self.held.table is None or bool(stopping)
        job = prepare_table(self.session._replace(config=chosen), self.rows, every_row, stopping)
        job.limit = "max_seconds" if self.budget.limit is None else "time_limit"
        if config.calibrates or config.ensemble is not None or self.search is not None:
            job.finish = self.finish
        return job

    def fit_again(self, config: ClassifierConfig, part: Table, seconds: float | None) -> Job:
        """Train on part of the rows, for a model that only predicts others: rough sites are good enough."""
        job = self.prepare_again(config, part, seconds)
        job.train_quietly(settle=False)
        return job

    def prepare_again(self, config: ClassifierConfig, part: Table, seconds: float | None) -> Job:
        """Return a fit to part of the rows that has not started."""
        inner = self.session._replace(
            config=config.for_folds(seconds),
            earlier=None,
            rng=np.random.default_rng(self.session.seed),
            begun=time.perf_counter(),
        )
        return prepare_table(inner, self.rows._replace(table=part))

    def finish(self, result: Result) -> Result:
        """Select a model by leave-one-out if the table is small, and calibrate it."""
        found = result._replace(selection=self.selection)
        seen = self.config.callbacks or self.held.stopping  # callbacks saw this fit: its model stays
        if self.search is not None and self.selection is None and not seen:
            found = self.search.improve(result)
        used, (held, name, _) = self._apply(found.selection), self.held

        def fit_part(part: Table, seconds: float | None) -> FittedModel:
            run = self.fit_again(used, part, seconds).run
            return extract_model(run.engine, run.state)

        session = self.session
        about = Calibration(
            used, self.rows.table, session.reduce, session.seed, fit_part, self.budget, held, name
        )
        pool, how, estimate, notes = about.find_pool(found.model, found.loo)
        model = found.model._replace(pool=pool)
        return found._replace(model=model, calibration=how, estimate=estimate, warnings=notes, learnt=None)

    def _apply(self, selection: Selection | None) -> ClassifierConfig:
        return self.config if selection is None else selection.apply(self.config)


def prepare_table(
    session: Session, rows: Labelled, every_row: bool = True, stopping: tuple[Callback, ...] = ()
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
        learnt = find_learnt(run)
        return found._replace(classes=classes, growing=growing, loo=loo, class_prior=prior, learnt=learnt)

    return Job(run, options, make_result, table.lightest)


def as_scores(kernel: Any, table: Facts) -> Facts:
    """Return the table as the kernel's inducing points see it."""
    if not isinstance(kernel, Ranked) or not isinstance(table, Table):
        return table
    return replace(table, X=kernel.score(table.X))
