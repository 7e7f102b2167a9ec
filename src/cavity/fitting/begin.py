"""Begin a run: build the engine for the rows that it sees, then start afresh, go on
from an earlier fit, or resume.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Floats
from cavity.engine import runs
from cavity.engine.training.callbacks import Callback
from cavity.engine.training.checkpoint import restore_run
from cavity.engine.training.loop import Run
from cavity.fitting import adapter, monitoring
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import ClassifierConfig, Config
from cavity.fitting.options.plan import TableSize, TrainingPlan
from cavity.fitting.points import choose_points
from cavity.fitting.request import Request
from cavity.tables.labelled import LabelledTable
from cavity.tables.table import Facts, Start, Table, share_lengthscales
from cavity.tables.validation import Features


@dataclass
class Begun:
    """A run that has begun, and what it was made of."""

    run: Run
    config: Config
    plan: TrainingPlan
    table: Facts  # the rows of the run, equal ones merged
    seen: Facts  # the same rows, unmerged
    start: Start
    trained: bool = False

    def train(self) -> None:
        self.run = runs.train(self.run)
        self.trained = True


def begin_classifier(
    request: Request[ClassifierConfig], rows: LabelledTable, seen: Facts
) -> Begun:
    """Begin the run on the rows that it sees, equal ones merged by method="auto".

    Rows of eval_set stop it, or held-out ones.
    """
    config = request.config
    features = rows.features
    rng = np.random.default_rng(request.seed)
    held = None
    if request.raw.eval_set is not None:
        held = rows.held
    if isinstance(seen, Table) and config.validation_fraction is not None:
        seen, held = monitoring.hold_out_rows(seen, config.validation_fraction, rng)
    table = seen
    if isinstance(seen, Table) and seen.place is None and config.method.recommended:
        table = seen.merge(cells=True)
    stopping: tuple[Callback, ...] = ()
    if held is not None:
        stopping = (monitoring.make_early_stopping(held, config.patience),)
    start = find_start(request, table, features, rng)
    size = TableSize.of(table, features.n)
    Z = choose_points(
        config, start.candidates, policy.count_points(config, size), seen.n_latent, rng
    )
    plan = policy.plan_training(config, size, Z.shape[-2])
    return begin_run(
        request,
        plan,
        table,
        seen,
        start,
        Z,
        rng,
        classes=rows.classes,
        stopping=stopping,
    )


def find_start(
    request: Request[Any], table: Facts, features: Features, rng: np.random.Generator
) -> Start:
    """Return the table's starting values; a warm start keeps the units of the old
    parameters.
    """
    start = share_lengthscales(table.start(rng), features, rng)
    if (
        request.earlier is not None
        and len(request.earlier.columns.center) == features.n
    ):
        start = start._replace(columns=request.earlier.columns)
    return start


def begin_run(
    request: Request[Any],
    plan: TrainingPlan,
    table: Facts,
    seen: Facts,
    start: Start,
    Z: Floats,
    rng: np.random.Generator,
    *,
    classes: NDArray[Any] | None = None,
    stopping: tuple[Callback, ...] = (),
) -> Begun:
    """Build the engine, and start or resume a run."""
    config = request.config
    reduce = request.reduce
    engine = adapter.make_engine(
        adapter.make_prior(config, plan, table, start, Z), table, config, plan
    )
    earlier = None
    if request.earlier is not None:
        earlier = request.earlier.state
    data = adapter.load_rows(table, config.dtype, config.device)
    seed = int(rng.integers(2**31 - 1))
    run = adapter.make_run(engine, data, config, plan, seed, reduce, earlier=earlier)
    run.started = request.clock.begun  # max_seconds counts the start-up, too
    if config.checkpoint:
        facts = monitoring.describe_run(config, plan, table, classes, request.seed)
    else:
        facts = {}
    run.callbacks = (*stopping, *monitoring.make_callbacks(config, facts, reduce))
    stored = monitoring.find_checkpoint(config, reduce)
    if stored is not None:
        restore_run(run, stored, facts)
    return Begun(run, config, plan, table, seen, start)
