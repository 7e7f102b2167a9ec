"""Begin a run: start afresh, go on from an earlier fit, or resume from a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from cavity.engine.training.checkpoint import restore_run
from cavity.engine.training.loop import Run
from cavity.fitting import adapter, monitoring
from cavity.fitting.options.configuration import Config
from cavity.fitting.options.plan import TrainingPlan
from cavity.fitting.request import Request
from cavity.fitting.screening import screen_parts
from cavity.fitting.training_rows import TrainingRows


class Begun(NamedTuple):
    """A run that has begun, and what it was made from."""

    run: Run
    config: Config
    plan: TrainingPlan
    rows: TrainingRows
    seconds: float = 0.0  # that the training took


def begin_run(
    request: Request[Any], plan: TrainingPlan, rows: TrainingRows, share: float = 1.0
) -> Begun:
    """Begin a run, which may take a share of the seconds that are left."""
    config = request.config
    prior = adapter.make_prior(config, plan, rows.table, rows.start, rows.Z)
    engine = adapter.make_engine(prior, rows.table, config, plan)
    screen_parts(engine)
    earlier = None
    if request.earlier is not None:
        earlier = request.earlier.state
    facts = {}
    if config.checkpoint:
        facts = monitoring.describe_run(
            config, plan, rows.table, rows.classes, request.seed
        )

    run = adapter.make_run(
        engine,
        adapter.load_rows(rows.table, config.dtype, config.device),
        config,
        plan,
        rows.seed,
        request.reduce,
        earlier=earlier,
    )
    limit = request.clock.end_of_share(share, plan.max_seconds)
    callbacks = monitoring.make_callbacks(config, facts, request.reduce)
    run = replace(
        run,
        plan=replace(plan, max_seconds=limit),
        started=request.clock.begun,  # max_seconds counts the start-up, too
        callbacks=(*rows.stopping, *callbacks),
    )
    stored = monitoring.find_checkpoint(config, request.reduce)
    if stored is not None:
        restore_run(run, stored, facts)
    return Begun(run, config, plan, rows)
