"""The members of a pool other than the Gaussian process: class frequencies, logistic regression, boosting, extra trees.

Or classifiers of the user's own. A member is fitted to rows and becomes arrays; `prediction.pool` weighs them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cavity.fitting.networks import train_networks
from cavity.fitting.sklearn_trees import (
    Columns,
    ExtraTrees,
    bin_without_weights,
    choose_columns,
    limit_cells,
    make_forest,
)
from cavity.options.plan import CalibrationPlan
from cavity.prediction.linear_model import FARTHEST, LinearModel
from cavity.prediction.networks import Network
from cavity.prediction.pool import Member
from cavity.prediction.tree_ensembles import Forest, add_codes
from cavity.rows.tables import Table
from cavity.training.threads import limit_openmp

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Left = Callable[[], float]

ONE_THREAD_ROWS = 6000  # up to which threads of boosting and of a forest wait for each other
FIRST_REACH, MOST_REACH = 5.0, 40.0  # rounds of boosting × rate
QUICK_RATE = 0.4  # of the first rounds, if there is a time limit
FIRST_TREES = 500  # at most in the first rounds, which have one of each class
LEAST_ROUNDS = 3
ALWAYS = 2  # members that are fitted whatever the time: class frequencies, and boosting with the rounds it has time for
ROWS_PER_ROUND = 4  # at least
NETWORK_STEPS = 300  # at first
CLEAR_GAIN = 0.01  # of the log loss that is left, for which networks take twice as many steps
LEAST_GAIN = 0.005  # of the log loss of class frequencies, for which more rounds are tried
TREE_PRICE = (
    1e-5  # of that log loss: what a tree of one class must gain to be grown and walked at each prediction
)
LEAF_ROWS, LEAVES = (
    250,
    (8, 127),
)  # training rows per leaf of a boosted tree; its leaves, at least and at most
BIN_ROWS, BINS = 40, (63, 255)  # training rows per bin of a column; bins, at least and at most
LINEAR_ROWS = 20_000  # that logistic regression is fitted to: more say the same
LINEAR_STRENGTH = 0.3  # C of logistic regression, in units of the rows' mean weight
LEVEL_ROWS = 20.0  # of a level of a category, with which its class shares count half
HALF_ROW = 0.5  # added to the count of each class
BOOSTING_L2 = 1.0  # without it, leaves whose rows are all certain diverge


class Codes(NamedTuple):
    """Codes of the levels of categories, [D] each: see `Forest`."""

    block: Labels
    code: Array

    def add_to(self, forest: Forest) -> Forest:
        return forest._replace(block=self.block.astype(np.int32), code=self.code)


def make_codes(rows: Rows, blocks: Sequence[slice]) -> Codes | None:
    """Number the levels of categories by what they say of the labels; None without categories of three levels or more.

    The shares of the classes at each level, shrunk towards those of all rows, are ordered along their first principal axis. Codes
    are centred, so that a level which no training row has is in the middle.
    """
    block, code = np.arange(rows.X.shape[1]), np.ones(rows.X.shape[1])
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    labels = np.eye(rows.n_classes)[rows.y] * weight[:, None]
    prior = labels.sum(0) / weight.sum()
    wide = [of for of in blocks if of.stop - of.start > 2]
    for of in wide:
        count = rows.X[:, of].T @ labels  # [levels C]
        total = count.sum(1, keepdims=True)
        off = (count - total * prior) / (total + LEVEL_ROWS)
        axis = np.linalg.svd(np.sqrt(total) * off, full_matrices=False)[2][0]
        rank = np.argsort(np.argsort(off @ axis * np.sign(axis[np.abs(axis).argmax()]), kind="stable"))
        block[of], code[of] = of.start, rank - (len(rank) - 1) / 2
    return Codes(block, code) if wide else None


class Rows(NamedTuple):
    """Rows that a member is fitted to, or judged by."""

    X: Array  # [n D]
    y: Labels
    weight: Array | None  # None: all weigh the same
    n_classes: int
    codes: Codes | None = None  # for trees

    @classmethod
    def of(cls, table: Table) -> Rows:
        # equal weights are left out: scikit-learn is faster without
        weight = None if table.lightest == table.heaviest else table.weight / table.weight.mean()
        return cls(limit_cells(table.X), table.y, weight, table.n_classes)

    def for_trees(self, columns: Columns) -> tuple[Rows, Columns]:
        """Return the rows with a code in place of the levels of a category, and their columns."""
        X = self.X
        if self.codes is not None:  # a code has no sign, as the features of categories have none
            number, first = np.unique(self.codes.block[columns.number], return_index=True)
            order = np.argsort(first)
            columns, X = Columns(number[order], columns.sign[first[order]]), add_codes(X, *self.codes)
        return self._replace(X=X[:, columns.number] * columns.sign), columns

    def make_member(self, model: Any, columns: Columns, rounds: int | None = None) -> Forest:
        """Return the arrays of trees that are fitted to these columns."""
        forest = make_forest(model, columns, rounds)
        return forest if self.codes is None else self.codes.add_to(forest)


class Recipe(Protocol):
    """An unfitted member."""

    @property
    def name(self) -> str:
        """What it is called in plans and messages."""

    def fit(self, rows: Rows, columns: Columns, held: Rows | None, left: Left) -> tuple[Member, Recipe]:
        """Fit to these columns of the rows; also return the recipe for other fits, with what `held` rows decided.

        `left` returns the seconds that are left; infinity without a limit.
        """


@dataclass(frozen=True)
class Frequencies:
    """Class frequencies: a table without signal ends there."""

    name: ClassVar[str] = "class frequencies"

    def fit(self, rows: Rows, columns: Columns, held: Rows | None, left: Left) -> tuple[Forest, Frequencies]:
        weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
        count = np.bincount(rows.y, weight, rows.n_classes) + HALF_ROW
        leaf, never = (count / count.sum())[None].astype(np.float32), np.full(1, np.inf, np.float32)
        node, child, at, root, column = (np.zeros(1, np.int32) for _ in range(5))
        start = np.zeros(rows.n_classes)
        return Forest(node, never, child, at, leaf, root, column, start, boosted=False), self


@dataclass(frozen=True)
class Linear:
    """Multinomial logistic regression."""

    name: ClassVar[str] = "logistic regression"

    def fit(self, rows: Rows, columns: Columns, held: Rows | None, left: Left) -> tuple[LinearModel, Linear]:
        from sklearn.linear_model import LogisticRegression

        X, y, weight, C = rows.X[:, columns.number], rows.y, rows.weight, rows.n_classes
        if len(y) > LINEAR_ROWS:
            kept = np.random.default_rng(0).permutation(len(y))[:LINEAR_ROWS]
            kept = np.union1d(kept, np.unique(y, return_index=True)[1])
            X, y, weight = X[kept], y[kept], None if weight is None else weight[kept]
        shift = np.average(X, 0, weight)
        spread = np.sqrt(np.average(np.square(X - shift), 0, weight))
        scale = 1 / np.where(spread > 0, spread, 1.0)
        Z = np.clip((X - shift) * scale, -FARTHEST, FARTHEST)
        model = LogisticRegression(C=LINEAR_STRENGTH, max_iter=50, tol=1e-3).fit(Z, y, weight)
        slope, bias = model.coef_.T, model.intercept_[None]
        if C == 2:  # one score, of the second class
            slope, bias = (np.hstack([np.zeros_like(part), part]) for part in (slope, bias))
        return LinearModel(columns.number.copy(), shift, scale, slope, bias), self


@dataclass(frozen=True)
class Networks:
    """Small neural networks; held-out rows choose the number of steps."""

    count: int
    seed: int
    most: int  # steps
    steps: int  # before held-out rows ask for more

    name: ClassVar[str] = "networks"

    def fit(self, rows: Rows, columns: Columns, held: Rows | None, left: Left) -> tuple[Network, Networks]:
        X, grows = rows.X[:, columns.number], held is not None and self.most > self.steps
        first, before = self.steps // 2 if grows else self.steps, left()
        stages = train_networks(X, rows.y, rows.weight, rows.n_classes, self.count, self.seed, first)
        stages = ((steps, found._replace(used=columns.number.copy())) for steps, found in stages)
        steps, best = next(stages)
        if not grows or held is None:
            return best, self
        loss = _find_loss(best, held)
        for taken, network in stages:
            before_it, loss = loss, _find_loss(network, held)
            paid = _is_clear(before_it - loss, loss, held.weight)
            if paid or steps < self.steps:
                steps, best = taken, network
            if not paid or 2 * taken > self.most or before - left() > left():
                break
        return best, replace(self, steps=steps, most=steps)


@dataclass(frozen=True)
class Boosting:
    """Gradient boosting; held-out rows choose the number of rounds."""

    rate: float
    seed: int
    rounds: int | None = None  # None: held-out rows will choose

    name: ClassVar[str] = "boosting"

    def _count(self, reach: float, n_classes: int) -> int:
        """Return the rounds that make this reach, at most 500 trees at first, but three rounds."""
        return max(LEAST_ROUNDS, min(round(reach / self.rate), FIRST_TREES // n_classes))

    def _make(self, rows: int, rounds: int) -> Any:
        """Return an unfitted model for so many rows."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(
            learning_rate=self.rate,
            max_leaf_nodes=_limit(rows // LEAF_ROWS, LEAVES),
            max_bins=_limit(rows // BIN_ROWS, BINS),
            max_iter=rounds,
            l2_regularization=BOOSTING_L2,
            early_stopping=False,
            warm_start=True,
            random_state=self.seed,
        )
        return bin_without_weights(model)

    def fit(self, rows: Rows, columns: Columns, held: Rows | None, left: Left) -> tuple[Forest, Boosting]:
        (X, y, weight, *_), columns = rows.for_trees(columns)
        first = self._count(FIRST_REACH, rows.n_classes)
        if self.rounds is not None or held is None:
            model = self._make(len(y), self.rounds or first).fit(X, y, weight)
            return rows.make_member(model, columns), replace(self, rounds=model.max_iter)
        known = held._replace(codes=rows.codes).for_trees(columns)[0]
        entropy, recipe = _find_entropy(rows), self
        least, price = LEAST_GAIN * entropy, TREE_PRICE * entropy
        before, limited = left(), left() < math.inf
        if limited:  # a few large steps first: they are what a short time allows
            recipe = replace(self, rate=max(self.rate, QUICK_RATE))
            first = recipe._count(FIRST_REACH, rows.n_classes)
            model = recipe._make(len(y), first).fit(X, y, weight)
        if not limited or (before - left()) * recipe.rate / self.rate < left():
            recipe, first, before = self, self._count(FIRST_REACH, rows.n_classes), left()
            model = self._make(len(y), first).fit(X, y, weight)
        loss = _find_losses(model, known, price)
        most = max(first, min(round(MOST_REACH / recipe.rate), len(y) // ROWS_PER_ROUND))
        growth = 4 if limited else 2  # each time costs a binning, and predictions of all rounds so far
        while _pays(loss, least) and (rounds := model.max_iter) < most:
            goal, seconds, spent = growth * rounds, left(), before - left()
            if limited:
                goal = min(goal, rounds + int(rounds * seconds / max(spent, 1e-9)))
            if goal <= rounds:
                break
            model.set_params(max_iter=goal).fit(X, y, weight)
            loss = _find_losses(model, known, price)
        best = 1 + int(np.argmin(loss))
        return rows.make_member(model, columns, best), replace(recipe, rounds=best)


def _find_loss(member: Member, held: Rows) -> Array:
    """Return the log loss of each held-out row."""
    return -np.asarray(member.log_proba(held.X)[np.arange(len(held.y)), held.y], dtype=np.float64)


def _is_clear(gain: Array, loss: Array, weight: Array | None) -> bool:
    """Return whether the mean gain of rows is larger than its standard error, and a share of the loss that is left."""
    share = np.full(len(gain), 1 / len(gain)) if weight is None else weight / weight.sum()
    mean = share @ gain
    error = math.sqrt(np.square(share) @ np.square(gain - mean))
    return bool(mean > max(error, CLEAR_GAIN * (share @ loss)))


def _find_entropy(rows: Rows) -> float:
    """Return the log loss of class frequencies."""
    share = np.bincount(rows.y, rows.weight) / (len(rows.y) if rows.weight is None else rows.weight.sum())
    return float(-(share[share > 0] * np.log(share[share > 0])).sum())


def _pays(loss: Array, least: float) -> bool:
    """Return whether the last third of the rounds paid, so that twice as many may."""
    return bool(loss[: 2 * len(loss) // 3].min() - loss.min() > least)


def _limit(value: int, limits: tuple[int, int]) -> int:
    return min(max(value, limits[0]), limits[1])


def _find_losses(model: Any, held: Rows, price: float) -> Array:
    """Return the log loss of held-out rows after each round, and the price of its trees."""
    own = np.arange(len(held.y)), held.y
    loss = [
        -np.average(np.log(np.maximum(P[own], 1e-9)), weights=held.weight)
        for P in model.staged_predict_proba(held.X)
    ]
    return np.array(loss) + price * model.n_trees_per_iteration_ * np.arange(1, len(loss) + 1)


@dataclass(frozen=True)
class Forests:
    """Extremely randomised trees."""

    trees: int
    leaves: int  # most of a tree; 0: any number
    seed: int

    name: ClassVar[str] = "extra trees"

    def fit(self, rows: Rows, columns: Columns, held: Rows | None, left: Left) -> tuple[Forest, Forests]:
        (X, y, weight, *_), columns = rows.for_trees(columns)
        if not self.leaves:
            return rows.make_member(ExtraTrees(self.trees, self.seed).fit(X, y, weight), columns), self
        from sklearn.ensemble import ExtraTreesClassifier

        one = len(y) <= ONE_THREAD_ROWS
        model = ExtraTreesClassifier(
            self.trees, max_leaf_nodes=self.leaves, n_jobs=1 if one else -1, random_state=self.seed
        )
        return rows.make_member(model.fit(X, y, weight), columns), self


@dataclass(frozen=True)
class Given:
    """A classifier of the user's own."""

    classifier: Any

    @property
    def name(self) -> str:
        return type(self.classifier).__name__

    def fit(self, rows: Rows, columns: Columns, held: Rows | None, left: Left) -> tuple[Member, Given]:
        from sklearn.base import clone

        model = bin_without_weights(clone(self.classifier))
        model.fit(rows.X[:, columns.number] * columns.sign, rows.y, rows.weight)
        return make_forest(model, columns), self


def make_members(ensemble: Any, plan: CalibrationPlan, seed: int) -> list[Recipe]:
    """Return the recipes of a plan, those that give most per second first, or the user's own classifiers."""
    if not plan.pools:
        return []
    if not isinstance(ensemble, str):
        return [Given(classifier) for classifier in ensemble]
    found: list[Recipe] = [Frequencies()]
    if plan.rate:
        found.append(Boosting(plan.rate, seed))
    if plan.linear:
        found.append(Linear())
    if plan.networks:
        most = plan.network_steps
        found.append(Networks(plan.networks, seed, most, min(NETWORK_STEPS, most)))
    if plan.trees:
        found.append(Forests(plan.trees, plan.leaves, seed))
    return found


def fit_members(
    recipes: list[Recipe], table: Table, held: Table | None, blocks: Sequence[slice], left: Left
) -> tuple[list[Member], list[Recipe]]:
    """Fit the members in their order until time is up; return them with the recipes for other fits.

    `blocks`: the features of each category.
    """
    given = [recipe.classifier for recipe in recipes if isinstance(recipe, Given)]
    columns, rows = choose_columns(table.X, given), Rows.of(table)
    for block in blocks:
        columns.sign[(columns.number >= block.start) & (columns.number < block.stop)] = 1.0
    rows = rows._replace(codes=make_codes(rows, blocks))
    judges = None if held is None else Rows.of(held)
    fitted: list[Member] = []
    known: list[Recipe] = []
    with warnings.catch_warnings(), limit_openmp() if table.n_rows <= ONE_THREAD_ROWS else nullcontext():
        warnings.simplefilter("ignore")
        for recipe in recipes:
            if len(fitted) >= (1 if given else ALWAYS) and left() <= 0:
                break
            member, again = recipe.fit(rows, columns, judges, left)
            fitted.append(member)
            known.append(again)
    return fitted, known
