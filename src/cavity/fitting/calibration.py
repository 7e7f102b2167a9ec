"""Calibration after training: a temperature, or the weights of a pool with trees, from rows that the model did not see.

How these rows are found depends on the table and on `effort`:

    up to FOLD_ROWS rows       folds: more fits, each without one fold
    up to REFIT_ROWS rows      one more fit without the rows held out
    more rows                  rows are held out of the only fit
    a source, or effort="fast", or    leave-one-out from the sites; no more fits
    a table of cells

Leave-one-out keeps hyper-parameters that saw the row, so it is too confident: if it asks for w > 1, w^¾ is used. [METHOD 13]
A model of fewer rows is worse than the final one, so its w is too low on easy tables. Where more fits give a temperature, the
geometric mean of their w and of that of leave-one-out is used: the two err in opposite directions. [decision 34]
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.config import ClassifierConfig
from cavity.distributed import Local
from cavity.errors import NotPositiveDefinite
from cavity.fitting.budget import Budget, choose_members, choose_stages
from cavity.fitting.leave_one_out import LeaveOneOut
from cavity.fitting.sklearn_trees import make_forest
from cavity.fitting.twins import effective_share, find_twins, has_cells
from cavity.forest import Forest
from cavity.intake.tables import Facts, Table
from cavity.prediction.estimate import Estimate, estimate_quality
from cavity.prediction.model import FittedModel, predict_log_proba
from cavity.prediction.pool import Pool, fit_temperature, fit_weights, normalised
from cavity.splitting import choose_folds
from cavity.training.progress import log, show_progress

Array = NDArray[np.float64]
FitPart = Callable[[Table, float | None], FittedModel]  # rows, seconds

FOLD_ROWS = 2000
FOLDS = {"fast": 3, "balanced": 3, "best": 5}  # "fast": only if there are trees to pool with
FITTED_FOLDS = {"balanced": 2}  # so many of the folds give a temperature as good as all of them [decision 37]
LEAST_PARTS, HELD_MOST = 5, 4000  # at most a fifth of the rows is held out, and at most 4,000
FAILED_PART = "a fit on part of the rows could not be factorised: the calibration comes from the other rows."
LOO_EXPONENT = 0.75  # of a weight w > 1 from leave-one-out alone
TREES = 200
MOST_LEAVES = 4096
BOOSTING_WORK = (
    2e8  # rows × features × classes up to which boosting is a member: its time grows with all three
)


class Held(NamedTuple):
    """Rows with log-probabilities from models that did not see them."""

    parts: list[Array]  # of the Gaussian process, then of the members; each [n C]
    y: NDArray[np.int64]
    weight: Array

    def make_pool(self, members: tuple[Forest, ...], share: float) -> Pool:
        """Return the pool whose weights suit these rows best; `share`: how much of their weight counts as evidence."""
        weights = fit_weights(self.parts, self.y, share * self.weight)
        return Pool(float(weights[0]), members, tuple(float(w) for w in weights[1:]))

    def estimate(self, pool: Pool, prior: Array, how: str) -> Estimate:
        """Score the pool on these rows."""
        log_p = normalised(np.tensordot(np.array([pool.weight, *pool.weights]), np.stack(self.parts), 1))
        return estimate_quality(log_p, self.y, self.weight, prior, how)


class Calibrated(NamedTuple):
    """A pool, how it was found, and how good it is on the rows that it was found with."""

    pool: Pool
    how: str
    estimate: Estimate | None = None  # None: the rows are leave-one-out, or there are none
    notes: tuple[str, ...] = ()  # what a time limit left out


def make_members(ensemble: Any, seed: int, work: float = 0.0) -> list[Any]:
    """Return unfitted classifiers to pool with; `work`: rows × features × classes."""
    if ensemble is None:
        return []
    if isinstance(ensemble, str):
        from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

        forest = ExtraTreesClassifier(TREES, max_leaf_nodes=MOST_LEAVES, random_state=seed)
        boosting = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
        return [boosting, forest] if work <= BOOSTING_WORK else [forest]
    from sklearn.base import clone

    return [clone(member) for member in ensemble]


def hold_out_for_calibration(table: Table, seed: int) -> tuple[Table, Table]:
    """Split a large table into rows to train on and rows to calibrate with, a share of each class."""
    held = choose_folds(table.X, table.y, math.ceil(table.n_rows / HELD_MOST), seed) == 0
    return table.select(~held), table.select(held)


class Refits(NamedTuple):
    """Fits to parts of the rows, each without one of `k` parts."""

    k: int
    wanted: int
    members: list[Any]
    reserve: float = 0.0  # seconds that the members need at the end
    notes: tuple[str, ...] = ()


class Calibration(NamedTuple):
    """How the pool of one fit is found."""

    config: ClassifierConfig
    table: Facts
    reduce: Local
    seed: int
    fit_part: FitPart
    budget: Budget
    held: Table | None = None  # rows that the fit did not see
    held_name: str = "held out"

    def find_pool(self, model: FittedModel, loo: LeaveOneOut | None) -> Calibrated:
        """Return the pool, and how it was found; leave-one-out if time for more fits is up."""
        table = self.table
        work = table.X.size * table.n_classes if isinstance(table, Table) else 0
        members = make_members(self.config.ensemble if work else None, self.seed, work)
        if not self.config.calibrates and not members:
            return Calibrated(Pool(), "none")
        if self.held is not None:
            return self._use_held(self.held, model, members)
        notes: tuple[str, ...] = ()
        if isinstance(table, Table) and self._needs_refits(members):
            found, notes = self._refit(table, members, model, loo)
            if found is not None:
                return found
        if loo is None or not self.config.calibrates:
            return Calibrated(Pool(), "none", notes=notes)
        used = loo.sample()
        w = self._weigh_leave_one_out(used, model)
        sampled = self.reduce.world == 1 and len(used.y) < table.n_rows
        how = f"leave-one-out of {len(used.y)} rows" if sampled else "leave-one-out"
        log.info("temperature: %s", how)
        return Calibrated(Pool(w**LOO_EXPONENT if w > 1 else w), how, notes=notes)

    def _weigh_leave_one_out(self, loo: LeaveOneOut, model: FittedModel) -> float:
        if isinstance(self.table, Table):
            share = self._share_of(self.table)
        else:
            total, squares = self._add(np.array([loo.weight.sum(), np.square(loo.weight).sum()]))
            share = float(total / squares)
        return fit_temperature(loo.log_proba(model), loo.y, share * loo.weight, self._add)

    def _share_of(self, table: Table) -> float:
        return effective_share(table.weight, find_twins(table))

    def _use_held(self, held: Table, model: FittedModel, members: list[Any]) -> Calibrated:
        """Calibrate with rows that the fit did not see."""
        table, notes, left = self.table, list[str](), self.budget.left()
        forests: tuple[Forest, ...] = ()
        logs: list[Array] = []
        if members:
            assert isinstance(table, Table)
            if self.budget.limit is not None and left is not None:
                stages = self.reduce.first(partial(choose_members, members, table, left, 1.0))
                members, notes = stages.members, self._note_members(stages.left_out)
            forests, logs = fit_members(members, table, held.X)
        if not members and not self.config.calibrates:
            return Calibrated(Pool(), "none", notes=tuple(notes))
        rows = Held([predict_log_proba(model, held.X)[0], *logs], held.y, held.weight)
        found = self._calibrate(rows, forests, f"{held.n_rows} rows {self.held_name}", self._share_of(held))
        return found._replace(notes=tuple(notes))

    def _calibrate(
        self, held: Held, members: tuple[Forest, ...], how: str, share: float, loo_weight: float | None = None
    ) -> Calibrated:
        """Fit a pool to held-out rows; a temperature is averaged with that of leave-one-out, if it is given."""
        pool, totals = held.make_pool(members, share), self.table.class_totals
        if loo_weight is not None:
            pool = pool._replace(weight=math.sqrt(pool.weight * loo_weight))
        return Calibrated(pool, how, held.estimate(pool, totals / totals.sum(), how))

    def _refit(
        self, table: Table, members: list[Any], full: FittedModel, loo: LeaveOneOut | None
    ) -> tuple[Calibrated | None, tuple[str, ...]]:
        """Fit without some of the rows, and predict these; None if time is up. Also say what a time limit left out."""
        k, wanted, members, reserve, notes = self._plan_refits(table, members)
        if not self._needs_refits(members):
            return None, notes
        fold = choose_folds(table.X, table.y, k, self.seed)
        found: list[Held] = []
        folds = [i for i in range(k) if (fold == i).any()]
        for i in show_progress(folds[:wanted], "fit", self.config.verbose):
            left = self.budget.left()
            if left is not None and self.reduce.agree(left <= reserve):
                if self.budget.limit is None:
                    return None, notes
                notes = (*notes, self._note_folds(len(found), wanted))
                break
            rest, held = (table.select(m) for m in (fold != i, fold == i))
            try:
                model = self.fit_part(rest, None if left is None else left - reserve)
            except NotPositiveDefinite:
                notes = (*notes, FAILED_PART)
                continue
            logs = fit_members(members, rest, held.X)[1]
            found.append(Held([predict_log_proba(model, held.X)[0], *logs], held.y, held.weight))
        if not found:
            return None, notes
        forests, joined = fit_members(members, table, table.X[:0])[0], _join(found)
        how = f"{len(joined.y)} rows held out, then a fit on all rows"
        if wanted > 1:
            how = f"{k} folds" if len(found) == len(folds) else f"{len(found)} of {k} folds"
        w = None if members or loo is None else self._weigh_leave_one_out(loo.sample(), full)
        found_pool = self._calibrate(joined, forests, how, self._share_of(table), w)
        return found_pool._replace(notes=notes), notes

    def _plan_refits(self, table: Table, members: list[Any]) -> Refits:
        """Plan the fits to parts of the rows: all of them, or those that a time limit allows."""
        k, wanted, left = *self._count_folds(table, members), self.budget.left()
        if self.budget.limit is None or left is None:
            return Refits(k, wanted, members)
        share, spent = 1 - 1 / k, self.budget.spent()
        stages = self.reduce.first(partial(choose_stages, members, table, wanted, share, spent, left))
        notes = self._note_members(stages.left_out)
        if stages.folds < wanted:
            notes.append(self._note_folds(stages.folds, wanted))
            wanted, k = stages.folds, max(k, LEAST_PARTS)
        return Refits(k, wanted, stages.members, stages.member_seconds, tuple(notes))

    def _count_folds(self, table: Table, members: Sequence[Any]) -> tuple[int, int]:
        """Return the number of parts of the rows, and how many of them are held out of a fit. A pool needs them all."""
        if table.n_rows > FOLD_ROWS:
            return max(LEAST_PARTS, math.ceil(table.n_rows / HELD_MOST)), 1
        k = FOLDS[self.config.effort]
        return k, k if members else FITTED_FOLDS.get(self.config.effort, k)

    def _needs_refits(self, members: Sequence[Any]) -> bool:
        """Return whether more fits are of use: for a pool, or for a temperature that does not come from leave-one-out.

        Equal rows are in the same fold. A fold of a table of cells lacks whole cells, which new rows will not.
        """
        if members:
            return True
        return self.config.calibrates and self.config.effort != "fast" and not has_cells(self.table)

    def _note_members(self, names: Sequence[str]) -> list[str]:
        """Say which members a time limit left out of the pool."""
        limit = self.budget.limit
        return [f"time_limit={limit:g} left no time for {' and '.join(names)} in the pool."] if names else []

    def _note_folds(self, done: int, wanted: int) -> str:
        """Say how the calibration was shortened."""
        instead = f"{done} of {wanted} more fits" if done else "leave-one-out, without more fits"
        return f"time_limit={self.budget.limit:g}: the calibration comes from {instead}."

    def _add(self, sums: Array) -> Array:
        """Sum over the ranks."""
        return np.asarray(np.sum(self.reduce.gather(sums), axis=0))


def fit_members(members: Sequence[Any], table: Table, X: Array) -> tuple[tuple[Forest, ...], list[Array]]:
    """Fit the members to a table; return them as arrays, and their log-probabilities at X."""
    from sklearn.base import clone

    forests = []
    for member in members:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forests.append(make_forest(clone(member).fit(table.X, table.y, table.weight)))
    return tuple(forests), [forest.log_proba(X) for forest in forests]


def _join(found: list[Held]) -> Held:
    parts = [np.concatenate(column) for column in zip(*(h.parts for h in found), strict=True)]
    return Held(parts, np.concatenate([h.y for h in found]), np.concatenate([h.weight for h in found]))
