"""Calibration after training: a temperature, or the weights of a pool with trees, from rows that the model did not see.

How these rows are found depends on the table and on `effort`:

    up to FOLD_ROWS rows       k folds: k more fits, each without one fold
    up to REFIT_ROWS rows      one more fit without the rows held out
    more rows                  rows are held out of the only fit
    a source, or effort="fast"        leave-one-out from the sites; no more fits

Leave-one-out keeps hyper-parameters that saw the row, so it is too confident: if it asks for w > 1, √w is used. [METHOD 13]
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone

from cavity.columns import distinct_rows
from cavity.config import ClassifierConfig
from cavity.distributed import Local
from cavity.forest import Forest, make_forest
from cavity.inducing import CANDIDATES
from cavity.inference import Coupled
from cavity.inference.leave_one_out import leave_one_out
from cavity.intake.tables import Facts, Table
from cavity.posterior import Normal
from cavity.prediction.estimate import Estimate, estimate_quality
from cavity.prediction.model import FittedModel, log_probabilities, predict_log_proba
from cavity.prediction.pool import Pool, fit_weights, normalised
from cavity.training.loop import Run
from cavity.training.progress import show_progress

Array = NDArray[np.float64]
FitPart = Callable[[Table, float | None], FittedModel]  # rows, seconds

FOLD_ROWS = 2000
FOLDS = {"fast": 3, "balanced": 3, "best": 5}  # "fast": only if there are trees to pool with
LEAST_PARTS, HELD_MOST = 5, 4000  # at most a fifth of the rows is held out, and at most 4,000
SAMPLE = 50_000  # rows that a temperature from leave-one-out is fitted to
KEPT = 1 << 24  # most numbers of leave-one-out marginals that an estimator keeps
TREES = 200
MOST_LEAVES = 4096
BOOSTING_WORK = (
    2e8  # rows × features × classes up to which boosting is a member: its time grows with all three
)


class LeaveOneOut(NamedTuple):
    """Marginals of f at training rows without their own labels."""

    f: Normal  # [n C]
    y: NDArray[np.int64]
    weight: Array
    complete: bool  # every row is there, in order

    def log_proba(self, model: FittedModel) -> Array:
        """Return leave-one-out log-probabilities under the model, before any temperature."""
        f = Normal(self.f.mean.to(model.device), self.f.var.to(model.device))
        return np.asarray(log_probabilities(model, f).numpy())


class Held(NamedTuple):
    """Rows with log-probabilities from models that did not see them."""

    parts: list[Array]  # of the Gaussian process, then of the members; each [n C]
    y: NDArray[np.int64]
    weight: Array

    def make_pool(self, members: tuple[Forest, ...]) -> Pool:
        """Return the pool whose weights suit these rows best."""
        weights = fit_weights(self.parts, self.y, self.weight)
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


def find_leave_one_out(run: Run, table: Facts, every_row: bool) -> LeaveOneOut | None:
    """Return leave-one-out marginals: of all rows of a table in memory, otherwise of a sample. None if q couples classes.

    `every_row`: no row of the table is held out.
    """
    if isinstance(run.engine, Coupled):
        return None
    n = run.rows.n_rows
    whole = isinstance(table, Table) and run.reduce.world == 1 and n * table.n_classes <= KEPT
    step = 1 if whole else max(1, math.ceil(n * run.reduce.world / SAMPLE))
    found = []
    for batch, f in leave_one_out(run.engine, run.state, run.whole, step):
        found.append([x.cpu() for x in (f.mean, f.var, batch.y, batch.weight)])
    mean, var, y, weight = (torch.cat(column) for column in zip(*found, strict=True))
    return LeaveOneOut(Normal(mean, var), y.long().numpy(), weight.double().numpy(), whole and every_row)


def make_members(ensemble: Any, seed: int, work: float = 0.0) -> list[Any]:
    """Return unfitted classifiers to pool with; `work`: rows × features × classes."""
    if ensemble is None:
        return []
    if isinstance(ensemble, str):
        from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

        forest = ExtraTreesClassifier(TREES, max_leaf_nodes=MOST_LEAVES, random_state=seed)
        boosting = HistGradientBoostingClassifier(early_stopping=False, random_state=seed)
        return [boosting, forest] if work <= BOOSTING_WORK else [forest]
    return [clone(member) for member in ensemble]


def hold_out_for_calibration(table: Table, seed: int) -> tuple[Table, Table]:
    """Split a large table into rows to train on and rows to calibrate with, a share of each class."""
    held = choose_folds(table, math.ceil(table.n_rows / HELD_MOST), seed) == 0
    return _rows(table, ~held), _rows(table, held)


def choose_folds(table: Table, k: int, seed: int) -> NDArray[np.int64]:
    """Return a fold for each row, or −1 for a row that every fit needs: the last of its class.

    Equal rows are in the same fold, and neither their order nor their number matters.
    """
    X = table.X
    place = distinct_rows(X)[1] if len(X) <= CANDIDATES else np.arange(len(X))
    first = np.unique(place, return_index=True)[1]
    rng, fold = np.random.default_rng(seed), np.full(len(first), -1)
    for label in range(table.n_classes):
        rows = rng.permutation(np.flatnonzero(table.y[first] == label))
        if len(rows) > 1:
            fold[rows] = (np.arange(len(rows)) + rng.integers(k)) % k
    return np.asarray(fold[place])


class Calibration(NamedTuple):
    """How the pool of one fit is found."""

    config: ClassifierConfig
    table: Facts
    reduce: Local
    seed: int
    fit_part: FitPart
    begun: float
    held: Table | None = None  # rows held out of the fit itself

    def find_pool(self, model: FittedModel, loo: LeaveOneOut | None) -> Calibrated:
        """Return the pool, and how it was found; leave-one-out if time for more fits is up."""
        table = self.table
        work = table.X.size * table.n_classes if isinstance(table, Table) else 0
        members = make_members(self.config.ensemble, self.seed, work)
        if not self.config.calibrates and not members:
            return Calibrated(Pool(), "none")
        if self.held is not None:
            assert isinstance(table, Table)
            forests, logs = _fit_members(members, table, self.held.X)
            parts = [predict_log_proba(model, self.held.X)[0], *logs]
            held = Held(parts, self.held.y, self.held.weight)
            return self._calibrate(held, forests, f"{self.held.n_rows} rows held out")
        if isinstance(table, Table) and (self.config.effort != "fast" or members):
            found = self._refit(table, members)
            if found is not None:
                return found
        if loo is None or not self.config.calibrates:
            return Calibrated(Pool(), "none")
        w = float(fit_weights([loo.log_proba(model)], loo.y, loo.weight, self._add)[0])
        return Calibrated(Pool(math.sqrt(w) if w > 1 else w), "leave-one-out")

    def _calibrate(self, held: Held, members: tuple[Forest, ...], how: str) -> Calibrated:
        pool, totals = held.make_pool(members), self.table.class_totals
        return Calibrated(pool, how, held.estimate(pool, totals / totals.sum(), how))

    def _refit(self, table: Table, members: list[Any]) -> Calibrated | None:
        """Fit without some of the rows, and predict these; None if time is up."""
        small = table.n_rows <= FOLD_ROWS
        k = FOLDS[self.config.effort] if small else max(LEAST_PARTS, math.ceil(table.n_rows / HELD_MOST))
        fold = choose_folds(table, k, self.seed)
        folds = [i for i in range(k if small else 1) if (fold == i).any()]
        found = []
        for i in show_progress(folds, "fit", self.config.verbose):
            left = self._seconds_left()
            if left is not None and self.reduce.agree(left <= 0):
                return None
            rest, held = (_rows(table, m) for m in (fold != i, fold == i))
            model = self.fit_part(rest, left)
            logs = _fit_members(members, rest, held.X)[1]
            found.append(Held([predict_log_proba(model, held.X)[0], *logs], held.y, held.weight))
        if not found:
            return None
        forests = _fit_members(members, table, table.X[:0])[0]
        how = f"{k} folds" if small else f"{len(found[0].y)} rows held out, then a fit on all rows"
        return self._calibrate(_join(found), forests, how)

    def _add(self, sums: Array) -> Array:
        """Sum over the ranks."""
        return np.asarray(np.sum(self.reduce.gather(sums), axis=0))

    def _seconds_left(self) -> float | None:
        limit = self.config.max_seconds
        return None if limit is None else limit - (time.perf_counter() - self.begun)


def _fit_members(members: Sequence[Any], table: Table, X: Array) -> tuple[tuple[Forest, ...], list[Array]]:
    """Fit the members to a table; return them as arrays, and their log-probabilities at X."""
    forests = []
    for member in members:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forests.append(make_forest(clone(member).fit(table.X, table.y, table.weight)))
    return tuple(forests), [forest.log_proba(X) for forest in forests]


def _rows(table: Table, keep: NDArray[np.bool_]) -> Table:
    return Table(table.X[keep], table.y[keep], table.weight[keep], table.n_classes)


def _join(found: list[Held]) -> Held:
    parts = [np.concatenate(column) for column in zip(*(h.parts for h in found), strict=True)]
    return Held(parts, np.concatenate([h.y for h in found]), np.concatenate([h.weight for h in found]))
