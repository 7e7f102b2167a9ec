"""Gradient boosting as a member of a pool: the size of its trees, and the number of
rounds, which held-out rows choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from cavity.common.types import Floats
from cavity.pool.member_rows import Left, MemberRows, MemberTask, Pace
from cavity.pool.sklearn_trees import bin_without_weights
from cavity.pool.tree_ensembles import Forest

FIRST_REACH = 5.0  # rounds × learning rate, before held-out rows are asked
# limits if there is no time for the usual rounds
QUICK_RATE = 0.4
QUICK_LEAVES = 31
PROBE_ROWS = 20_000  # on which rounds are timed; every fit has time for as many
FIRST_TREES = 500  # limit of the first rounds, which grow one tree per class
LEAST_ROUNDS = 3
ROWS_PER_ROUND = 4  # minimum
# share of the log loss of class frequencies that earlier rounds must have gained
LEAST_GAIN = 0.005
# of the gain of twice as many rounds, each time they double; and the least gain of the
# second half of the rounds at which they double [68]
SHRINKAGE = 0.45
LEAST_SLOPE = 0.0086
# training rows per leaf of a tree; limits of its number of leaves
LEAF_ROWS = 250
LEAVES = (8, 127)
# training rows per bin of a column; limits of the number of bins
BIN_ROWS = 40
BINS = (63, 255)
BOOSTING_L2 = 1.0  # without it, leaves whose rows are all certain diverge


@dataclass(frozen=True)
class Boosting:
    """Gradient boosting; held-out rows choose the number of rounds."""

    rate: float
    seed: int
    rounds: int | None = None  # None: held-out rows will choose
    leaves: int = LEAVES[1]  # maximum per tree
    most_rows: int | None = None  # None: all rows
    most_reach: float = 40.0  # rounds × learning rate
    # share of the log loss of class frequencies that a tree must gain: it is grown, and
    # walked at each prediction
    tree_price: float = 1e-5
    first: int | None = None  # rounds before held-out rows are asked; None: a few
    # share of the log loss of class frequencies that the second half of the rounds gained
    slope: float = 0.0

    name: ClassVar[str] = "boosting"

    def fit(self, task: MemberTask) -> tuple[Forest, Boosting]:
        rows = task.rows
        held = task.held
        coded, columns = rows.for_trees(task.columns)
        if self.most_rows is not None:
            coded = coded.draw(self.most_rows)
        if self.rounds is not None or held is None:
            rounds = self.rounds or self.count_first(rows.n_classes)
            model = self._start(coded, rounds)
            return rows.make_member(model, columns), replace(self, rounds=rounds)

        recipe = self
        if task.left() < math.inf:
            recipe = self._fit_to_time(coded, task.left)
            coded = coded.draw(recipe.most_rows or len(coded.y))
        judge, _ = held._replace(codes=rows.codes).for_trees(columns)
        model, loss = recipe._grow(coded, judge, task.left)
        best = 1 + int(np.argmin(loss))
        half = loss[: len(loss) // 2].min(initial=loss[0])
        slope = float(half - loss.min()) / _find_entropy(coded)
        found = replace(recipe, rounds=best, slope=slope)
        return rows.make_member(model, columns, best), found

    def scale(self, share: float) -> Boosting:
        """Return the recipe with fewer and larger steps, or with more and smaller ones."""
        if self.rounds is None:
            return replace(self, rate=self.rate / share)

        return replace(self, rate=self.rate / share, rounds=round(share * self.rounds))

    def quick(self) -> Boosting:
        """Return a recipe of few rounds of small trees, which tells what more promise."""
        return replace(
            self, rate=QUICK_RATE, leaves=QUICK_LEAVES, most_reach=FIRST_REACH
        )

    def buy_rounds(self, slope: float, n_classes: int) -> Boosting:
        """Return a recipe that first grows as many rounds as a quick fit promises.

        `slope`: of the quick fit. Each time the rounds double, they gain `SHRINKAGE`
        times as much; they double while the last third gains `LEAST_GAIN`.
        """
        doublings = 0.0
        if slope > LEAST_SLOPE:
            doublings = math.log(LEAST_SLOPE / slope) / math.log(SHRINKAGE)
        rounds = round(self.count_first(n_classes) * 2**doublings)
        return replace(self, first=min(rounds, round(self.most_reach / self.rate)))

    def _fit_to_time(self, rows: MemberRows, left: Left) -> Boosting:
        """Return the recipe whose first rounds take half of the seconds that are left.

        A few rounds on some rows are timed. If there is no time for enough rounds on
        all rows, the recipe draws some.
        """
        quick = replace(self, rate=max(self.rate, QUICK_RATE), leaves=QUICK_LEAVES)
        n = len(rows.y)
        probe = rows.draw(PROBE_ROWS)
        pace = Pace(left)
        quick._start(probe, LEAST_ROUNDS)
        affordable = pace.count_affordable(LEAST_ROUNDS) / 2 * len(probe.y) / n
        rate = FIRST_REACH / max(affordable, 1.0)
        if rate < self.rate / 2:  # the usual trees take about twice as long
            return self

        share = affordable * quick.rate / FIRST_REACH
        if share < 1 and n > PROBE_ROWS:
            quick = replace(quick, most_rows=max(PROBE_ROWS, int(share * n)))
        return replace(quick, rate=min(max(rate, self.rate), quick.rate))

    def _grow(
        self, rows: MemberRows, held: MemberRows, left: Left
    ) -> tuple[Any, Floats]:
        """Add rounds while they pay and there is time.

        Also return the log loss of held-out rows after each round, with the price of
        the trees so far.
        """
        entropy = _find_entropy(rows)
        price = self.tree_price * entropy
        first = self.count_first(rows.n_classes)
        reached = round(self.most_reach / self.rate)
        most = max(first, min(reached, len(rows.y) // ROWS_PER_ROUND))
        # each growth costs a binning, and predictions of all rounds so far
        growth = 4 if left() < math.inf else 2

        pace = Pace(left)
        model = self._start(rows, first)
        loss = _find_losses(model, held, price)
        while model.max_iter < most and _pays(loss, LEAST_GAIN * entropy):
            rounds = model.max_iter
            affordable = pace.count_affordable(rounds)
            goal = int(min(growth * rounds, rounds + affordable))
            if goal <= rounds:
                break

            model.set_params(max_iter=goal).fit(rows.X, rows.y, rows.weight)
            loss = _find_losses(model, held, price)

        return model, loss

    def count_first(self, n_classes: int) -> int:
        """Return the number of rounds before held-out rows are asked."""
        if self.first is not None:
            return self.first

        rounds = min(round(FIRST_REACH / self.rate), FIRST_TREES // n_classes)
        return max(LEAST_ROUNDS, rounds)

    def _start(self, rows: MemberRows, rounds: int) -> Any:
        """Fit the first rounds of a model whose size follows from the number of rows."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        n = len(rows.y)
        model = HistGradientBoostingClassifier(
            learning_rate=self.rate,
            max_leaf_nodes=count_leaves(n, self.leaves),
            max_bins=_limit(n // BIN_ROWS, *BINS),
            max_iter=rounds,
            l2_regularization=BOOSTING_L2,
            early_stopping=False,
            warm_start=True,
            random_state=self.seed,
        )
        return bin_without_weights(model).fit(rows.X, rows.y, rows.weight)


def count_leaves(rows: int, most: int) -> int:
    """Return the most leaves of a tree."""
    return _limit(rows // LEAF_ROWS, LEAVES[0], most)


def _find_entropy(rows: MemberRows) -> float:
    """Return the log loss of class frequencies."""
    count = np.bincount(rows.y, rows.weight)
    share = count[count > 0] / count.sum()
    return float(-(share * np.log(share)).sum())


def _pays(loss: Floats, least: float) -> bool:
    """Return whether the last third of the rounds gained more than `least`."""
    earlier = loss[: 2 * len(loss) // 3]
    return bool(earlier.min() - loss.min() > least)


def _limit(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)


def _find_losses(model: Any, held: MemberRows, price: float) -> Floats:
    """Return the log loss of held-out rows plus the price of the trees, by round."""
    own = np.arange(len(held.y)), held.y
    loss = [
        -np.average(np.log(np.maximum(P[own], 1e-9)), weights=held.weight)
        for P in model.staged_predict_proba(held.X)
    ]
    rounds = np.arange(1, len(loss) + 1)
    return np.array(loss) + price * model.n_trees_per_iteration_ * rounds
