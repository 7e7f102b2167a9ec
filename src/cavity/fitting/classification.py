"""The fit of a classifier, from top to bottom: read the rows, plan, train, hold out, weigh a pool, record."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.distributed import run_together
from cavity.errors import BadOption, NotPositiveDefinite
from cavity.fitting import build, monitoring, runs
from cavity.fitting.job import Begun, Session, begin_run, check_rows, describe_plan
from cavity.fitting.judging import (
    LEAST_WEIGHT,
    Held,
    Judged,
    find_gate,
    join,
    judge_left_out,
    judge_rows,
    predict_rows,
    weigh,
)
from cavity.fitting.leave_one_out import find_leave_one_out
from cavity.fitting.members import Recipe, fit_members, make_members
from cavity.fitting.partial_fit import keep_growing
from cavity.fitting.results import Result, common_result
from cavity.options import ClassifierConfig, Plan, policy
from cavity.options.plan import CalibrationPlan, TableSize
from cavity.options.time_estimate import count_rows_in, fits_in
from cavity.prediction.estimate import FOLDS, FULL_ROWS, HELD_OUT
from cavity.prediction.model import FittedModel, extract_model
from cavity.prediction.pool import Gate, Member, Pool
from cavity.rows.batches.source import Source
from cavity.rows.columns.feature_groups import find_categories
from cavity.rows.repeats import find_units, has_cells, has_near_copies
from cavity.rows.sources import find_source, read_source
from cavity.rows.splitting import choose_folds
from cavity.rows.tables import Facts, LabelledTable, Request, Table, read_eval_labels, read_table
from cavity.training.callbacks import Callback
from cavity.training.loop import Run
from cavity.training.progress import announce, show_progress
from cavity.training.threads import flush_denormals, limit_threads

Store = Callable[[Result], None]
Watch = Callable[[Run, Plan, Callable[[Run], Result]], AbstractContextManager[None]]
Numbers = NDArray[np.int64]

# Shares of the seconds that are left: for the members of a pool, which give most per second, then for training.
MEMBERS, TRAINING = 0.75, 0.7
HELD_GROUPS = 10  # that a part must have for an error of the estimate
PASSES = 8  # over the rows that the Gaussian process sees, within the seconds of training
NEAR_COPIES = (
    "most rows are near copies of others with the same label: if each set of them comes from one patient, machine or the like, "
    "estimate_ is too good for new ones. Name the sets with fit(X, y, groups=...); on the command line with --group COLUMN."
)
FAILED_PART = "a fit on part of the rows could not be factorised: the estimate comes from the other rows."


class Split(NamedTuple):
    """The rows of a fit: those to train on, and those to judge by."""

    given: LabelledTable  # as the user gave them
    table: Facts  # equal rows as one, unless they are different cases
    rest: Facts  # the part to train on before held-out rows are added
    held: Table | None = None  # rows that judge the model
    held_name: str = "held out"
    stopping: tuple[Callback, ...] = ()  # early stopping by them, if they are those of eval_set

    @property
    def blocks(self) -> list[slice]:
        """The features of each category."""
        prepare = self.given.features.preparation
        return [] if prepare is None else find_categories(prepare.columns_)

    @property
    def class_prior(self) -> NDArray[np.float64]:
        totals = self.given.table.class_totals
        return np.asarray(totals / totals.sum())


def fit_classifier(
    session: Session[ClassifierConfig], request: Request, store: Store, watch: Watch
) -> list[str]:
    """Fit a classifier, hand the result to `store`, on an interrupt what was learnt so far, and return the warnings."""
    rows = read_rows(session, request)
    session = session.on_best_device(TableSize.of(rows.table, rows.features.n))
    table = find_cases(session, rows.table)
    plan = plan_judging(session, rows, table, request.eval_set is not None)
    split = split_rows(session, rows, table, plan, request)

    recipes, members = make_members(session.config.ensemble, plan, session.seed), list[Member]()
    wanted, began = [recipe.name for recipe in recipes], session.clock.spent()
    if split.held is not None and isinstance(split.rest, Table) and recipes:
        members, recipes = fit_members(
            recipes, split.rest, split.held, split.blocks, session.clock.share(MEMBERS)
        )
    member_seconds = session.clock.spent() - began
    left_out = wanted[len(members) :] if split.held is not None else []
    session = session.limit_training(TRAINING if split.held is not None else TRAINING / 2)
    seen = choose_seen(session, split.rest, rows.features.n)
    begun = start(session, split, seen)
    plan = replace(plan, seen=seen.n_rows if seen.n_rows < split.rest.n_rows else 0)
    given, distinct = rows.table.n_rows, begun.options.plan.distinct or table.n_rows
    training = replace(begun.options.plan, rows=given, distinct=distinct if distinct < given else None)
    whole = Plan(training=training, calibration=plan, time_limit=session.clock.limit)
    whole = describe_plan(whole, plan_fast(session, split, whole), session.config, session.reduce)

    first, trained, judged, notes = begun.run.state, False, None, list[str]()
    with limit_threads(runs.count_work(begun.run)), flush_denormals(session.config.dtype):
        try:
            with watch(begun.run, whole, lambda run: record(session, split, begun, run, whole)):
                begun.run = runs.train(begun.run, begun.options)
                trained = True
                model = extract_model(begun.run.engine, begun.run.state)
                if split.held is not None:
                    judged = judge_held(split, model, members)
                    counts = (
                        judged.weights[0] >= LEAST_WEIGHT
                    )  # else its sites would cost more than they give
                    if counts and seen is split.rest is not split.table and has_time(session, begun.run):
                        begun = extend(begun, split)
                elif plan.how == "folds":
                    judged, recipes, notes = judge_folds(session, split, begun, plan, recipes)
                if recipes and judged is not None and isinstance(split.table, Table):
                    fits = split.held is None or (plan.refits and split.rest is not split.table)
                    if fits and session.clock.has(member_seconds):
                        members = refit_members(session, split, split.table, recipes, judged)
                    else:
                        members = [m for m, weight in zip(members, judged.weights[1:], strict=True) if weight]
                result = record(session, split, begun, begun.run, whole, judged, members)
                store(result)
        except KeyboardInterrupt:
            now = begun.run.state
            if begun.run.history or now.theta is not first.theta or now.sums is not first.sums:
                store(keep(session, split, begun, whole, trained))
            raise
        return warn(
            begun, whole, result, [*notes, *note_left_out(session, left_out), *note_near_copies(table, plan)]
        )


def read_rows(session: Session[ClassifierConfig], request: Request) -> LabelledTable:
    """Read a table into memory, or survey a source; check that every rank has the same rows."""
    config, reduce = session.config, session.reduce
    weight, owner = config.class_weight, config.owner

    def read() -> LabelledTable | Source:
        source = find_source(request, reads_whole_table=config.reads_whole_table)
        return read_table(request, weight, owner) if source is None else source

    rows = run_together(reduce, read)
    if request.groups is not None and (reduce.world > 1 or not isinstance(rows, LabelledTable)):
        raise BadOption(
            "groups= needs a table in memory and a single process: read the rows into memory, or leave groups= out."
        )
    if not isinstance(rows, LabelledTable):
        config.check_source(rows.numbered)
        rows = read_source(rows, weight, owner, session.seed, reduce)
    check_rows(rows.table, rows.features, rows.classes, reduce)
    config.method.check_classes(len(rows.classes))
    config.check_size(rows.table.n_rows)
    return rows


def find_cases(session: Session[ClassifierConfig], table: Facts) -> Facts:
    """Return the cases to train and judge by: method="auto" takes equal rows of equal labels as one, unless they are cells."""
    auto = session.config.method.recommended and session.reduce.world == 1
    return table.merge() if auto and isinstance(table, Table) and not has_cells(table) else table


def merge_rows(session: Session[ClassifierConfig], table: Facts) -> Facts:
    """Return the rows to train on: those of a table of cells are merged, too."""
    auto = session.config.method.recommended and session.reduce.world == 1
    return table.merge(cells=True) if auto and isinstance(table, Table) and table.place is None else table


def plan_judging(
    session: Session[ClassifierConfig], rows: LabelledTable, table: Facts, eval_set: bool
) -> CalibrationPlan:
    """Plan which rows judge the model: folds only if they fit into a time limit."""
    config, size = session.config, TableSize.of(table, rows.features.n, rows.numbered)
    given = {"in_memory": isinstance(table, Table), "eval_set": eval_set}
    groups = table.n_cases if isinstance(table, Table) and table.group is not None else 0
    plan = keep_groups(policy.plan_calibration(config, size, **given), groups)
    if plan.how != "folds" or (session.clock.limit is None and config.max_seconds is None):
        return plan
    training = policy.complete(config, size, policy.count_points(config, size)).plan
    limit = session.clock.limit
    if limit is not None and fits_in(Plan(training=training, calibration=plan), limit / 2):
        return plan
    return keep_groups(policy.plan_calibration(config, size, **given, short=True), groups)


def keep_groups(plan: CalibrationPlan, groups: int) -> CalibrationPlan:
    """Plan for groups of rows: a part that judges the model has ten of them, or half of all if there are few."""
    parts = plan.parts
    if groups and plan.how == "part":
        parts = min(parts, max(2, groups // HELD_GROUPS))
    return replace(plan, groups=groups, parts=parts)


def plan_fast(session: Session[ClassifierConfig], split: Split, plan: Plan) -> Plan | None:
    """Return what effort="fast" would do; None if it changes nothing."""
    config = replace(session.config, effort="fast")
    if session.config.effort == "fast" or not config.method.recommended:
        return None
    size = TableSize.of(split.rest, split.given.features.n, split.given.numbered)
    M = min(plan.training.n_inducing, policy.count_points(config, size))
    judging = policy.plan_calibration(config, size, in_memory=isinstance(split.table, Table))
    return Plan(training=policy.complete(config, size, M).plan, calibration=judging)


def split_rows(
    session: Session[ClassifierConfig],
    rows: LabelledTable,
    table: Facts,
    plan: CalibrationPlan,
    request: Request,
) -> Split:
    """Split off rows that judge the model, or take those of eval_set."""
    config = session.config
    if request.eval_set is not None:
        held = read_eval_labels(request.eval_set, rows.features, rows.classes)
        stopping = (monitoring.make_early_stopping(held, config.patience),)
        return Split(rows, table, table, held, "of eval_set", stopping)
    if plan.how == "part" and isinstance(table, Table):
        out = number_folds(table, plan.parts, session.seed) == 0
        if out.any():
            return Split(rows, table, table.select(~out), table.select(out))
    return Split(rows, table, table)


def number_folds(table: Table, k: int, seed: int) -> Numbers:
    """Return the fold of each row; rows that belong together stay together, those of a table of cells are different cases."""
    rows = np.arange(float(table.n_rows))[:, None] if has_cells(table) else table.X
    return choose_folds(rows, table.y, k, seed, group=table.group)


def number_units(table: Table) -> Numbers:
    """Return the same number for rows that belong together."""
    found = find_units(table)
    return np.arange(table.n_rows) if found is None else found


def choose_seen(session: Session[ClassifierConfig], rest: Facts, columns: int) -> Facts:
    """Return the rows that the Gaussian process sees: all, or a sample that the work of the effort, or the time, allows."""
    if not isinstance(rest, Table) or session.reduce.world > 1 or not session.config.method.recommended:
        return rest
    size = TableSize.of(rest, columns)
    most = policy.count_seen(session.config, size)
    if session.clock.limit is not None and session.config.max_seconds is not None:
        training = policy.complete(session.config, size, policy.count_points(session.config, size)).plan
        left = session.config.max_seconds - session.clock.spent()
        most = min(most, count_rows_in(training, max(left, 0.1) / PASSES))
    if most >= rest.n_rows:
        return rest
    parts = max(2, math.ceil(rest.n_rows / most))
    kept = choose_folds(np.arange(float(rest.n_rows))[:, None], rest.y, parts, session.seed) <= 0
    return rest.select(kept)


def start(session: Session[ClassifierConfig], split: Split, seen: Facts) -> Begun:
    """Build the engine for the rows that are seen, and start or resume a run."""
    rows, config, rng = split.given, session.config, session.rng
    features, classes, stopping = rows.features, rows.classes, split.stopping
    if isinstance(seen, Table) and config.validation_fraction is not None:
        seen, held = monitoring.hold_out(seen, config.validation_fraction, rng)
        stopping = (monitoring.make_early_stopping(held, config.patience),)
    trained = merge_rows(session, seen)
    begin = session.start_values(trained, features)
    M = policy.count_points(config, TableSize.of(trained, features.n, rows.numbered))
    Z = build.choose_points(config, begin.pool, M, seen.n_latent, rng)
    begun = begin_run(
        session, trained, features, begin, Z, classes=classes, numbered=rows.numbered, stopping=stopping
    )
    begun.seen, begun.every_row = seen, not config.validation_fraction
    return begun


def judge_held(split: Split, model: FittedModel, members: list[Member]) -> Judged:
    """Judge a model by rows that were held out of it."""
    held = split.held
    assert held is not None
    found = predict_rows(model, members, held, number_units(held))
    how = f"{held.n_rows} rows {split.held_name}{name_groups(held)}"
    small = (
        isinstance(split.table, Table) and split.rest is not split.table and split.table.n_cases <= FULL_ROWS
    )
    gate, kind = _find_gate(model, members, split.rest), FOLDS if small else HELD_OUT
    return judge_rows(found, gate, split.class_prior, how, kind)


def name_groups(held: Table) -> str:
    return "" if held.group is None else ", groups kept together"


def _find_gate(model: FittedModel, members: list[Member], table: Facts) -> Gate | None:
    return find_gate(model, table) if members and isinstance(table, Table) else None


def judge_folds(
    session: Session[ClassifierConfig],
    split: Split,
    begun: Begun,
    plan: CalibrationPlan,
    recipes: list[Recipe],
) -> tuple[Judged | None, list[Recipe], list[str]]:
    """Judge the model by fits without some of the rows; also return recipes with what the folds decided, and notes."""
    table, clock, config = split.table, session.clock, session.config
    assert isinstance(table, Table)
    fold, unit = number_folds(table, plan.parts, session.seed), number_units(table)
    folds = [i for i in range(plan.parts) if (fold == i).any()]
    found, notes = list[Held](), list[str]()
    verbose = config.verbose if session.reduce.rank == 0 else 0
    announce(f"  judging: {len(folds)} more fits, each without 1 of {plan.parts} parts of the rows", verbose)
    for i in show_progress(folds, "judging", "fit", verbose):
        seconds = clock.left() / (len(folds) - len(found)) if clock.limit is not None else None
        if found and not clock.has(0.0):
            notes.append(f"time_limit={clock.limit:g}: {len(found)} of {len(folds)} folds judge the model.")
            break
        rest, held = table.select(fold != i), table.select(fold == i)
        try:
            model = fit_fold(session, split, begun, rest, seconds)
        except NotPositiveDefinite:
            notes.append(FAILED_PART)
            continue
        members, recipes = fit_members(recipes, rest, held, split.blocks, clock.share(MEMBERS))
        found.append(predict_rows(model, members, held, unit[fold == i], np.full(held.n_rows, i)))
        if len(found) == 1:  # members that do not count are not fitted again
            kept = np.flatnonzero(weigh(found[0])[1:])
            recipes = [recipes[j] for j in kept]
            found = [found[0]._replace(logs=found[0].logs[[0, *(kept + 1)]])]
    if not found:
        return None, [], notes
    logs = min(len(held.logs) for held in found)  # members that all folds have
    joined = join([held._replace(logs=held.logs[:logs]) for held in found])
    how = f"{len(found)} folds" if len(found) == len(folds) else f"{len(found)} of {len(folds)} folds"
    gate = find_gate(extract_model(begun.run.engine, begun.run.state), table) if logs > 1 else None
    how += name_groups(table)
    return judge_rows(joined, gate, split.class_prior, how, FOLDS), recipes[: logs - 1], notes


def fit_fold(
    session: Session[ClassifierConfig], split: Split, begun: Begun, rest: Table, seconds: float | None
) -> FittedModel:
    """Learn again on part of the rows, for a model that only predicts the others: half of the epochs is enough."""
    part = split._replace(given=split.given._replace(table=rest), table=rest, rest=rest, stopping=())
    fold = start(session.for_fold(seconds), part, rest)
    epochs = math.ceil(max(1, len(begun.run.history)) / 2)
    fold.run.plan = replace(fold.run.plan, settle=False, max_epochs=epochs)
    run = runs.train(fold.run, fold.options)
    return extract_model(run.engine, run.state)


def extend(begun: Begun, split: Split) -> Begun:
    """Add the sites of held-out rows at the learnt hyper-parameters."""
    table, rest = split.table, split.rest
    assert isinstance(table, Table) and isinstance(rest, Table) and isinstance(begun.table, Table)
    run = begun.run
    if run.rows.n_rows != begun.table.n_rows or begun.seen is not rest or run.engine.sites.tied:
        return begun  # several ranks, rows of early stopping, or sites that belong to no row
    trained, place = table, np.full(table.n_rows, -1)
    own = np.arange(rest.n_rows) if begun.table.place is None else begun.table.place
    place[np.searchsorted(table.numbers, rest.numbers)] = own
    if begun.table.place is not None:  # a table of cells
        trained = table.merge(cells=True)
        place = np.array([place[trained.place == i].max() for i in range(trained.n_rows)])
    share = np.where(place < 0, 0.0, trained.weight / begun.table.weight[np.maximum(place, 0)])
    kept = runs.Kept(torch.from_numpy(place).clamp_min(0), torch.from_numpy(share))
    try:
        run = runs.extend(run, begun.options, trained, kept)
    except NotPositiveDefinite:
        return begun
    begun.run, begun.table, begun.seen = run, trained, table
    return begun


def has_time(session: Session[ClassifierConfig], run: Run) -> bool:
    """Return whether there is time for a few more passes over the rows of a run."""
    if session.clock.limit is None:
        return not run.is_late()
    return session.clock.has(3 * run.pace * run.rows.n_rows)


def refit_members(
    session: Session[ClassifierConfig], split: Split, table: Table, recipes: list[Recipe], judged: Judged
) -> list[Member]:
    """Fit the members that count to all rows."""
    used = [recipe for recipe, weight in zip(recipes, judged.weights[1:], strict=True) if weight]
    verbose = session.config.verbose if session.reduce.rank == 0 else 0
    if used:
        announce(f"  pool: {', '.join(recipe.name for recipe in used)}", verbose)
    return fit_members(used, table, None, split.blocks, lambda: math.inf)[0]


def record(
    session: Session[ClassifierConfig],
    split: Split,
    begun: Begun,
    run: Run,
    plan: Plan,
    judged: Judged | None = None,
    members: list[Member] | None = None,
) -> Result:
    """Return what a fit leaves: the model with its pool, its estimate and what explains it."""
    config, rows = session.config, split.given
    table, whole = rows.table, begun.seen is split.table
    if not whole and isinstance(begun.seen, Table):  # a part or a sample of the rows
        table = begun.seen
    place_of = begun.table
    if whole and isinstance(split.table, Table) and split.table.place is not None:
        place_of = split.table  # rows of the user were merged before the split
    loo = find_leave_one_out(run, table, place_of, whole and begun.every_row)
    left_out = None if loo is None or run.reduce.world > 1 else loo.for_novelty()
    found = common_result(
        run, begun.columns, rows.features, runs.label_evidence(run), config.warm_start, begun.pool, left_out
    )
    if not members and not policy.calibrates(config):
        judged = None  # no temperature was asked for
    elif judged is None and loo is not None and policy.calibrates(config):
        judged = judge_left_out(loo, found.model, split.class_prior, run.reduce, table.n_rows)
    pool = Pool()
    if judged is not None:
        own, *weights = judged.weights
        gate = _find_gate(found.model, members or [], split.table)
        pool = Pool(own, tuple(members or ()), tuple(w for w in weights if w), gate)
    return found._replace(
        model=found.model._replace(pool=pool),
        classes=rows.classes,
        growing=keep_growing(config.method, run, begun.columns, begun.table),
        loo=loo,
        class_prior=split.class_prior,
        evidence_name=config.method.name_evidence(len(rows.classes)),
        calibration=None if judged is None else judged.how,
        estimate=None if judged is None else judged.estimate,
        plan=plan,
    )


def note_near_copies(table: Facts, plan: CalibrationPlan) -> list[str]:
    """Say that rows look like those of groups, which the user did not name, unless rows of the user judge the model."""
    judged = plan.how in ("folds", "part", "leave-one-out") and not plan.groups
    return [NEAR_COPIES] if judged and isinstance(table, Table) and has_near_copies(table) else []


def note_left_out(session: Session[ClassifierConfig], names: list[str]) -> list[str]:
    """Say which members a time limit left out of the pool."""
    if not names or session.clock.limit is None:
        return []
    *others, last = names
    listed = f"{', '.join(others)} and {last}" if others else last
    return [f"time_limit={session.clock.limit:g} left no time for {listed} in the pool."]


def keep(
    session: Session[ClassifierConfig], split: Split, begun: Begun, plan: Plan, was_trained: bool
) -> Result:
    """Return the result of an interrupted fit within seconds."""
    if not was_trained:
        monitoring.restore_best(begun.run)
    begun.run.plan = replace(begun.run.plan, max_seconds=0.0)  # no more passes that take long
    result = record(session, split, begun, begun.run, plan)
    where = "the calibration" if was_trained else "training"
    text = (
        f"{where} was interrupted after {len(begun.run.history)} epochs: the model is what was learnt so far."
    )
    return result._replace(warnings=tuple(runs.warn([(text, UserWarning)], stacklevel=5)))


def warn(begun: Begun, plan: Plan, result: Result, notes: list[str]) -> list[str]:
    """Warn of what the user should know, and return it."""
    limit = "Training(max_seconds=...)" if plan.time_limit is None else "time_limit="
    found = runs.find_warnings(begun.run, begun.options, begun.table.lightest, limit)
    verdict = None if result.estimate is None else result.estimate.verdict
    found += [(text, UserWarning) for text in (*notes, verdict) if text is not None]
    found += monitoring.find_failed_checkpoint(begun.run)
    if math.isnan(result.evidence):
        found.append(runs.NO_EVIDENCE)
    return runs.warn(found, stacklevel=4)
