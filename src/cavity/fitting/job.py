"""A fit that is ready to train, and what the fits of both estimators share."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from cavity import distributed
from cavity._version import __version__
from cavity.common.column_statistics import Columns
from cavity.distributed import Local, check_same
from cavity.errors import BadOption
from cavity.fitting import build, monitoring, runs
from cavity.fitting.clock import Clock, read_limit
from cavity.fitting.results import Continuation, Result
from cavity.kernels.inducing import Candidates
from cavity.likelihoods import Likelihood
from cavity.options import Config, Options, Plan, policy
from cavity.options.plan import TableSize
from cavity.options.time_estimate import add_estimate
from cavity.rows.arrow_tables import refuse_many_columns
from cavity.rows.tables import Array, Facts, Request, Start, share_lengthscales
from cavity.rows.validation import Features
from cavity.training.callbacks import Callback
from cavity.training.checkpoint import restore_run
from cavity.training.loop import Run
from cavity.training.progress import announce
from cavity.training.threads import flush_denormals, limit_threads

AnyConfig = TypeVar("AnyConfig", bound=Config)

# Arguments that may differ between ranks; rank 0 sets the seed.
OF_A_RANK = ("random_state", "callbacks", "verbose", "device", "checkpoint")


@dataclass
class Begun:
    """A run that has begun, and what it was made of."""

    run: Run
    options: Options
    table: Facts  # the rows of the run, equal ones merged
    columns: Columns
    pool: Candidates  # training rows that inducing points were chosen from
    seen: Facts = field(init=False)  # the same rows, unmerged
    every_row: bool = True  # no row is kept for early stopping

    def __post_init__(self) -> None:
        self.seen = self.table


@dataclass
class Job:
    """The fit of a regressor, ready to train."""

    run: Run
    options: Options
    plan: Plan
    make_result: Callable[[Run], Result]

    def train(self, store: Callable[[Result], None]) -> list[str]:
        """Train to the end, hand the result to `store`, on an interrupt what was learnt so far, and return the warnings."""
        with limit_threads(runs.count_work(self.run)), flush_denormals(self.options.config.dtype):
            self.plan = describe_plan(self.plan, None, self.options.config, self.run.reduce)
            first = self.run.state
            try:
                self.run = runs.train(self.run, self.options)
                result = self.end()
                store(result)
            except KeyboardInterrupt:
                now = self.run.state
                if self.run.history or now.theta is not first.theta or now.sums is not first.sums:
                    store(self._keep())
                raise
            return self._warn(result)

    def _warn(self, result: Result) -> list[str]:
        limit = "Training(max_seconds=...)" if self.plan.time_limit is None else "time_limit="
        found = runs.find_warnings(self.run, self.options, 1.0, limit)
        found += [(text, UserWarning) for text in result.warnings]
        found += monitoring.find_failed_checkpoint(self.run)
        if math.isnan(result.evidence):
            found.append(runs.NO_EVIDENCE)
        return runs.warn(found, stacklevel=4)

    def end(self) -> Result:
        return self.make_result(self.run)._replace(plan=self.plan)

    def _keep(self) -> Result:
        """Return the result of an interrupted fit within seconds."""
        monitoring.restore_best(self.run)
        self.run.plan = replace(self.run.plan, max_seconds=0.0)  # no more passes that take long
        text = f"training was interrupted after {len(self.run.history)} epochs: the model is what was learnt so far."
        return self.end()._replace(warnings=tuple(runs.warn([(text, UserWarning)], stacklevel=5)))


def describe_plan(plan: Plan, fast: Plan | None, config: Config, reduce: Local) -> Plan:
    """Estimate the time of the fit, and say what it will do; `fast`: what effort="fast" would do."""
    if reduce.world == 1:
        plan = add_estimate(plan, fast)
    if reduce.rank == 0:
        time_needed = plan.describe_time()
        announce("; ".join(filter(None, [f"Plan: {plan.summarise()}", time_needed])), config.verbose)
        announce(f"  Gaussian process: at most {plan.training.max_epochs} epochs", config.verbose)
    return plan


class Session(NamedTuple, Generic[AnyConfig]):
    """What all parts of one fit share."""

    config: AnyConfig
    earlier: Continuation | None
    reduce: Local
    seed: int
    rng: np.random.Generator
    clock: Clock

    def limit_training(self, share: float) -> Session[AnyConfig]:
        """Give training a share of the seconds that are left of a time limit."""
        if self.clock.limit is None:
            return self
        end = self.clock.spent() + share * max(0.0, self.clock.left())
        given = self.config.max_seconds
        return self._replace(
            config=replace(self.config, max_seconds=end if given is None else min(given, end))
        )

    def for_fold(self, seconds: float | None) -> Session[AnyConfig]:
        """Return the session of a fit to a part of the rows, whose model only predicts the other rows."""
        config = replace(
            self.config,
            callbacks=(),
            checkpoint=None,
            resume=False,
            verbose=0,
            warm_start=False,
            max_seconds=seconds,
        )
        clock = Clock.start(None, self.reduce)
        return self._replace(config=config, rng=np.random.default_rng(self.seed), earlier=None, clock=clock)

    def on_best_device(self, size: TableSize) -> Session[AnyConfig]:
        """Choose the device by the size of the table. Several ranks keep the devices that they exchange by."""
        alone = self.reduce.world == 1
        return self._replace(config=policy.choose_device(self.config, size)) if alone else self

    def start_values(self, table: Facts, features: Features) -> Start:
        """Return the table's starting values; a warm start keeps the units of the old parameters."""
        begin = share_lengthscales(table.start(self.rng), features, self.rng)
        if self.earlier is not None and len(self.earlier.columns.center) == features.n:
            begin = begin._replace(columns=self.earlier.columns)
        return begin


def open_session(
    config: AnyConfig, time_limit: float | None, earlier: Continuation | None
) -> Session[AnyConfig]:
    """Draw the seed of a fit, after checking what its ranks can do."""
    distributed.warn_unjoined()
    reduce = distributed.current()
    clock = Clock.start(time_limit, reduce)
    config.check_ranks(reduce.world)
    check_arguments(config, reduce)
    seed = monitoring.draw_seed(config, reduce)
    return Session(config, earlier, reduce, seed, np.random.default_rng(seed), clock)


def read_request(config: Config, request: Request) -> Request:
    """Check the arguments of `fit` before any row: tensors become arrays, `eval_set` a request, `time_limit` a number."""
    pair, limit = monitoring.read_eval_set(config, request.eval_set), read_limit(request.time_limit)
    refuse_many_columns(request.X)
    return request.with_arrays()._replace(eval_set=pair, time_limit=limit)


def begin_run(
    session: Session[Any],
    table: Facts,
    features: Features,
    begin: Start,
    Z: Array,
    *,
    likelihood: Likelihood | None = None,
    classes: NDArray[Any] | None = None,
    numbered: bool = True,
    stopping: tuple[Callback, ...] = (),
) -> Begun:
    """Build the engine, and start or resume a run."""
    config, earlier, reduce, seed, rng, clock = session
    size = TableSize.of(table, features.n, numbered)
    options = policy.complete(config, size, build.whitened_size(config, Z))
    engine = build.make_engine(build.make_prior(options, table, begin, Z), table, options, likelihood)
    state = None if earlier is None else earlier.state
    run = runs.make_run(engine, table.rows(config), options, int(rng.integers(2**31 - 1)), reduce, state)
    run.started = clock.begun  # max_seconds counts the start-up, too
    facts: dict[str, Any] = {}
    if config.checkpoint:  # an optimiser cannot read what another one remembers
        facts = monitoring.describe_run(config, table, classes, engine.prior.size, seed)
        facts["optimizer"] = options.plan.optimizer
    run.callbacks = (*stopping, *monitoring.make_callbacks(config, facts, reduce))
    stored = monitoring.find_checkpoint(config, reduce)
    if stored is not None:
        restore_run(run, stored, facts)
    return Begun(run, options, table, begin.columns, begin.pool)


def start_job(
    session: Session[Any],
    table: Facts,
    features: Features,
    begin: Start,
    Z: Array,
    make_result: Callable[[Run], Result],
    *,
    likelihood: Likelihood | None = None,
    stopping: tuple[Callback, ...] = (),
) -> Job:
    begun = begin_run(session, table, features, begin, Z, likelihood=likelihood, stopping=stopping)
    plan = Plan(training=begun.options.plan, time_limit=session.clock.limit)
    return Job(begun.run, begun.options, plan, make_result)


def check_arguments(config: Config, reduce: Local) -> None:
    """Raise BadOption on every rank if versions or arguments differ."""
    if reduce.world == 1:
        return
    versions = {"cavity": __version__, "torch": torch.__version__, "numpy": np.__version__}
    given = {n: _describe(value) for n, value in config.arguments.items() if n not in OF_A_RANK}
    facts = {f"the version of {name}": version for name, version in versions.items()}
    facts |= {f"the argument {name}": value for name, value in given.items()}
    check_same(reduce, facts | {"having a checkpoint": config.checkpoint is not None}, BadOption)


def check_rows(table: Facts, features: Features, classes: NDArray[Any] | None, reduce: Local) -> None:
    """Raise BadInput on every rank if the rows differ."""
    if reduce.world == 1:
        return
    facts = {
        "the number of rows": table.n_rows,
        "the number of features": features.n,
        "the names of features": features.names,
        "the classes": None if classes is None else _describe(classes),
        "the digest of the rows": table.content(),
    }
    check_same(reduce, facts)


def _describe(value: Any) -> str:
    """Return a short text that is the same on every rank if the value is."""
    if isinstance(value, np.ndarray | torch.Tensor):
        array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
        text = f"{array.dtype.kind} {array.shape} {array.tolist()}"
    else:
        text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # addresses differ
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return text if len(text) < 200 else f"{text[:60]}... (SHA-256 {digest})"
