"""The seconds of a fit, divided among its stages: training, more fits for the calibration, members of a pool."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.fitting.sklearn_trees import limit_cells
from cavity.options.policy import LEAST_SHARE, PROBE_ROWS, SPENT_BEFORE_END
from cavity.options.value_checks import number
from cavity.rows.tables import Table


class Budget(NamedTuple):
    """When a fit began, and how many seconds it has."""

    begun: float
    limit: float | None = None  # time_limit: of the whole fit
    training: float | None = None  # max_seconds: of training, as the user gave it

    def spent(self) -> float:
        return time.perf_counter() - self.begun

    def left(self) -> float | None:
        """Return the seconds that later stages have; None without a limit."""
        if self.limit is not None:
            return SPENT_BEFORE_END * self.limit - self.spent()
        return None if self.training is None else self.training - self.spent()


def read_limit(value: Any) -> float | None:
    return None if value is None else number("time_limit", value, 0.0)


class Stages(NamedTuple):
    """Which stages fit into the time that is left."""

    folds: int  # fits to parts of the rows
    members: list[Any]
    member_seconds: float  # of all members, fitted to the whole table
    left_out: tuple[str, ...]  # names of members


def choose_members(members: Sequence[Any], table: Table, seconds: float, fits: float) -> Stages:
    """Choose the members of a pool that can be fitted `fits` times within the seconds, in their order."""
    kept: list[Any] = []
    left_out, total = [], 0.0
    for member in members:
        cost = predict_seconds(member, table, seconds - fits * total)
        if fits * (total + cost) <= seconds:
            kept.append(member)
            total += cost
        else:
            left_out.append(type(member).__name__)
    return Stages(0, kept, total, tuple(left_out))


def predict_seconds(member: Any, table: Table, seconds: float) -> float:
    """Predict the seconds of a fit from one to a few rows; infinite if no time is left to find out."""
    from sklearn.base import clone

    if seconds <= 0:
        return float("inf")
    n = min(PROBE_ROWS, table.n_rows)
    rows = np.linspace(0, table.n_rows - 1, n).astype(np.int64)
    if len(np.unique(table.y[rows])) < 2:
        rows = np.concatenate([np.flatnonzero(table.y == label)[:n] for label in range(table.n_classes)])
    begun = time.perf_counter()
    clone(member).fit(limit_cells(table.X[rows]), table.y[rows])
    return (time.perf_counter() - begun) * table.n_rows / len(rows)


def choose_stages(
    members: Sequence[Any], table: Table, folds: int, share: float, first: float, seconds: float
) -> Stages:
    """Choose members and folds for the seconds; `share`: of the rows in a fold, `first`: seconds of the fit to all rows."""
    found = choose_members(members, table, seconds - LEAST_SHARE * first, 2.0)
    each = share * (first + found.member_seconds)
    rest = seconds - found.member_seconds
    if folds * each <= rest:
        return found._replace(folds=folds)
    enough = rest - found.member_seconds >= LEAST_SHARE * first
    return found._replace(folds=min(folds, 1) if enough else 0)
