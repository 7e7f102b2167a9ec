"""The fit of a classifier: read the rows, plan, train, judge, weigh a pool, record."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from cavity.common.ranks import run_together
from cavity.engine import runs
from cavity.fitting import adapter
from cavity.fitting.begin import begin_run
from cavity.fitting.cases import choose_apart
from cavity.fitting.early_end import guard_source
from cavity.fitting.evidence import hold_rows
from cavity.fitting.finish import Store, keep_on_interrupt, warn
from cavity.fitting.fit import Candidates, ClassifierFit, Judged, Trained
from cavity.fitting.held_out import hold_left_out
from cavity.fitting.held_out_table import keep_rows, list_held_out, list_plainly
from cavity.fitting.judges import judge, judge_alone
from cavity.fitting.leave_one_out import leave_out
from cavity.fitting.left_out import LeftOut
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.policy.bids import fits_side_by_side
from cavity.fitting.options.policy.judging import calibrates
from cavity.fitting.partial_fit import keep_growing
from cavity.fitting.planning import announce_plan, note_drawn, plan_fit
from cavity.fitting.request import Request, check_ranks_agree, check_storable
from cavity.fitting.results import Result, common_result, describe_rows
from cavity.fitting.screening import name_kernel
from cavity.fitting.verdict import Verdict, judge_as_is
from cavity.pool.pool import Pool
from cavity.prediction.model import FittedModel
from cavity.tables.labelled import (
    LabelledTable,
    read_eval_labels,
    read_source,
    read_table,
    with_order,
)
from cavity.tables.near_copies import has_near_copies
from cavity.tables.pieces import Source
from cavity.tables.sources import find_source
from cavity.tables.table import Streamed, Table

NEAR_COPIES = (
    "many rows are near copies of others: if each set of them comes from one patient, "
    "machine or the like, estimate_ is too good for new ones. "
    "Name the sets with fit(X, y, groups=...); on the command line with --group COLUMN."
)


def fit_classifier(request: Request[ClassifierConfig], store: Store) -> list[str]:
    """Fit a classifier, hand the result to `store`, and return the warnings.

    After an interrupt the result is what was learnt so far.
    """
    rows = read_labelled_rows(request)
    fit = plan_fit(request, rows)
    announce_plan(fit.request, fit.plan)

    find_candidates = start_members(fit)
    begun = begin_run(
        fit.request, fit.plan.training, fit.training, fit.judge.training_share
    )

    def unjudged() -> Result:
        return record(fit, judge_alone(fit, begun))

    with keep_on_interrupt(begun, store, unjudged) as progress:
        at_start = request.clock.spent()
        with name_kernel(begun.run.engine):
            runs.train(begun.run)
        progress.trained = True
        begun = begun._replace(seconds=request.clock.spent() - at_start)
        judged = guard_source(fit, judge(Trained(fit, begun, find_candidates())))
        result = record(fit, judged)
        store(result)

    notes = [*note_drawn(fit), *judged.notes, *note_near_copies(fit)]
    if result.estimate is not None and result.estimate.verdict is not None:
        notes.append(result.estimate.verdict)
    return warn(judged.begun, fit.plan, result, notes)


def start_members(fit: ClassifierFit) -> Callable[[], Candidates]:
    """Fit members of the pool, and return a function that returns them.

    The Gaussian process may train on a GPU meanwhile.
    """
    fit_members = partial(fit.judge.fit_members, fit)
    if not fits_side_by_side(fit.request.config, fit.request.clock.limit):
        found = fit_members()
        return lambda: found

    executor = ThreadPoolExecutor(1)
    future = executor.submit(fit_members)
    executor.shutdown(wait=False)
    return future.result


def read_labelled_rows(request: Request[ClassifierConfig]) -> LabelledTable:
    """Read a table into memory, or survey a source, and read the rows of eval_set."""
    config = request.config
    reduce = request.reduce
    raw = request.raw
    weight = config.class_weight

    def read() -> LabelledTable | Source:
        source = find_source(raw, reads_whole_table=config.reads_whole_table)
        if source is None:
            return read_table(raw, weight, config.owner)

        return source

    rows = run_together(reduce, read)
    if not isinstance(rows, LabelledTable):
        config.check_source()
        apart = run_together(reduce, partial(choose_apart, request, rows))
        rows = read_source(rows, weight, config.owner, request.seed, reduce, apart)

    rows = rows._replace(table=with_order(rows.table, config.order, rows.classes))
    check_ranks_agree(rows.table, rows.features, rows.classes, reduce)
    config.check_size(rows.table.n_rows)
    check_storable(rows.features, rows.classes)
    if raw.eval_set is None:
        return rows

    held = read_eval_labels(raw.eval_set, rows.features, rows.classes)
    return rows._replace(held=held)


def record(fit: ClassifierFit, judged: Judged) -> Result:
    """Return what a fit leaves: the model with its pool, its estimate, its explanations."""
    config = fit.request.config
    rows = fit.rows
    begun = judged.begun
    run = begun.run
    left_out = find_left_out(fit, judged)
    usual = None
    if left_out is not None:
        usual = left_out.for_novelty()
    found = common_result(
        run,
        begun.rows.start.columns,
        rows.features,
        evidence=runs.label_evidence(run),
        warm_start=config.warm_start,
        candidates=begun.rows.start.candidates,
        left_out=usual,
    )
    verdict = judged.verdict
    plan = fit.plan
    if judged.bids:
        plan = replace(plan, members=replace(plan.members, bids=judged.bids))
    calibration = None
    if verdict is not None:
        calibration = verdict.held_out.how
        asked = judged.members or judged.repaired or calibrates(config)
        if not asked:
            calibration = None  # no temperature was asked for
            verdict = judge_as_is(verdict.held_out, rows.class_prior)

    columns = begun.rows.start.columns
    return found._replace(
        model=found.model._replace(pool=make_pool(fit, judged, verdict, found.model)),
        classes=rows.classes,
        growing=keep_growing(config.method, run, columns, begun.rows.table),
        loo=left_out,
        class_prior=rows.class_prior,
        evidence_name=adapter.name_evidence(config, rows.table),
        calibration=calibration,
        estimate=None if verdict is None else verdict.estimate,
        plan=plan,
        evidence_rows=hold_rows(begun),
        shares=describe_rows(rows.table, rows.features, config.class_weight is None),
        held_out=None if verdict is None else list_held_out(fit, verdict),
        members=None if verdict is None else verdict.members,
        trained=keep_rows(fit.rows),
    )


def judge_recorded(result: Result) -> Result:
    """Judge the model of a named method by leave-one-out, if it was not judged before.

    This takes an integral per row, so it waits until somebody asks.
    """
    loo: LeftOut | None = result.loo
    prior = result.class_prior
    if result.estimate is not None or loo is None or prior is None:
        return result
    if result.model.pool.members or result.classes is None:
        return result

    held = hold_left_out(loo, result.model, len(loo.y))
    if not len(held.y):
        return result

    seconds = 0.0
    if result.history:
        seconds = float(result.history[-1].get("seconds", 0.0))
    held = held._replace(how="leave-one-out", seconds=(seconds,))
    verdict = judge_as_is(held, prior, result.model.pool.weight)
    listed = list_plainly(held, verdict.log_proba, result.classes)
    return result._replace(
        held_out=listed, estimate=verdict.estimate, members=verdict.members
    )


def find_left_out(fit: ClassifierFit, judged: Judged) -> LeftOut | None:
    """Return leave-one-out marginals, those of the judge if it has some."""
    verdict = judged.verdict
    if verdict is not None and verdict.held_out.left_out is not None:
        return verdict.held_out.left_out

    return leave_out(fit, judged.begun)


def make_pool(
    fit: ClassifierFit, judged: Judged, verdict: Verdict | None, model: FittedModel
) -> Pool:
    """Return how the Gaussian process and the members that count predict together."""
    if verdict is None:
        return Pool()

    own, *weights = verdict.weights
    gate = None
    if judged.members and isinstance(fit.cases, Table):
        gate = verdict.make_gate(model, fit.cases)
    return Pool(own, judged.members, tuple(w for w in weights if w), gate)


def note_near_copies(fit: ClassifierFit) -> list[str]:
    """Say that rows look like rows of groups that the user did not name."""
    judging = fit.judge.plan
    rows = fit.cases
    if isinstance(rows, Streamed):
        rows = rows.sampled
    by_table = judging.how in ("folds", "part", "leave-one-out")
    named = judging.groups > 0
    if by_table and not named and has_near_copies(rows, fit.rows.texts):
        return [NEAR_COPIES]

    return []
