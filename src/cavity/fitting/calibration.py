"""Calibration after training: a temperature, or the weights of a pool with trees, from rows that the model did not see.

The plan says how these rows are found (`options/policy.py` decides it by the table and `effort`):

    "folds"            fits without one part of the rows; small tables, with effort="best" up to 2,000 rows, learn all again
    "held out"         rows are held out of the only fit
    "eval_set"         rows that the user gave
    "leave-one-out"    from the sites; no more fits

What a time limit leaves out is decided here, from measured seconds.

Leave-one-out keeps hyper-parameters that saw the row, so it is too confident: if it asks for w > 1, w^¾ is used. [METHOD 13]
A part of the rows may lack the errors that decide where a class is rare: weights then sum to at most what leave-one-out says. [57]
Folds at the learnt hyper-parameters have fewer rows to predict from, which makes up for that. [decision 39]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.distributed import Local
from cavity.errors import NotPositiveDefinite
from cavity.fitting.leave_one_out import LeaveOneOut, effective_share, find_twins, has_cells
from cavity.fitting.members import Fitted, FoldMembers, TreesBeside, deepen, fit_member, make_member
from cavity.fitting.sklearn_trees import choose_columns
from cavity.fitting.time_budget import Budget, choose_members, choose_stages
from cavity.options import policy
from cavity.options.plan import CalibrationPlan
from cavity.prediction.estimate import Estimate, Rows, estimate_quality
from cavity.prediction.model import FittedModel, as_array, as_tensor, log_probabilities, predict_latent
from cavity.prediction.pool import Gate, Member, Pool, fit_temperature, fit_weights, normalised
from cavity.prediction.tree_ensembles import LEAST
from cavity.rows.splitting import choose_folds
from cavity.rows.tables import Facts, Table
from cavity.training.progress import announce, log, show_progress

Array = NDArray[np.float64]
FitPart = Callable[[Table, float | None], FittedModel]  # rows, seconds

FAILED_PART = "a fit on part of the rows could not be factorised: the calibration comes from the other rows."


class Held(NamedTuple):
    """Rows with log-probabilities from models that did not see them."""

    parts: dict[int, Array]  # each [n C]; 0: the Gaussian process, j: the j-th member
    y: NDArray[np.int64]
    weight: Array
    rows: NDArray[np.int64]  # their places in the table
    var: Array  # [n C], of the latent functions

    def insert(self, drawn: dict[int, Any]) -> Held:
        """Return the rows with the predictions of forests, each row by the trees that did not draw it."""
        parts = dict(self.parts)
        for j, forest in drawn.items():
            p = forest.oob_decision_function_[self.rows]
            floor = np.maximum(np.nan_to_num(p, nan=1 / p.shape[1]), LEAST)
            parts[j] = np.log(floor / floor.sum(1, keepdims=True))
        return self._replace(parts=parts)

    def weigh(self, share: float, count: int) -> Array:
        """Return the weight of each of `count` parts, 0 for those that are not there; `share`: of the rows' weight that counts."""
        places, found = sorted(self.parts), np.zeros(count)
        found[places] = fit_weights([self.parts[j] for j in places], self.y, share * self.weight)
        return found


class Calibrated(NamedTuple):
    """A pool, how it was found, and how good it is on the rows that it was found with."""

    pool: Pool
    how: str
    estimate: Estimate | None = None  # None: there are no such rows, or they are on several ranks
    notes: tuple[str, ...] = ()  # what a time limit left out


def hold_out_for_calibration(table: Table, seed: int) -> tuple[Table, Table]:
    """Split a large table into rows to train on and rows to calibrate with, a share of each class."""
    held = split_rows(table, policy.count_held_parts(table.n_rows), seed) == 0
    return table.select(~held), table.select(held)


def split_rows(table: Table, k: int, seed: int) -> NDArray[np.int64]:
    """Return the fold of each row; equal ones stay together, except in a table of cells, where they are different cases."""
    rows = np.arange(float(table.n_rows))[:, None] if has_cells(table) else table.X
    return choose_folds(rows, table.y, k, seed)


class Folds(NamedTuple):
    """Fits to parts of the rows, each without one of `k` parts."""

    k: int
    wanted: int
    members: list[Any]
    reserve: float = 0.0  # seconds that the members need at the end
    notes: tuple[str, ...] = ()


class Calibration(NamedTuple):
    """How the pool of one fit is found."""

    plan: CalibrationPlan
    members: list[Any]  # unfitted classifiers to pool with
    table: Facts
    reduce: Local
    seed: int
    fit_part: FitPart
    budget: Budget
    verbose: int = 0
    gate: Gate | None = None
    held: Table | None = None  # rows that the fit did not see
    held_name: str = "held out"
    beside: TreesBeside | None = None  # the members' fits to all rows, if they began with the training

    def find_pool(self, model: FittedModel, loo: LeaveOneOut | None) -> Calibrated:
        """Return the pool, and how it was found; leave-one-out if time for more fits is up."""
        if self.held is not None:
            return self._use_held(self.held, model)
        notes: tuple[str, ...] = ()
        if self.plan.how == "folds":
            assert isinstance(self.table, Table)
            found, notes = self._use_folds(self.table, model, loo)
            if found is not None:
                return found
        if loo is None or not self.plan.temperature:
            return Calibrated(Pool(), "none", notes=notes)
        used = loo.sample()
        log_p = used.log_proba(model)
        pool = Pool(self._weigh_leave_one_out(used, log_p))
        alone = self.reduce.world == 1
        sampled = alone and len(used.y) < self.table.n_rows
        how = f"leave-one-out of {len(used.y)} rows" if sampled else "leave-one-out"
        log.info("temperature: %s", how)
        scaled = normalised(pool.weight * log_p)
        quality = used.estimate(model, scaled, self._class_prior, how, self.table.n_rows) if alone else None
        return Calibrated(pool, how, quality, notes)

    @property
    def _class_prior(self) -> Array:
        """Return the share of each class in the weight of the training rows."""
        return np.asarray(self.table.class_totals / self.table.class_totals.sum())

    def _weigh_leave_one_out(self, loo: LeaveOneOut, log_p: Array) -> float:
        if isinstance(self.table, Table):
            share = self._share_of(self.table)
        else:
            total, squares = self._add(np.array([loo.weight.sum(), np.square(loo.weight).sum()]))
            share = float(total / squares)
        w = fit_temperature(log_p, loo.y, share * loo.weight, self._add)
        return w**policy.LOO_EXPONENT if w > 1 else w

    def _share_of(self, table: Table) -> float:
        return effective_share(table.weight, find_twins(table))

    def _use_held(self, held: Table, model: FittedModel) -> Calibrated:
        """Calibrate with rows that the fit did not see."""
        table, members, notes, left = self.table, self.members, list[str](), self.budget.left()
        forests: tuple[Member, ...] = ()
        logs: dict[int, Array] = {}
        if members:
            assert isinstance(table, Table)
            if self.budget.limit is not None and left is not None and self.beside is None:
                stages = self.reduce.first(partial(choose_members, members, table, left, 1.0))
                members, notes = stages.members, self._note_members(stages.left_out)
            fitted, columns = self._fit_all(members, table)
            late = [type(member).__name__ for member in members[len(fitted) :]]
            members, notes = members[: len(fitted)], notes + self._note_members(late)
            forests = tuple(make_member(model, columns) for model in fitted)
            logs = {j: forest.log_proba(held.X) for j, forest in enumerate(forests, 1)}
        if not members and not self.plan.temperature:
            return Calibrated(Pool(), "none", notes=tuple(notes))
        rows = self._predict(model, held, np.arange(held.n_rows), logs)
        found = self._calibrate(rows, forests, f"{held.n_rows} rows {self.held_name}", self._share_of(held))
        return found._replace(notes=tuple(notes))

    def _fit_all(self, members: Sequence[Any], table: Table) -> Fitted:
        """Fit the members of the pool to all rows, or wait for those that began with the training."""
        if self.beside is not None:
            return self.beside.wait(None if self.budget.limit is None else self.budget.left())
        columns = choose_columns(table.X, members)
        members = deepen(members, table, columns, self.held if self.plan.trees else None)
        if members:
            announce(f"  pool: {', '.join(type(member).__name__ for member in members)}", self.verbose)
        shown = show_progress(members, "pool", "member", self.verbose)
        return Fitted([fit_member(member, table, columns) for member in shown], columns)

    def _calibrate(
        self,
        held: Held,
        members: tuple[Member, ...],
        how: str,
        share: float,
        kind: Rows = "held out",
        most: float = math.inf,
    ) -> Calibrated:
        """Fit a pool to held-out rows, and score it on them.

        `share`: how much of their weight counts as evidence; `most`: the largest sum of the pool's weights.
        """
        found = held.weigh(share, 1 + len(members))
        own, *weights = (found * min(1.0, most / max(found.sum(), 1e-300))).tolist()
        kept = (member if w else member.emptied() for member, w in zip(members, weights, strict=True))
        pool = Pool(own, tuple(kept), tuple(weights), self.gate if members else None)
        logs = [partial(held.parts.__getitem__, j) for j in range(1, 1 + len(members))]
        log_p = normalised(pool.add_members(held.parts[0], held.var, logs))
        rows = self.table.n_rows
        return Calibrated(
            pool, how, estimate_quality(log_p, held.y, held.weight, self._class_prior, how, kind, rows)
        )

    def _limit_weights(self, table: Table, held: Held, model: FittedModel, loo: LeaveOneOut | None) -> float:
        """Return what leave-one-out says if a class is rare and only some rows were held out: no error there may be luck."""
        if 2 * len(held.y) >= table.n_rows or np.bincount(table.y).min() >= policy.RARE_ROWS or loo is None:
            return math.inf
        used = loo.sample()
        return self._weigh_leave_one_out(used, used.log_proba(model))

    def _use_folds(
        self, table: Table, model: FittedModel, loo: LeaveOneOut | None
    ) -> tuple[Calibrated | None, tuple[str, ...]]:
        """Fit without some of the rows, and predict these; None if time is up. Also say what a time limit left out."""
        k, wanted, members, reserve, notes = self._choose_folds(table)
        if not members and not self.plan.refits:
            return None, notes
        fold = split_rows(table, k, self.seed)
        team, share = FoldMembers(members, table), self._share_of(table)
        found: list[Held] = []
        folds = [i for i in range(k) if (fold == i).any()]
        announce(f"  calibration: {wanted} more fits, each without 1 of {k} parts of the rows", self.verbose)
        for i in show_progress(folds[:wanted], "calibration", "fit", self.verbose):
            left = self.budget.left()
            if left is not None and self.reduce.agree(left <= reserve):
                if self.budget.limit is None:
                    return None, notes
                notes = (*notes, self._note_folds(len(found), wanted))
                break
            rest, held = (table.select(m) for m in (fold != i, fold == i))
            try:
                part = self.fit_part(rest, None if left is None else left - reserve)
            except NotPositiveDefinite:
                notes = (*notes, FAILED_PART)
                continue
            logs = team.predict(rest, held.X)
            found.append(self._predict(part, held, np.flatnonzero(fold == i), logs))
            lasts = wanted > 1 or self.plan.networks > 0  # what does not count saves more fits
            if len(found) == 1 and lasts and self.plan.selects and self.beside is None:
                team.select(found[0].weigh(share, 1 + len(members)))
        if not found:
            return None, notes
        joined, used = _join(found), team.own | team.folded
        models = self._fit_all([used[j] for j in sorted(used)], table).models
        fitted = dict(zip(sorted(used), models, strict=True))
        calibrated = self._calibrate(
            joined.insert({j: fitted[j] for j in team.own}),
            team.make_forests(fitted),
            self._describe(joined, len(found), k, wanted),
            share,
            "folds" if self.plan.relearns else "seen",
            math.inf if self.plan.relearns else self._limit_weights(table, joined, model, loo),
        )
        return calibrated._replace(notes=notes), notes

    def _predict(
        self, model: FittedModel, held: Table, rows: NDArray[np.int64], logs: dict[int, Array]
    ) -> Held:
        """Predict rows that a model did not see; `logs`: what the members predict."""
        f = predict_latent(model, as_tensor(held.X))
        parts = {0: log_probabilities(model, f)} | logs
        return Held(parts, held.y, held.weight, rows, as_array(f.var))

    def _describe(self, held: Held, done: int, k: int, wanted: int) -> str:
        """Say where the held-out rows come from."""
        known = "" if self.plan.relearns else " at the learnt hyper-parameters"
        if wanted == 1:
            return f"{len(held.y)} rows held out{known}, then a fit on all rows"
        return (f"{k} folds" if done == k else f"{done} of {k} folds") + known

    def _choose_folds(self, table: Table) -> Folds:
        """Return the planned fits to parts of the rows, or those that a time limit allows."""
        k, wanted, left = self.plan.parts, self.plan.fits, self.budget.left()
        if self.budget.limit is None or left is None:
            return Folds(k, wanted, self.members)
        first = self.budget.spent() * (1.0 if self.plan.relearns else policy.FIXED_SHARE)
        stages = self.reduce.first(
            partial(choose_stages, self.members, table, wanted, 1 - 1 / k, first, left)
        )
        notes = self._note_members(stages.left_out)
        if stages.folds < wanted:
            notes.append(self._note_folds(stages.folds, wanted))
            wanted, k = stages.folds, max(k, policy.LEAST_PARTS)
        return Folds(k, wanted, stages.members, stages.member_seconds, tuple(notes))

    def _note_members(self, names: Sequence[str]) -> list[str]:
        """Say which members a time limit left out of the pool."""
        if not names:
            return []
        *others, last = names
        listed = f"{', '.join(others)} and {last}" if others else last
        return [f"time_limit={self.budget.limit:g} left no time for {listed} in the pool."]

    def _note_folds(self, done: int, wanted: int) -> str:
        """Say how the calibration was shortened."""
        instead = f"{done} of {wanted} more fits" if done else "leave-one-out, without more fits"
        return f"time_limit={self.budget.limit:g}: the calibration comes from {instead}."

    def _add(self, sums: Array) -> Array:
        """Sum over the ranks."""
        return np.asarray(np.sum(self.reduce.gather(sums), axis=0))


def _join(found: list[Held]) -> Held:
    parts = {j: np.concatenate([h.parts[j] for h in found]) for j in found[-1].parts}
    return Held(parts, *(np.concatenate([h[i] for h in found]) for i in (1, 2, 3, 4)))
