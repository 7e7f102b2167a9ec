"""The fit of a classifier: read the rows, plan, train, judge, weigh a pool, record."""

from __future__ import annotations

from functools import partial

from cavity.common.ranks import run_together
from cavity.engine import runs
from cavity.fitting.begin import begin_run
from cavity.fitting.cases import choose_apart
from cavity.fitting.finish import Store, keep_on_interrupt, warn
from cavity.fitting.fit import ClassifierFit, Judged
from cavity.fitting.held_out import Verdict, hold_left_out, judge_rows
from cavity.fitting.judges import judge
from cavity.fitting.left_out import LeftOut, find_leave_one_out
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.partial_fit import keep_growing
from cavity.fitting.planning import announce_plan, plan_fit
from cavity.fitting.request import Request, check_ranks_agree
from cavity.fitting.results import Result, common_result
from cavity.pool.pool import Pool
from cavity.prediction.model import FittedModel
from cavity.tables.labelled import (
    LabelledTable,
    read_eval_labels,
    read_source,
    read_table,
)
from cavity.tables.near_copies import has_near_copies
from cavity.tables.pieces import Source
from cavity.tables.sources import find_source
from cavity.tables.table import Facts, Streamed, Table

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

    candidates = fit.judge.fit_members(fit)
    begun = begin_run(
        fit.request, fit.plan.training, fit.training, fit.judge.training_share
    )
    unjudged = partial(record, fit, Judged(begun))
    with keep_on_interrupt(begun, store, unjudged) as progress:
        runs.train(begun.run)
        progress.trained = True
        judged = judge(fit, begun, candidates)
        result = record(fit, judged)
        store(result)

    notes = [*judged.notes, *note_near_copies(fit)]
    if result.estimate is not None and result.estimate.verdict is not None:
        notes.append(result.estimate.verdict)
    return warn(judged.begun, fit.plan, result, notes)


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

    check_ranks_agree(rows.table, rows.features, rows.classes, reduce)
    config.check_size(rows.table.n_rows)
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
    left_out = leave_out(fit, judged)
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
    if verdict is not None and not judged.members and not policy.calibrates(config):
        verdict = None  # no temperature was asked for
    elif verdict is None and left_out is not None and policy.calibrates(config):
        verdict = judge_left_out(fit, judged, left_out, found.model)

    columns = begun.rows.start.columns
    return found._replace(
        model=found.model._replace(pool=make_pool(fit, judged, verdict, found.model)),
        classes=rows.classes,
        growing=keep_growing(config.method, run, columns, begun.rows.table),
        loo=left_out,
        class_prior=rows.class_prior,
        evidence_name=config.method.name_evidence(len(rows.classes)),
        calibration=None if verdict is None else verdict.held_out.how,
        estimate=None if verdict is None else verdict.estimate,
        plan=fit.plan,
    )


def leave_out(fit: ClassifierFit, judged: Judged) -> LeftOut | None:
    """Return the marginals of the rows that the run has seen, without their own labels."""
    training = judged.begun.rows
    whole = training.seen is fit.cases
    table = choose_scored(fit, judged)
    merged = training.table
    if (
        table is fit.rows.table
        and isinstance(fit.cases, Table)
        and fit.cases.place is not None
    ):
        merged = fit.cases  # equal rows were merged before the split

    return find_leave_one_out(judged.begun.run, table, merged, whole)


def choose_scored(fit: ClassifierFit, judged: Judged) -> Facts:
    """Return the table that leave-one-out scores: the user's, or the part that is seen."""
    seen = judged.begun.rows.seen
    if seen is not fit.cases and isinstance(seen, Table):  # a part, or a sample
        return seen

    return fit.rows.table


def judge_left_out(
    fit: ClassifierFit, judged: Judged, left_out: LeftOut, model: FittedModel
) -> Verdict | None:
    """Judge a model by leave-one-out; None if it cannot keep groups together."""
    known = left_out.without_lone_rows()
    if not len(known.y) or (fit.rows.table.n_groups and known.unit is None):
        return None

    of = choose_scored(fit, judged).n_rows
    held_out = hold_left_out(known, model, of)
    return judge_rows(held_out, fit.rows.class_prior)


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
    if by_table and not judging.groups and has_near_copies(rows):
        return [NEAR_COPIES]

    return []
