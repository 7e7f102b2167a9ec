"""From the rows of a classifier to its plan: the only place where a fit is decided.

`options.policy` has the rules. What is decided here does not change afterwards.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cavity.common.progress import announce
from cavity.engine.warm_up import warm_up
from cavity.fitting.cases import count_cases, draw_cases, find_cases
from cavity.fitting.fit import ClassifierFit, Judge
from cavity.fitting.folds import MEMBERS
from cavity.fitting.judges import make_judge
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import FitPlan, JudgingPlan, TableSize, TrainingPlan
from cavity.fitting.options.policy.bids import asks_bids
from cavity.fitting.options.policy.judging import (
    Cases,
    plan_fast,
    plan_judging,
    plan_members,
)
from cavity.fitting.options.policy.training import plan_training
from cavity.fitting.options.policy.work import count_points, count_seen, samples_rows
from cavity.fitting.options.time_estimate import (
    count_rows_in,
    estimate_fits,
    estimate_seconds,
    fits_in,
    measure_slowness,
)
from cavity.fitting.request import Request
from cavity.fitting.training_rows import TrainingRows, prepare_rows
from cavity.pool.members import make_members
from cavity.pool.plan import MembersPlan
from cavity.tables.labelled import LabelledTable
from cavity.tables.pieces import TRAINS
from cavity.tables.table import Facts, Streamed, Table

PASSES = 8  # over the rows that the Gaussian process sees, within its seconds
LEAST_SECONDS = 0.1
PREPARING = 0.3  # share of the seconds left, for merging and splitting rows
PROBE_ROWS = 20_000  # rows that every fit has time for


def plan_fit(request: Request[ClassifierConfig], rows: LabelledTable) -> ClassifierFit:
    """Decide who judges, what the Gaussian process sees, how it trains, what is pooled."""
    rows = draw_in_time(request, rows)
    n_columns = rows.features.n
    request = request.on_best_device(TableSize.of(rows.table, n_columns))
    warm_up(request.config.device, request.config.dtype)
    cases = find_cases(request.config, rows.table)
    facts = count_cases(request, cases, n_columns)
    members = plan_members(request.config, facts)
    judge = make_judge(
        request, rows, cases, choose_judging(request, cases, facts, members)
    )
    trains = TableSize.of(judge.trains, n_columns)
    asks = asks_bids(request.config, judge.plan, members, trains, request.clock.limit)
    members = replace(members, asks=asks)
    seen = choose_seen(request, judge, members, n_columns)
    training = prepare_rows(request, rows, seen)
    plan = make_plan(request, rows, facts, judge, members, training)
    recipes = make_members(request.config.ensemble, members, request.seed)
    return ClassifierFit(request, rows, cases, judge, training, plan, tuple(recipes))


def draw_in_time(
    request: Request[ClassifierConfig], rows: LabelledTable
) -> LabelledTable:
    """Draw as many rows as there is time to prepare; without a limit, return all.

    Equal rows of a part of the table are merged, which is about half of the work.
    """
    table = rows.table
    clock = request.clock
    config = request.config
    if clock.limit is None or not isinstance(table, Table):
        return rows
    if table.n_rows <= PROBE_ROWS or not samples_rows(config):
        return rows

    def count() -> int:
        before = clock.spent()
        find_cases(config, table.draw(PROBE_ROWS, request.seed))
        pace = 2 * max(clock.spent() - before, 1e-9) / PROBE_ROWS
        return max(PROBE_ROWS, int(PREPARING * clock.left() / pace))

    most = request.reduce.first(count)
    if most >= table.n_rows:
        return rows

    drawn = table.draw(most, request.seed)
    return rows._replace(table=drawn, drawn_from=table.n_rows)


def note_drawn(fit: ClassifierFit) -> list[str]:
    """Say that a time limit left out rows."""
    given = fit.rows.drawn_from
    if given is None:
        return []

    limit = fit.request.clock.limit
    return [
        f"time_limit={limit:g} has time for {fit.rows.table.n_rows:,} random rows of "
        f"{given:,}."
    ]


def choose_judging(
    request: Request[ClassifierConfig],
    cases: Facts,
    facts: Cases,
    members: MembersPlan,
) -> JudgingPlan:
    """Choose which rows judge: folds only if they fit into the seconds of the fit."""
    config = request.config
    plan = plan_judging(config, facts)
    if isinstance(cases, Streamed) and cases.apart is not None:
        judging = (cases.apart.role != TRAINS).mean()
        return replace(plan, parts=round(1 / judging))

    limit = request.clock.limit
    if plan.how != "folds" or (limit is None and config.max_seconds is None):
        return plan

    if limit is not None:
        draft = FitPlan(
            training=draft_training(config, facts.size), judging=plan, members=members
        )
        if request.reduce.first(lambda: fits_in(draft, limit / 2)):
            return plan

    return plan_judging(config, facts, short=True)


def choose_seen(
    request: Request[ClassifierConfig],
    judge: Judge,
    members: MembersPlan,
    n_columns: int,
) -> Facts:
    """Choose the rows that the Gaussian process sees: all, or as many as its work allows."""
    trains = judge.trains
    config = request.config
    if not isinstance(trains, Table) or not samples_rows(config):
        return trains

    size = TableSize.of(trains, n_columns)
    most = count_seen(config, size)
    if request.clock.limit is not None:
        training = draft_training(config, size)
        draft = FitPlan(training=training, judging=judge.plan, members=members)
        seconds = expect_seconds(request, judge, draft)
        in_time = request.reduce.first(
            lambda: count_rows_in(training, max(seconds, LEAST_SECONDS) / PASSES)
        )
        most = min(most, in_time)

    return draw_cases(trains, most, request.seed)


def expect_seconds(
    request: Request[ClassifierConfig], judge: Judge, draft: FitPlan
) -> float:
    """Return the seconds that training may take within the limit, after the members."""
    left = request.clock.left()
    if draft.members.pools:
        known = estimate_seconds(draft, measure_slowness())
        left -= min(MEMBERS * left, known.get("pool", 0.0))
    seconds = judge.training_share * left
    limit = request.config.max_seconds
    if limit is None:
        return seconds

    return min(seconds, limit - request.clock.spent())


def draft_training(config: ClassifierConfig, size: TableSize) -> TrainingPlan:
    """Plan the training on all rows of a table, to see how long it takes."""
    return plan_training(config, size, count_points(config, size))


def make_plan(
    request: Request[ClassifierConfig],
    rows: LabelledTable,
    facts: Cases,
    judge: Judge,
    members: MembersPlan,
    training: TrainingRows,
) -> FitPlan:
    """Make the plan of the fit, with its seconds."""
    config = request.config
    trained = plan_training(config, training.size, training.Z.shape[-2])
    given = rows.table.n_rows
    distinct = trained.distinct or facts.size.rows
    sample = training.seen.n_rows
    if sample >= judge.trains.n_rows:
        sample = 0
    trained = replace(
        trained,
        rows=given,
        distinct=distinct if distinct < given else None,
        sample=sample,
    )
    plan = FitPlan(
        training=trained,
        judging=judge.plan,
        members=members,
        time_limit=request.clock.limit,
    )
    trains = TableSize.of(judge.trains, rows.features.n)
    fast = plan_fast(config, facts, trains, trained.n_inducing)
    return with_seconds(request, plan, fast)


def with_seconds(
    request: Request[Any], plan: FitPlan, fast: FitPlan | None = None
) -> FitPlan:
    """Return the plan with the seconds that it takes on this machine, if one rank fits."""
    if request.reduce.world > 1:
        return plan

    seconds, fast_seconds = estimate_fits(plan, fast)
    return replace(plan, seconds=seconds, fast_seconds=fast_seconds)


def announce_plan(request: Request[Any], plan: FitPlan) -> None:
    """Say what the fit will do."""
    said = [f"Plan: {plan.summarise()}"]
    if plan.describe_time():
        said.append(plan.describe_time())
    announce("; ".join(said), request.verbose)
    epochs = plan.training.max_epochs
    announce(f"  Gaussian process: at most {epochs} epochs", request.verbose)
