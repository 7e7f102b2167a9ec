"""The cases of a fit: which rows count as one, and which stay together."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from cavity.common.column_statistics import hash_column
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput
from cavity.fitting.options.configuration import ClassifierConfig
from cavity.fitting.options.plan import JudgingPlan, TableSize
from cavity.fitting.options.policy.judging import (
    HELD_MOST,
    Cases,
    calibrates,
    count_group_parts,
)
from cavity.fitting.options.policy.work import merges_equal_rows
from cavity.fitting.request import Request
from cavity.tables.labels import check_labels
from cavity.tables.pieces import DROPPED, JUDGES, TRAINS, Apart
from cavity.tables.repeats import divide_copies, find_units
from cavity.tables.splitting import choose_folds, number_units
from cavity.tables.table import Facts, Table


def find_cases(config: ClassifierConfig, table: Facts) -> Facts:
    """Return the cases to train and judge by: equal rows of equal labels count as one.

    Rows of a table of cells stay apart, and so do the rows of a named method. If every
    case then weighs a multiple of g, the table is g copies of a smaller one.
    """
    if not merges_equal_rows(config):
        return table
    if not isinstance(table, Table) or table.cells:
        return table

    merged = table.merge()
    return replace(merged, weight=divide_copies(merged.weight))


def count_cases(
    request: Request[ClassifierConfig], cases: Facts, columns: int
) -> Cases:
    """Return what decides which rows judge the model."""
    most = None
    if isinstance(cases, Table):
        most = int(np.bincount(cases.y).max())
    return Cases(
        size=TableSize.of(cases, columns),
        in_memory=isinstance(cases, Table),
        eval_set=request.raw.eval_set is not None,
        groups=cases.n_groups,
        most_of_a_class=most,
    )


def choose_apart(
    request: Request[ClassifierConfig], source: Any, most: int = HELD_MOST
) -> Apart | None:
    """Choose the groups of a source that judge its model: at most a fifth.

    At most `most` of their rows judge; none of them trains. Only labels and groups are
    read. None: there are no groups, or nothing to judge.
    """
    needed = request.raw.eval_set is None and calibrates(request.config)
    if getattr(source, "group", None) is None or not needed:
        return None

    words = [
        (hash_column(check_labels(y, len(y))), hash_column(group))
        for y, group in source.read_groups()
    ]
    y, group = map(np.concatenate, zip(*words, strict=True))
    n_groups = len(np.unique(group))
    label = np.unique(y, return_inverse=True)[1].reshape(-1)
    first = np.unique(group, return_index=True)[1]
    groups_per_class = np.bincount(label[first])
    wanted = count_group_parts(len(y), n_groups, most)
    parts = max(2, min(wanted, int(groups_per_class.max())))
    part = choose_folds(
        y[:, None], label, parts, request.seed, group=group, stratified=True
    )
    out = part == 0
    if not out.any():
        raise BadInput(
            f"groups names {n_groups} group{'s' * (n_groups > 1)}, too few to judge the "
            "model by one and train it on others with the same classes: give "
            "eval_set=(X_val, y_val), or leave groups= out."
        )

    role = np.where(out, JUDGES, TRAINS).astype(np.int8)
    rows = np.random.default_rng(request.seed).permutation(np.flatnonzero(out))
    role[rows[most:]] = DROPPED
    _, number = np.unique(group[role == JUDGES], return_inverse=True)
    return Apart(role, number.reshape(-1), n_groups)


def number_folds(table: Table, plan: JudgingPlan, seed: int) -> Ints:
    """Return the fold of each row; rows that belong together stay together."""
    unit = find_units(table)
    if unit is None and table.cells:  # each row is a case
        unit = number_units(_number_rows(table))
    elif unit is None:
        unit = table.kind

    return choose_folds(
        table.X, table.y, plan.parts, seed, group=unit, stratified=plan.how == "part"
    )


def _number_rows(table: Table) -> Floats:
    return np.arange(float(table.n_rows))[:, None]


def number_cases(table: Table) -> Ints:
    """Number the cases: rows that belong together have the same number."""
    found = find_units(table)
    if found is None:
        return np.arange(table.n_rows)

    return found


def draw_cases(table: Table, most: int, seed: int) -> Table:
    """Draw at most so many rows, each class by its share."""
    if most >= table.n_rows:
        return table

    parts = max(2, math.ceil(table.n_rows / most))
    part = choose_folds(_number_rows(table), table.y, parts, seed, stratified=True)
    return table.select(part <= 0)
