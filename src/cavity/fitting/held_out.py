"""Which rows judge a classifier, and which the Gaussian process sees: the rows of a
fit, split by its plan.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cavity.common.column_statistics import hash_column
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput
from cavity.fitting.options import policy
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import CalibrationPlan, Plan, TableSize
from cavity.fitting.options.time_estimate import count_rows_in, fits_in
from cavity.fitting.request import Request
from cavity.tables.labelled import LabelledTable
from cavity.tables.labels import check_labels
from cavity.tables.pieces import DROPPED, JUDGES, TRAINS, Apart
from cavity.tables.repeats import find_units, has_cells
from cavity.tables.splitting import choose_folds, number_units
from cavity.tables.table import Facts, Streamed, Table

MOST_COPIES = 2**53  # above, whole numbers have no remainder
# over the rows that the Gaussian process sees, within the seconds of training
PASSES = 8


class Split(NamedTuple):
    """The rows of a fit: those to train on, and those to judge by."""

    given: LabelledTable  # as the user gave them
    table: Facts  # equal rows as one, unless they are different cases
    rest: Facts  # the part to train on before held-out rows are added
    held: Table | None = None  # rows that judge the model


def find_cases(request: Request[ClassifierConfig], table: Facts) -> Facts:
    """Return the cases to train and judge by: method="auto" takes equal rows of equal
    labels as one, unless they are cells.

    If every case then weighs a multiple of g, the table is g copies of a smaller one,
    which is taken.
    """
    if (
        not request.config.method.recommended
        or not isinstance(table, Table)
        or has_cells(table)
    ):
        return table
    merged = table.merge()
    whole = (merged.weight % 1 == 0).all() and merged.heaviest < MOST_COPIES
    g = 1
    if whole:
        g = np.gcd.reduce(merged.weight.astype(np.int64))
    return replace(merged, weight=merged.weight / g)


def choose_apart(request: Request[ClassifierConfig], source: Any) -> Apart | None:
    """Choose groups of a source that judge its model: a fifth or fewer, whose rows do
    not come back to train it.

    Only labels and groups are read. None: there are no groups, or nothing to judge.
    """
    needed = request.raw.eval_set is None and policy.calibrates(request.config)
    if getattr(source, "group", None) is None or not needed:
        return None
    words = [
        (hash_column(check_labels(y, len(y))), hash_column(group))
        for y, group in source.read_groups()
    ]
    y, group = map(np.concatenate, zip(*words, strict=True))
    n_groups = len(np.unique(group))
    label = np.unique(y, return_inverse=True)[1].reshape(-1)
    wanted = min(math.ceil(len(y) / policy.HELD_MOST), n_groups // policy.LEAST_GROUPS)
    # groups per class
    each = np.bincount(label[np.unique(group, return_index=True)[1]])
    parts = max(2, min(max(policy.LEAST_PARTS, wanted), int(each.max())))
    out = (
        choose_folds(
            y[:, None], label, parts, request.seed, group=group, stratified=True
        )
        == 0
    )
    if not out.any():
        raise BadInput(
            f"groups names {n_groups} group{'s' * (n_groups > 1)}, too few for one to "
            f"judge the model and others of its classes to "
            "train it: give eval_set=(X_val, y_val), or leave groups= out."
        )
    role = np.where(out, JUDGES, TRAINS).astype(np.int8)
    rows = np.random.default_rng(request.seed).permutation(np.flatnonzero(out))
    role[rows[policy.HELD_MOST :]] = DROPPED
    return Apart(
        role,
        np.unique(group[role == JUDGES], return_inverse=True)[1].reshape(-1),
        n_groups,
    )


def plan_judging(
    request: Request[ClassifierConfig], rows: LabelledTable, table: Facts
) -> CalibrationPlan:
    """Plan which rows judge the model, folds only if they fit into a time limit, and
    what is pooled with it.
    """
    config = request.config
    size = TableSize.of(table, rows.features.n)
    given = {
        "in_memory": isinstance(table, Table),
        "eval_set": request.raw.eval_set is not None,
    }
    most = None
    if isinstance(table, Table):
        most = int(np.bincount(table.y).max())
    plan_rows = partial(
        policy.plan_calibration,
        config,
        size,
        groups=table.n_groups,
        most_of_a_class=most,
    )
    plan = plan_rows(**given)
    limit = request.clock.limit
    if isinstance(table, Streamed) and table.apart is not None:
        plan = replace(plan, parts=round(1 / (table.apart.role != TRAINS).mean()))
    if plan.how != "folds" or (limit is None and config.max_seconds is None):
        return plan
    training = policy.plan_training(config, size, policy.count_points(config, size))
    whole = Plan(training=training, calibration=plan)
    if limit is not None and request.reduce.first(lambda: fits_in(whole, limit / 2)):
        return plan
    return plan_rows(**given, short=True)


def split_rows(
    request: Request[ClassifierConfig],
    rows: LabelledTable,
    table: Facts,
    plan: CalibrationPlan,
) -> tuple[Split, CalibrationPlan]:
    """Split off rows that judge the model, or take those of eval_set or set apart;
    leave-one-out judges if every row is needed.
    """
    if rows.held is not None:
        return Split(rows, table, table, rows.held), plan
    if plan.how == "part" and isinstance(table, Table):
        out = number_folds(table, plan, request.seed) == 0
        if out.any():
            return Split(rows, table, table.select(~out), table.select(out)), plan
        plan = replace(plan, how="leave-one-out", parts=0)
    return Split(rows, table, table), plan


def number_folds(table: Table, plan: CalibrationPlan, seed: int) -> Ints:
    """Return the fold of each row; rows that belong together stay together, those of a
    table of cells are different cases.
    """
    unit = find_units(table)
    if unit is None:
        if has_cells(table):
            unit = number_units(_number_rows(table))
        else:
            unit = table.kind
    return choose_folds(
        table.X, table.y, plan.parts, seed, group=unit, stratified=plan.how == "part"
    )


def _number_rows(table: Table) -> Floats:
    return np.arange(float(table.n_rows))[:, None]


def number_cases(table: Table) -> Ints:
    """Return the same number for rows that belong together."""
    found = find_units(table)
    if found is None:
        return np.arange(table.n_rows)
    return found


def choose_seen(request: Request[ClassifierConfig], rest: Facts, columns: int) -> Facts:
    """Return the rows that the Gaussian process sees: all, or a sample that the work of
    the effort, or the time, allows.
    """
    config = request.config
    clock = request.clock
    if not isinstance(rest, Table) or not config.method.recommended:
        return rest
    size = TableSize.of(rest, columns)
    most = policy.count_seen(config, size)
    if clock.limit is not None and config.max_seconds is not None:
        training = policy.plan_training(config, size, policy.count_points(config, size))
        left = config.max_seconds - clock.spent()
        most = min(
            most,
            request.reduce.first(
                lambda: count_rows_in(training, max(left, 0.1) / PASSES)
            ),
        )
    if most >= rest.n_rows:
        return rest
    parts = max(2, math.ceil(rest.n_rows / most))
    return rest.select(
        choose_folds(_number_rows(rest), rest.y, parts, request.seed, stratified=True)
        <= 0
    )
