"""Gradient boosting as a member of a pool: how large its trees are, and how many rounds
held-out rows ask for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cavity.common.types import Floats
from cavity.pool.member_rows import Left, MemberRows
from cavity.pool.sklearn_trees import TreeColumns, bin_without_weights
from cavity.pool.tree_ensembles import Forest

# rounds of boosting × rate
FIRST_REACH = 5.0
MOST_REACH = 40.0
# at most, if there is no time for the usual rounds
QUICK_RATE = 0.4
QUICK_LEAVES = 31
FIRST_TREES = 500  # at most in the first rounds, which have one of each class
LEAST_ROUNDS = 3
ROWS_PER_ROUND = 4  # at least
# of the log loss of class frequencies, for which more rounds are tried
LEAST_GAIN = 0.005
# of that log loss: what a tree of one class must gain to be grown and walked at each
# prediction
TREE_PRICE = 1e-5
# training rows per leaf of a tree; its leaves, at least and at most
LEAF_ROWS = 250
LEAVES = (8, 127)
# training rows per bin of a column; bins, at least and at most
BIN_ROWS = 40
BINS = (63, 255)
BOOSTING_L2 = 1.0  # without it, leaves whose rows are all certain diverge


@dataclass(frozen=True)
class Boosting:
    """Gradient boosting; held-out rows choose the number of rounds."""

    rate: float
    seed: int
    rounds: int | None = None  # None: held-out rows will choose
    leaves: int = LEAVES[1]  # of a tree, at most

    name: ClassVar[str] = "boosting"

    def _count(self, reach: float, n_classes: int) -> int:
        """Return the rounds that make this reach, at most 500 trees at first, but three
        rounds.
        """
        return max(
            LEAST_ROUNDS, min(round(reach / self.rate), FIRST_TREES // n_classes)
        )

    def _make(self, rows: int, rounds: int) -> Any:
        """Return an unfitted model for so many rows."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            learning_rate=self.rate,
            max_leaf_nodes=_limit(rows // LEAF_ROWS, (LEAVES[0], self.leaves)),
            max_bins=_limit(rows // BIN_ROWS, BINS),
            max_iter=rounds,
            l2_regularization=BOOSTING_L2,
            early_stopping=False,
            warm_start=True,
            random_state=self.seed,
        )
        return bin_without_weights(model)

    def _fit_to_time(self, rows: MemberRows, left: Left) -> Boosting:
        """Return the recipe whose first rounds take half of the seconds: a few rounds
        tell how long they are.
        """
        quick = replace(self, rate=max(self.rate, QUICK_RATE), leaves=QUICK_LEAVES)
        before = left()
        quick._make(len(rows.y), LEAST_ROUNDS).fit(rows.X, rows.y, rows.weight)
        rounds = LEAST_ROUNDS * max(left(), 0.0) / 2 / max(before - left(), 1e-9)
        rate = FIRST_REACH / max(rounds, 1.0)
        if rate < self.rate / 2:  # the usual trees take about twice as long
            return self
        return replace(quick, rate=min(max(rate, self.rate), quick.rate))

    def fit(
        self,
        rows: MemberRows,
        columns: TreeColumns,
        held: MemberRows | None,
        left: Left,
    ) -> tuple[Forest, Boosting]:
        (X, y, weight, *_), columns = rows.for_trees(columns)
        first = self._count(FIRST_REACH, rows.n_classes)
        if self.rounds is not None or held is None:
            model = self._make(len(y), self.rounds or first).fit(X, y, weight)
            return rows.make_member(model, columns), replace(
                self, rounds=model.max_iter
            )
        known = held._replace(codes=rows.codes).for_trees(columns)[0]
        entropy = _find_entropy(rows)
        limited = left() < math.inf
        least = LEAST_GAIN * entropy
        price = TREE_PRICE * entropy
        if limited:
            recipe = self._fit_to_time(rows._replace(X=X), left)
        else:
            recipe = self
        before = left()
        first = recipe._count(FIRST_REACH, rows.n_classes)
        model = recipe._make(len(y), first).fit(X, y, weight)
        loss = _find_losses(model, known, price)
        most = max(
            first, min(round(MOST_REACH / recipe.rate), len(y) // ROWS_PER_ROUND)
        )
        growth = (
            4 if limited else 2
        )  # each time costs a binning, and predictions of all rounds so far
        while _pays(loss, least) and (rounds := model.max_iter) < most:
            goal = growth * rounds
            seconds = left()
            spent = before - left()
            if limited:
                goal = min(goal, rounds + int(rounds * seconds / max(spent, 1e-9)))
            if goal <= rounds:
                break
            model.set_params(max_iter=goal).fit(X, y, weight)
            loss = _find_losses(model, known, price)
        best = 1 + int(np.argmin(loss))
        return rows.make_member(model, columns, best), replace(recipe, rounds=best)


def _find_entropy(rows: MemberRows) -> float:
    """Return the log loss of class frequencies."""
    share = np.bincount(rows.y, rows.weight) / (
        len(rows.y) if rows.weight is None else rows.weight.sum()
    )
    return float(-(share[share > 0] * np.log(share[share > 0])).sum())


def _pays(loss: Floats, least: float) -> bool:
    """Return whether the last third of the rounds paid, so that twice as many may."""
    return bool(loss[: 2 * len(loss) // 3].min() - loss.min() > least)


def _limit(value: int, limits: tuple[int, int]) -> int:
    return min(max(value, limits[0]), limits[1])


def _find_losses(model: Any, held: MemberRows, price: float) -> Floats:
    """Return the log loss of held-out rows after each round, and the price of its
    trees.
    """
    own = np.arange(len(held.y)), held.y
    loss = [
        -np.average(np.log(np.maximum(P[own], 1e-9)), weights=held.weight)
        for P in model.staged_predict_proba(held.X)
    ]
    return np.array(loss) + price * model.n_trees_per_iteration_ * np.arange(
        1, len(loss) + 1
    )
