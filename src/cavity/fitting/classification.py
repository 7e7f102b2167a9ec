"""The fit of a classifier, from top to bottom: read the rows, plan, train, judge, weigh
a pool, record.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from cavity.common.progress import announce
from cavity.common.ranks import run_together
from cavity.engine import runs
from cavity.errors import NotPositiveDefinite
from cavity.fitting import adapter
from cavity.fitting.begin import Begun, begin_classifier
from cavity.fitting.finish import Store, describe_plan, keep_on_interrupt, warn
from cavity.fitting.folds import MEMBERS, judge_folds, judge_held
from cavity.fitting.held_out import (
    Split,
    choose_apart,
    choose_seen,
    find_cases,
    plan_judging,
    split_rows,
)
from cavity.fitting.judging import LEAST_WEIGHT, Judged, find_scale, judge_left_out
from cavity.fitting.left_out import find_leave_one_out
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import CalibrationPlan, Plan, TableSize
from cavity.fitting.partial_fit import keep_growing
from cavity.fitting.request import Request, check_ranks_agree
from cavity.fitting.results import Result, common_result
from cavity.pool.members import Recipe, fit_members, make_members
from cavity.pool.pool import Member, Pool, make_gate
from cavity.prediction.model import extract_model
from cavity.tables.labelled import (
    LabelledTable,
    read_eval_labels,
    read_source,
    read_table,
)
from cavity.tables.pieces import Source
from cavity.tables.repeats import has_near_copies
from cavity.tables.sources import find_source
from cavity.tables.table import Facts, Table

TRAINING = 0.7  # share of the seconds that are left
NEAR_COPIES = (
    "most rows are near copies of others with the same label: if each set of them "
    "comes from one patient, machine or the like, "
    "estimate_ is too good for new ones. Name the sets with fit(X, y, groups=...); on "
    "the command line with --group COLUMN."
)


def fit_classifier(request: Request[ClassifierConfig], store: Store) -> list[str]:
    """Fit a classifier, hand the result to `store`, on an interrupt what was learnt so
    far, and return the warnings.
    """
    rows = read_labelled_rows(request)
    request = request.on_best_device(TableSize.of(rows.table, rows.features.n))
    table = find_cases(request, rows.table)
    split, judging = split_rows(
        request, rows, table, plan_judging(request, rows, table)
    )

    recipes = make_members(request.config.ensemble, judging, request.seed)
    members = list[Member]()
    notes = list[str]()
    began = request.clock.spent()
    if split.held is not None:
        if isinstance(split.rest, Table) and recipes:
            left = request.clock.share(MEMBERS)
            members, known = fit_members(
                recipes, split.rest, split.held, split.given.blocks, left
            )
            notes = note_left_out(request, recipes[len(known) :])
            recipes = known
    member_seconds = request.clock.spent() - began

    request = request.limit_training(
        TRAINING if split.held is not None else TRAINING / 2
    )
    seen = choose_seen(request, split.rest, rows.features.n)
    judging = replace(
        judging, seen=seen.n_rows if seen.n_rows < split.rest.n_rows else 0
    )
    begun = begin_classifier(request, rows, seen)
    plan = complete_plan(request, split, begun, judging)

    judged = None
    with keep_on_interrupt(begun, store, lambda: record(request, split, begun, plan)):
        begun.train()
        if split.held is not None:
            judged = judge_held(
                split,
                judging,
                extract_model(begun.run.engine, begun.run.state),
                members,
            )
            if (
                judging.how == "part"
                and not judging.seen
                and has_time_to_extend(request, begun, judged)
            ):
                extend(begun, split)
        elif judging.how == "folds":
            epochs = max(1, len(begun.run.history))
            judged, recipes, more = judge_folds(
                request, split, epochs, judging, recipes
            )
            notes += more
        if judged is not None and recipes and isinstance(split.table, Table):
            refits = (
                judging.how == "part"
                and judging.refits
                and request.clock.has(member_seconds)
            )
            if refits or judging.how == "folds":  # no member of folds has seen all rows
                members = refit_members(request, split, split.table, recipes, judged)
            else:
                members = [
                    m
                    for m, weight in zip(members, judged.weights[1:], strict=True)
                    if weight
                ]
            judged = judged._replace(members=tuple(members))
        result = record(request, split, begun, plan, judged)
        store(result)
    verdict = None
    if result.estimate is not None:
        verdict = result.estimate.verdict
    notes = [
        *notes,
        *note_near_copies(table, judging),
        *([] if verdict is None else [verdict]),
    ]
    return warn(begun, plan, result, notes)


def read_labelled_rows(request: Request[ClassifierConfig]) -> LabelledTable:
    """Read a table into memory, or survey a source, and the rows of eval_set; check
    that every rank has the same rows.
    """
    config = request.config
    reduce = request.reduce
    raw = request.raw
    weight = config.class_weight
    owner = config.owner

    def read() -> LabelledTable | Source:
        source = find_source(raw, reads_whole_table=config.reads_whole_table)
        if source is None:
            return read_table(raw, weight, owner)
        return source

    rows = run_together(reduce, read)
    if not isinstance(rows, LabelledTable):
        config.check_source()
        apart = run_together(reduce, partial(choose_apart, request, rows))
        rows = read_source(rows, weight, owner, request.seed, reduce, apart)
    check_ranks_agree(rows.table, rows.features, rows.classes, reduce)
    config.check_size(rows.table.n_rows)
    if raw.eval_set is None:
        return rows
    return rows._replace(
        held=read_eval_labels(raw.eval_set, rows.features, rows.classes)
    )


def complete_plan(
    request: Request[Any], split: Split, begun: Begun, judging: CalibrationPlan
) -> Plan:
    """Return the plan of the whole fit with its time, and say it."""
    given = split.given.table.n_rows
    distinct = begun.plan.distinct or split.table.n_rows
    training = replace(
        begun.plan, rows=given, distinct=distinct if distinct < given else None
    )
    plan = Plan(training=training, calibration=judging, time_limit=request.clock.limit)
    return describe_plan(request, plan, plan_fast(request.config, split, plan))


def plan_fast(config: ClassifierConfig, split: Split, plan: Plan) -> Plan | None:
    """Return what effort="fast" would do; None if it changes nothing."""
    if config.effort == "fast" or not config.method.recommended:
        return None
    config = replace(config, effort="fast")
    size = TableSize.of(split.rest, split.given.features.n)
    M = min(plan.training.n_inducing, policy.count_points(config, size))
    judging = policy.plan_calibration(
        config, size, in_memory=isinstance(split.table, Table)
    )
    return Plan(training=policy.plan_training(config, size, M), calibration=judging)


def has_time_to_extend(
    request: Request[ClassifierConfig], begun: Begun, judged: Judged
) -> bool:
    """Return whether the Gaussian process counts in its pool, and a few more passes
    over its rows are in time.
    """
    run = begun.run
    clock = request.clock
    if clock.limit is not None:
        in_time = clock.has(3 * run.pace * run.rows.n_rows)
    else:
        in_time = not run.is_late()
    return judged.weights[0] >= LEAST_WEIGHT and in_time


def extend(begun: Begun, split: Split) -> None:
    """Add the sites of held-out rows at the learnt hyper-parameters."""
    table = split.table
    rest = split.rest
    own = begun.table
    run = begun.run
    if not (
        isinstance(table, Table) and isinstance(rest, Table) and isinstance(own, Table)
    ):
        return  # rows that are not in memory
    if begun.seen is not rest or run.engine.sites.tied:
        return  # rows of early stopping, or sites that belong to no row
    trained = table
    place = np.full(table.n_rows, -1)
    if own.place is None:
        known = np.arange(rest.n_rows)
    else:
        known = own.place
    place[np.searchsorted(table.numbers, rest.numbers)] = known
    if own.place is not None:  # a table of cells
        trained = table.merge(cells=True)
        place = np.array(
            [place[trained.place == i].max() for i in range(trained.n_rows)]
        )
    share = np.where(place < 0, 0.0, trained.weight / own.weight[np.maximum(place, 0)])
    with suppress(NotPositiveDefinite):
        begun.run = adapter.extend_rows(
            run, begun.config, begun.plan, trained, np.maximum(place, 0), share
        )
        begun.table = trained
        begun.seen = table


def refit_members(
    request: Request[ClassifierConfig],
    split: Split,
    table: Table,
    recipes: list[Recipe],
    judged: Judged,
) -> list[Member]:
    """Fit the members that count to all rows."""
    used = [
        recipe
        for recipe, weight in zip(recipes, judged.weights[1:], strict=True)
        if weight
    ]
    if used:
        announce(
            f"  pool: {', '.join(recipe.name for recipe in used)}", request.verbose
        )
    return fit_members(used, table, None, split.given.blocks, lambda: math.inf)[0]


def record(
    request: Request[ClassifierConfig],
    split: Split,
    begun: Begun,
    plan: Plan,
    judged: Judged | None = None,
) -> Result:
    """Return what a fit leaves: the model with its pool, its estimate and what explains
    it.
    """
    config = request.config
    rows = split.given
    run = begun.run
    (columns, candidates) = begun.start
    table = rows.table
    merged = begun.table
    whole = begun.seen is split.table
    if not whole and isinstance(begun.seen, Table):  # a part or a sample of the rows
        table = begun.seen
    elif isinstance(split.table, Table) and split.table.place is not None:
        merged = split.table  # rows of the user were merged before the split
    loo = find_leave_one_out(run, table, merged, whole)
    usual = None if loo is None else loo.for_novelty()
    evidence = runs.label_evidence(run)
    found = common_result(
        run, columns, rows.features, evidence, config.warm_start, candidates, usual
    )
    if judged is not None and not judged.members and not policy.calibrates(config):
        judged = None  # no temperature was asked for
    elif judged is None and loo is not None and policy.calibrates(config):
        known = loo.without_lone_rows()
        knows_groups = loo.unit is not None or not rows.table.n_groups
        if knows_groups and len(known.y):
            judged = judge_left_out(known, found.model, rows.class_prior, table.n_rows)
    pool = Pool()
    if judged is not None:
        (own, *weights) = judged.weights
        gate = None
        if judged.members and isinstance(split.table, Table):
            gate = make_gate(find_scale(found.model, split.table), judged.u)
        pool = Pool(own, judged.members, tuple(w for w in weights if w), gate)
    return found._replace(
        model=found.model._replace(pool=pool),
        classes=rows.classes,
        growing=keep_growing(config.method, run, columns, begun.table),
        loo=loo,
        class_prior=rows.class_prior,
        evidence_name=config.method.name_evidence(len(rows.classes)),
        calibration=None if judged is None else judged.how,
        estimate=None if judged is None else judged.estimate,
        plan=plan,
    )


def note_near_copies(table: Facts, plan: CalibrationPlan) -> list[str]:
    """Say that rows look like those of groups, which the user did not name, unless rows
    of the user judge the model.
    """
    judged = plan.how in ("folds", "part", "leave-one-out") and not plan.groups
    if isinstance(table, Table):
        rows = table
    else:
        rows = table.sampled
    if judged and has_near_copies(rows):
        return [NEAR_COPIES]
    return []


def note_left_out(
    request: Request[ClassifierConfig], recipes: list[Recipe]
) -> list[str]:
    """Say which members a time limit left out of the pool."""
    if not recipes or request.clock.limit is None:
        return []
    *others, last = (recipe.name for recipe in recipes)
    if others:
        listed = f"{', '.join(others)} and {last}"
    else:
        listed = last
    return [
        f"time_limit={request.clock.limit:g} left no time for {listed} in the pool."
    ]
