"""A fit that is ready to train, and what the fits of both estimators share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cavity import distributed
from cavity.distributed import Local
from cavity.fitting import agreement, monitoring, runs
from cavity.fitting.results import Continuation, Result
from cavity.fitting.time_budget import read_limit
from cavity.inference import Engine
from cavity.options import Config, Options, Plan, policy
from cavity.options.plan import TableSize
from cavity.options.time_estimate import add_estimate
from cavity.rows.tables import Facts, Request, Start, share_lengthscales
from cavity.rows.validation import Features
from cavity.training.callbacks import Callback
from cavity.training.checkpoint import restore_run
from cavity.training.loop import Run
from cavity.training.progress import announce
from cavity.training.threads import flush_denormals, limit_threads

AnyConfig = TypeVar("AnyConfig", bound=Config)


@dataclass
class Job:
    """A fit that is ready to train."""

    run: Run
    options: Options
    plan: Plan
    make_result: Callable[[Run], Result]
    lightest: float = 1.0
    finish: Callable[[Result, bool], Result] | None = (
        None  # after training: calibrate; True: at once, without more fits
    )
    beside: AbstractContextManager[Any] = field(default_factory=nullcontext)  # runs during training
    fast: Plan | None = None  # what effort="fast" would do, for the estimate of its time

    def train_quietly(self, settle: bool = True) -> Run:
        """Train to the end without results, warnings or a progress bar; `settle`: sites converge fully at the end."""
        self.run.plan = replace(self.run.plan, settle=settle)
        self.run = runs.train(self.run, self.options)
        return self.run

    def train(self, store: Callable[[Result], None]) -> list[str]:
        """Train to the end, hand the result to `store`, and return the warnings.

        On an interrupt, `store` gets what was learnt so far, if anything was.
        """
        with limit_threads(runs.count_work(self.run)), flush_denormals(self.options.config.dtype):
            self._announce()
            with self.beside:
                result = self._train(store)
            return self._warn(result)

    def _announce(self) -> None:
        """Estimate the time of the fit, and say what it will do."""
        if self.run.reduce.world == 1:
            self.plan = add_estimate(self.plan, self.fast)
        if self.run.reduce.rank == 0:
            verbose, time_needed = self.options.config.verbose, self.plan.describe_time()
            announce("; ".join(filter(None, [f"Plan: {self.plan.summarise()}", time_needed])), verbose)
            announce(f"  Gaussian process: at most {self.plan.training.max_epochs} epochs", verbose)

    def _train(self, store: Callable[[Result], None]) -> Result:
        first, result = self.run.state, None
        try:
            self.run = runs.train(self.run, self.options)
            result = self._make_result()
            store(result)
            if self.finish is not None:
                result = self.finish(result, False)
                store(result)
        except KeyboardInterrupt:
            now = self.run.state
            if self.run.history or now.theta is not first.theta or now.sums is not first.sums:
                store(self._keep(result))
            raise
        return result

    def _warn(self, result: Result) -> list[str]:
        limit = "Training(max_seconds=...)" if self.plan.time_limit is None else "time_limit="
        found = runs.find_warnings(self.run, self.options, self.lightest, limit)
        verdict = None if result.estimate is None else result.estimate.verdict
        found += [(text, UserWarning) for text in (*result.warnings, verdict) if text is not None]
        found += monitoring.find_failed_checkpoint(self.run)
        if math.isnan(result.evidence):
            found.append(runs.NO_EVIDENCE)
        return runs.warn(found, stacklevel=4)

    def _make_result(self) -> Result:
        return self.make_result(self.run)._replace(plan=self.plan)

    def _keep(self, result: Result | None) -> Result:
        """Return the result of an interrupted fit within seconds. None: training itself was interrupted."""
        where = "the calibration" if result is not None else "training"
        if result is None:
            monitoring.restore_best(self.run)
            self.run.plan = replace(self.run.plan, max_seconds=0.0)  # no more passes that take long
            result = self._make_result()
        if self.finish is not None:
            result = self.finish(result, True)
        text = f"{where} was interrupted after {len(self.run.history)} epochs: the model is what was learnt so far."
        return result._replace(warnings=tuple(runs.warn([(text, UserWarning)], stacklevel=5)))


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
    distributed.warn_unjoined()
    begun, reduce = time.perf_counter(), distributed.current()
    config.check_ranks(reduce.world)
    agreement.check_arguments(config, reduce)
    seed = monitoring.draw_seed(config, reduce)
    return Session(config, earlier, reduce, seed, np.random.default_rng(seed), begun)


def choose_device(session: Session, config: AnyConfig, size: TableSize) -> tuple[Session, AnyConfig]:
    """Choose the device by the size of the table. Several ranks keep the devices that they exchange by."""
    if session.reduce.world == 1:
        config = policy.choose_device(config, size)
    return session._replace(config=config), config


def read_request(config: Config, request: Request) -> Request:
    """Check the arguments of `fit` that need no rows: `eval_set` becomes a pair, `time_limit` a number."""
    pair, limit = monitoring.read_eval_set(config, request.eval_set), read_limit(request.time_limit)
    return request._replace(eval_set=pair, time_limit=limit)


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
        facts["optimizer"] = options.plan.optimizer
    run.callbacks = (*stopping, *monitoring.make_callbacks(config, features, classes, facts, reduce))
    stored = monitoring.find_checkpoint(config, reduce)
    if stored is not None:
        restore_run(run, stored, facts)
    return run
