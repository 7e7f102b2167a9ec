"""The members of a pool other than the Gaussian process: fitted to rows and stored as
arrays.

`pool.weights` weights them.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from cavity.common.cores import count_cores
from cavity.common.types import Floats
from cavity.engine.training.threads import limit_openmp
from cavity.pool.boosting import Boosting
from cavity.pool.member_rows import (
    Left,
    MemberRows,
    MemberTask,
    Pace,
    make_codes,
    unlimited,
)
from cavity.pool.network_training import NetworkShape, standardise, train_networks
from cavity.pool.networks import LinearModel, Network
from cavity.pool.plan import MembersPlan
from cavity.pool.pool import Member, normalised
from cavity.pool.sklearn_trees import (
    bin_without_weights,
    choose_columns,
    grow_trees,
    make_forest,
)
from cavity.pool.tree_ensembles import Forest
from cavity.pool.weights import fit_temperature
from cavity.tables.table import Table

# up to this size, threads of boosting and of a forest wait for each other
ONE_THREAD_ROWS = 6000
ONE_THREAD_CELLS = 1_000_000
# members that are fitted even if time is up: class frequencies, and boosting with as
# many rounds as there is time for
ALWAYS = 2
NETWORK_STEPS = 300  # before held-out rows ask for more
# share of the remaining log loss that networks must gain to take twice as many steps
CLEAR_GAIN = 0.01
# rows, and rows × columns × classes, for logistic regression: more rows tell no more
LINEAR_ROWS = 20_000
LINEAR_WORK = 40_000_000
LINEAR_STRENGTH = 0.3  # C of logistic regression, in units of the rows' mean weight
FIRST_TREES = 8  # of a forest, before the clock or a bid is asked
HALF_ROW = 0.5  # added to the count of each class


class Recipe(Protocol):
    """An unfitted member."""

    @property
    def name(self) -> str:
        """Name of the member in plans and messages."""

    def scale(self, share: float) -> Recipe:
        """Return the recipe of a member that takes this share of the seconds."""

    def fit(self, task: MemberTask) -> tuple[Member, Recipe]:
        """Return the fitted member, and the recipe for other fits.

        The recipe has the choices that held-out rows made.
        """


@dataclass(frozen=True)
class Frequencies:
    """Class frequencies: the best prediction for a table without signal."""

    name: ClassVar[str] = "class frequencies"

    def scale(self, share: float) -> Frequencies:
        return self

    def fit(self, task: MemberTask) -> tuple[Forest, Frequencies]:
        rows = task.rows
        count = np.bincount(rows.y, rows.weight, rows.n_classes) + HALF_ROW
        zero = np.zeros(1, np.int32)
        forest = Forest(
            feature=zero,
            threshold=np.full(1, np.inf, np.float32),
            child=zero,
            leaf=zero,
            value=(count / count.sum())[None].astype(np.float32),
            root=zero,
            column=zero,
            start=np.zeros(rows.n_classes),
            boosted=False,
        )
        return forest, self


@dataclass(frozen=True)
class Linear:
    """Multinomial logistic regression."""

    name: ClassVar[str] = "logistic regression"

    def scale(self, share: float) -> Linear:
        return self

    def fit(self, task: MemberTask) -> tuple[LinearModel, Linear]:
        from sklearn.linear_model import LogisticRegression

        number = task.columns.number
        affordable = LINEAR_WORK // (len(number) * task.rows.n_classes)
        drawn = task.rows.draw(min(LINEAR_ROWS, affordable))
        Z, shift, scale = standardise(drawn.X[:, number], drawn.weight)
        model = LogisticRegression(C=LINEAR_STRENGTH, max_iter=50, tol=1e-3)
        model.fit(Z, drawn.y, drawn.weight)
        slope = model.coef_.T
        bias = model.intercept_[None]
        if drawn.n_classes == 2:  # scikit-learn has one score, of the second class
            slope = np.hstack([np.zeros_like(slope), slope])
            bias = np.hstack([np.zeros_like(bias), bias])
        return LinearModel(number.copy(), shift, scale, slope, bias), self


@dataclass(frozen=True)
class Networks:
    """Small neural networks; held-out rows choose the number of steps."""

    shape: NetworkShape
    seed: int
    most: int  # steps
    steps: int  # before held-out rows ask for more

    name: ClassVar[str] = "networks"

    def scale(self, share: float) -> Networks:
        steps = round(share * self.steps)
        return replace(self, steps=steps, most=round(share * self.most))

    def fit(self, task: MemberTask) -> tuple[Network, Networks]:
        rows = task.rows
        held = task.held
        number = task.columns.number
        train = partial(
            train_networks,
            rows.X[:, number],
            rows.y,
            rows.weight,
            rows.n_classes,
            shape=self.shape,
            seed=self.seed,
        )
        recipe = self
        if held is None or self.most <= self.steps:
            _, network = next(train(steps=self.steps))
        else:
            judge = held._replace(X=held.X[:, number])
            # the gain of the second half of the first steps decides whether more follow
            stages = train(steps=self.steps // 2)
            steps, network = self._choose_steps(stages, judge, task.left)
            recipe = replace(self, steps=steps, most=steps)

        return network._replace(used=number.copy()), recipe

    def _choose_steps(
        self, stages: Iterator[tuple[int, Network]], held: MemberRows, left: Left
    ) -> tuple[int, Network]:
        """Train until held-out rows gain no more or half of the time is spent."""
        at_start = left()
        steps, best = next(stages)
        loss = _find_loss(best, held)
        for taken, network in stages:
            earlier = loss
            loss = _find_loss(network, held)
            paid = _is_clear(earlier - loss, loss, held.weight)
            if paid or steps < self.steps:
                steps = taken
                best = network
            spent = at_start - left()
            if not paid or 2 * taken > self.most or spent > left():
                break

        return steps, best


def _find_loss(member: Member, held: MemberRows) -> Floats:
    """Return the log loss of each held-out row at the member's best temperature.

    The weights of the pool temper it, so training may go on where it sharpens too much.
    """
    log_p = np.asarray(member.log_proba(held.X), dtype=np.float64)
    weight = held.weight
    if weight is None:
        weight = np.ones(len(held.y))
    tempered = normalised(fit_temperature(log_p, held.y, weight) * log_p)
    return -tempered[np.arange(len(held.y)), held.y]


def _is_clear(gain: Floats, loss: Floats, weight: Floats | None) -> bool:
    """Return whether the mean gain exceeds its standard error and a share of the
    remaining loss.
    """
    if weight is None:
        share = np.full(len(gain), 1 / len(gain))
    else:
        share = weight / weight.sum()

    mean = float(share @ gain)
    error = math.sqrt(np.square(share) @ np.square(gain - mean))
    return bool(mean > max(error, CLEAR_GAIN * float(share @ loss)))


@dataclass(frozen=True)
class Forests:
    """Extremely randomised trees."""

    trees: int
    leaves: int  # maximum per tree; 0: unlimited
    seed: int

    name: ClassVar[str] = "extra trees"

    def scale(self, share: float) -> Forests:
        return replace(self, trees=max(1, round(share * self.trees)))

    def quick(self) -> Forests:
        """Return a recipe of a few trees, which tells what more of them promise."""
        return replace(self, trees=min(FIRST_TREES, self.trees))

    def count_turns(self, X: Floats) -> int:
        """Return how many trees grow one after the other."""
        threads = 1 if needs_one_thread(X) else count_cores()
        return math.ceil(self.trees / threads)

    def fit(self, task: MemberTask) -> tuple[Forest, Forests]:
        coded, columns = task.rows.for_trees(task.columns)
        grow = partial(
            grow_trees,
            coded.X,
            coded.y,
            coded.weight,
            seed=self.seed,
            leaves=self.leaves,
            threads=1 if needs_one_thread(coded.X) else -1,
        )
        if task.left() == math.inf:
            trees = grow(range(self.trees))
        else:
            trees = self._grow_in_time(grow, task.left)
        return task.rows.make_member(trees, columns), replace(self, trees=len(trees))

    def _grow_in_time(
        self, grow: Callable[[range], list[Any]], left: Left
    ) -> list[Any]:
        """Grow a few trees, and as many more as there is time for."""
        pace = Pace(left)
        first = min(FIRST_TREES, self.trees)
        trees = grow(range(first))
        most = first + int(min(pace.count_affordable(first), self.trees))
        return trees + grow(range(first, min(most, self.trees)))


@dataclass(frozen=True)
class Given:
    """A user's own classifier."""

    classifier: Any

    @property
    def name(self) -> str:
        return type(self.classifier).__name__

    def scale(self, share: float) -> Given:
        return self

    def fit(self, task: MemberTask) -> tuple[Member, Given]:
        from sklearn.base import clone

        rows = task.rows
        columns = task.columns
        X = rows.X[:, columns.number] * columns.sign
        model = bin_without_weights(clone(self.classifier))
        model.fit(X, rows.y, sample_weight=rows.weight)
        return make_forest(model, columns), self


def make_members(ensemble: Any, plan: MembersPlan, seed: int) -> list[Recipe]:
    """Return the recipes of a plan, ordered by gain per second, or the user's own
    classifiers.
    """
    if not plan.pools:
        return []
    if not isinstance(ensemble, str):
        return [Given(classifier) for classifier in ensemble]

    recipes: list[Recipe] = [Frequencies()]
    if plan.rate:
        recipes.append(Boosting(plan.rate, seed))
    if plan.linear:
        recipes.append(Linear())
    if plan.networks:
        steps = min(NETWORK_STEPS, plan.network_steps)
        shape = NetworkShape(plan.networks, plan.units, plan.device)
        recipes.append(Networks(shape, seed, plan.network_steps, steps))
    if plan.trees:
        recipes.append(Forests(plan.trees, plan.leaves, seed))
    return recipes


def needs_one_thread(X: Floats) -> bool:
    """Return whether trees grow faster in one thread."""
    return len(X) <= ONE_THREAD_ROWS and X.size <= ONE_THREAD_CELLS


class FittedMember(NamedTuple):
    """A member with the recipe for other fits, and the seconds that its fit took."""

    member: Member
    recipe: Recipe
    seconds: float


def fit_members(
    recipes: Sequence[Recipe],
    table: Table,
    held: Table | None,
    blocks: Sequence[slice],
    left: Left = unlimited,
) -> list[FittedMember]:
    """Fit members until time is up.

    `blocks`: the features of each category.
    """
    given = [recipe.classifier for recipe in recipes if isinstance(recipe, Given)]
    columns = choose_columns(table.X, given)
    for block in blocks:
        inside = (columns.number >= block.start) & (columns.number < block.stop)
        columns.sign[inside] = 1.0
    rows = MemberRows.of(table)
    rows = rows._replace(codes=make_codes(rows, blocks))
    judges = None
    if held is not None:
        judges = MemberRows.of(held)
    task = MemberTask(rows, columns, judges, left)
    always = 1 if given else ALWAYS
    is_small = needs_one_thread(table.X)

    found: list[FittedMember] = []
    with warnings.catch_warnings(), limit_openmp() if is_small else nullcontext():
        warnings.simplefilter("ignore")
        for recipe in recipes:
            if len(found) >= always and left() <= 0:
                break

            began = time.perf_counter()
            member, chosen = recipe.fit(task)
            seconds = time.perf_counter() - began
            found.append(FittedMember(member, chosen, seconds))

    return found
