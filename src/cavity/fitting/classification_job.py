"""The fit of a classifier, ready to train: the model itself, and folds of its calibration."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import torch

from cavity.distributed import run_together
from cavity.fitting import build, monitoring, runs
from cavity.fitting.calibration import Calibration, hold_out_for_calibration
from cavity.fitting.job import Job, Session, check_rows, start_job
from cavity.fitting.leave_one_out import find_leave_one_out, find_twins, prior_variances
from cavity.fitting.members import TreesBeside, make_members
from cavity.fitting.partial_fit import keep_growing
from cavity.fitting.results import Result, common_result
from cavity.fitting.time_budget import Budget
from cavity.options import ClassifierConfig, Plan, policy
from cavity.options.plan import CalibrationPlan, TableSize
from cavity.prediction.model import FittedModel, as_array, as_tensor, extract_model, predict_latent
from cavity.prediction.pool import Gate, make_gate
from cavity.rows.batches.source import Source
from cavity.rows.sources import find_source, read_source
from cavity.rows.tables import Facts, LabelledTable, Request, Table, read_eval_labels, read_table
from cavity.training.callbacks import Callback
from cavity.training.lbfgs import Rest, train_lbfgs
from cavity.training.loop import Run
from cavity.training.progress import announce


class HeldOut(NamedTuple):
    """Rows that calibrate the model instead of training it, and the callback that stops by them, if they are those of eval_set."""

    table: Table | None = None
    stopping: tuple[Callback, ...] = ()


def prepare_classification(session: Session[ClassifierConfig], request: Request) -> Job:
    """Read the rows, build the engine, and start or resume a run."""
    config, reduce = session.config, session.reduce
    weight, owner = config.class_weight, config.owner

    def read() -> LabelledTable | Source:
        source = find_source(request, reads_whole_table=config.reads_whole_table)
        return read_table(request, weight, owner, groups=reduce.world == 1) if source is None else source

    rows = run_together(reduce, read)
    if not isinstance(rows, LabelledTable):
        config.check_source(rows.numbered)
        rows = read_source(rows, weight, owner, session.seed, reduce)
    check_rows(rows.table, rows.features, rows.classes, reduce)
    config.method.check_classes(len(rows.classes))
    config.check_size(rows.table.n_rows)
    session = session.on_best_device(TableSize.of(choose_rows(session, rows.table), rows.features.n))
    out = HeldOut()
    if request.eval_set is not None:
        held = read_eval_labels(request.eval_set, rows.features, rows.classes)
        out = HeldOut(held, (monitoring.make_early_stopping(held, config.patience),))
    elif isinstance(rows.table, Table) and policy.holds_out(session.config, rows.table.n_rows):
        table, held = hold_out_for_calibration(rows.table, session.seed)
        rows, out = rows._replace(table=table), HeldOut(held)
    return ClassifierFits(session, rows, out).prepare()


def choose_rows(session: Session[ClassifierConfig], table: Facts) -> Facts:
    """Return the rows to train on: as given, or equal ones merged by method="auto" in one process."""
    auto = session.config.method.recommended and session.reduce.world == 1
    return policy.merge_rows(table) if auto and isinstance(table, Table) else table


@dataclass
class ClassifierFits:
    """All fits of one classifier."""

    session: Session[ClassifierConfig]
    rows: LabelledTable
    held: HeldOut
    beside: TreesBeside | None = None

    @property
    def config(self) -> ClassifierConfig:
        return self.session.config

    @cached_property
    def trained(self) -> Facts:
        """The rows to train on, equal ones merged if that pays."""
        return choose_rows(self.session, self.rows.table)

    def prepare(self) -> Job:
        """Return the fit to all rows, which the calibration follows."""
        stopping, plan = self.held.stopping, self.plan_calibration(self.config)
        if plan.beside and isinstance(self.rows.table, Table):
            members = make_members(self.config.ensemble, plan, self.session.seed)
            self.beside = TreesBeside(members, self.rows.table, self.held.table)
        more = plan.how == "folds" or (plan.pools and self.beside is None)
        seconds = policy.share_time(self.session.budget.limit, self.config.max_seconds, more)
        session = self.session._replace(config=replace(self.config, max_seconds=seconds))
        job = prepare_table(session, self.rows, self.held.table is None or bool(stopping), stopping)
        job.plan = replace(job.plan, calibration=plan)
        job.fast = self.plan_fast(job.plan.training.n_inducing)
        job.beside = self.beside or nullcontext()
        if plan.how != "none":
            job.finish = partial(self.calibrate, plan)
        return job

    def plan_fast(self, M: int) -> Plan | None:
        """Return what effort="fast" would do with at most M inducing points; None if it changes nothing."""
        if self.config.effort == "fast" or not self.config.method.recommended:
            return None
        config = replace(self.config, effort="fast")
        size = TableSize.of(self.trained, self.rows.features.n, self.rows.numbered)
        training = policy.complete(config, size, min(M, policy.count_points(config, size))).plan
        return Plan(training=training, calibration=self.plan_calibration(config))

    def plan_calibration(self, config: ClassifierConfig) -> CalibrationPlan:
        """Return which rows calibrate the model, and what is pooled with it."""
        table, trained, held, cells = self.rows.table, self.trained, None, None
        if isinstance(trained, Table) and trained.place is not None:
            cells = len(trained.distinct[0])
        if self.held.table is not None:
            held = "eval_set" if self.held.stopping else "held out"
        return policy.plan_calibration(
            config,
            TableSize.of(table, self.rows.features.n),
            in_memory=isinstance(table, Table),
            alike=table.lightest == table.heaviest
            and not (policy.pools(config) and find_twins(table) is not None),
            held=held,
            threads=torch.get_num_threads(),
            alone=self.session.reduce.world == 1 and (held is not None or self.session.budget.limit is None),
            cells=cells,
        )

    def fit_part(self, plan: CalibrationPlan, job: Job, part: Table, seconds: float | None) -> FittedModel:
        """Train on part of the rows, for a model that only predicts others: rough sites are good enough.

        Hyper-parameters stay as they are, or are learnt again: from their first epochs on, or from the start. [61]
        """
        early = None if self.config.effort == "best" else job.run.early
        state = early if plan.relearns else job.run.state
        if state is None:
            inner = self.session._replace(
                config=self.config.for_folds(seconds),
                rng=np.random.default_rng(self.session.seed),
                earlier=None,
                budget=Budget(time.perf_counter()),
            )
            run = prepare_table(inner, self.rows._replace(table=part)).train_quietly(settle=False)
        else:
            rows = choose_rows(self.session, part)
            kept = self._find_sites(part, rows, job.run)
            run = runs.begin_part(job.run, state, job.options, rows, kept, seconds)
            rest = Rest(plan.tol, math.sqrt(plan.tol), plan.sweeps)
            run = train_lbfgs(run) if plan.relearns else runs.sweep_part(run, rest)
        return extract_model(run.engine, run.state)

    def _find_sites(self, part: Table, rows: Facts, run: Run) -> runs.Kept | None:
        """Return where the run on all rows has the sites of a part, trained on as `rows`; None if it left some of them out."""
        table, every = self.rows.table, self.trained
        if not (isinstance(table, Table) and isinstance(every, Table) and isinstance(rows, Table)):
            return None
        if sum(run.reduce.gather(run.rows.n_rows)) != every.n_rows:
            return None
        first = slice(None) if rows.place is None else np.unique(rows.place, return_index=True)[1]
        place = np.searchsorted(table.numbers, part.numbers[first])
        place = place if every.place is None else every.place[place]
        return runs.Kept(torch.from_numpy(place), torch.from_numpy(rows.weight / every.weight[place]))

    def calibrate(self, plan: CalibrationPlan, job: Job, result: Result, at_once: bool) -> Result:
        """Find the temperature, or the pool with trees; `at_once`: without more fits."""
        session, table, config = self.session, self.rows.table, self.config
        if at_once:
            plan = replace(plan, how="leave-one-out", pools=False)
        about = Calibration(
            plan,
            make_members(config.ensemble, plan, session.seed),
            table,
            session.reduce,
            session.seed,
            partial(self.fit_part, plan, job),
            session.budget,
            config.verbose if session.reduce.rank == 0 else 0,
            gate=find_gate(result.model, table) if plan.pools and isinstance(table, Table) else None,
            held=self.held.table,
            held_name="of eval_set" if self.held.stopping else "held out",
            beside=None if at_once else self.beside,
        )
        pool, found, estimate, notes = about.find_pool(result.model, result.loo)
        in_time = session.budget.left() is None and session.reduce.world == 1
        if plan.pools and in_time and policy.trains_on(job.options.plan, pool.weight, sum(pool.weights)):
            return self.train_on(job)
        model = result.model._replace(pool=pool)
        return result._replace(model=model, calibration=found, estimate=estimate, warnings=notes)

    def train_on(self, job: Job) -> Result:
        """Train as long again, at a rate that falls from a half once more, and calibrate without trees."""
        announce("  trees hardly count: training goes on without them", self.config.verbose)
        run = job.run
        run.plan = replace(run.plan, max_epochs=2 * len(run.history))
        run.converged, run.callbacks = False, ()
        job.run = runs.train(run, job.options)
        config = replace(self.config, ensemble=None)
        alone = replace(self, session=self.session._replace(config=config), beside=None)
        return alone.calibrate(alone.plan_calibration(config), job, job.end(), False)


@torch.no_grad()
def find_gate(model: FittedModel, table: Table) -> Gate | None:
    """Return how much the trees of a pool count at a row, by the variances of f at some training rows."""
    rng, share = np.random.default_rng(0), table.weight / table.weight.sum()
    rows = table.X[rng.choice(table.n_rows, policy.GATE_ROWS, p=share)]
    return make_gate(prior_variances(model, rows), as_array(predict_latent(model, as_tensor(rows)).var))


def prepare_table(
    session: Session[ClassifierConfig],
    rows: LabelledTable,
    every_row: bool = True,
    stopping: tuple[Callback, ...] = (),
) -> Job:
    """Build the engine for labelled rows, and start or resume a run. `every_row`: no row is held out."""
    (table, features, classes, numbered), config, rng = rows, session.config, session.rng
    if isinstance(table, Table) and config.validation_fraction is not None:
        table, held = monitoring.hold_out(table, config.validation_fraction, rng)
        stopping, every_row = (monitoring.make_early_stopping(held, config.patience),), False
    trained = choose_rows(session, table)
    begin = session.start_values(trained, features)
    M = policy.count_points(config, TableSize.of(trained, features.n, numbered))
    Z = build.choose_points(config, begin.pool, M, table.n_latent, rng)

    def result_of(run: Run) -> Result:
        growing = keep_growing(config.method, run, begin.columns, table)
        loo = find_leave_one_out(run, table, trained, every_row)
        left_out = None if loo is None or run.reduce.world > 1 else loo.for_novelty()
        found = common_result(
            run, begin.columns, features, runs.label_evidence(run), config.warm_start, begin.pool, left_out
        )
        prior = table.class_totals / table.class_totals.sum()
        name = config.method.name_evidence(len(classes))
        return found._replace(
            classes=classes, growing=growing, loo=loo, class_prior=prior, evidence_name=name
        )

    job = start_job(
        session, trained, features, begin, Z, result_of, classes=classes, numbered=numbered, stopping=stopping
    )
    job.lightest = trained.lightest
    return job
