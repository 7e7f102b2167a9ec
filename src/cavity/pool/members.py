"""The members of a pool other than the Gaussian process, fitted to rows and kept as
arrays; `prediction.pool` weighs them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from cavity.common.types import Floats
from cavity.engine.training.threads import limit_openmp
from cavity.pool.boosting import Boosting
from cavity.pool.member_rows import Left, MemberRows, make_codes
from cavity.pool.network_training import standardise, train_networks
from cavity.pool.networks import LinearModel, Network
from cavity.pool.plan import MembersPlan
from cavity.pool.pool import Member
from cavity.pool.sklearn_trees import (
    TreeColumns,
    bin_without_weights,
    choose_columns,
    grow_trees,
    make_forest,
)
from cavity.pool.tree_ensembles import Forest
from cavity.tables.table import Table

# up to which threads of boosting and of a forest wait for each other
ONE_THREAD_ROWS = 6000
# members that are fitted whatever the time: class frequencies, and boosting with the
# rounds it has time for
ALWAYS = 2
NETWORK_STEPS = 300  # at first
# of the log loss that is left, for which networks take twice as many steps
CLEAR_GAIN = 0.01
LINEAR_ROWS = 20_000  # that logistic regression is fitted to: more say the same
LINEAR_STRENGTH = 0.3  # C of logistic regression, in units of the rows' mean weight
HALF_ROW = 0.5  # added to the count of each class


class Recipe(Protocol):
    """An unfitted member."""

    @property
    def name(self) -> str:
        """What it is called in plans and messages."""

    def fit(
        self,
        rows: MemberRows,
        columns: TreeColumns,
        held: MemberRows | None,
        left: Left,
    ) -> tuple[Member, Recipe]:
        """Fit to these columns within the seconds `left`; also return the recipe for
        other fits, with what `held` rows decided.
        """


@dataclass(frozen=True)
class Frequencies:
    """Class frequencies: a table without signal ends there."""

    name: ClassVar[str] = "class frequencies"

    def fit(
        self,
        rows: MemberRows,
        columns: TreeColumns,
        held: MemberRows | None,
        left: Left,
    ) -> tuple[Forest, Frequencies]:
        count = np.bincount(rows.y, rows.weight, rows.n_classes) + HALF_ROW
        leaf = (count / count.sum())[None].astype(np.float32)
        never = np.full(1, np.inf, np.float32)
        node, child, at, root, column = (np.zeros(1, np.int32) for _ in range(5))
        start = np.zeros(rows.n_classes)
        return Forest(
            node, never, child, at, leaf, root, column, start, boosted=False
        ), self


@dataclass(frozen=True)
class Linear:
    """Multinomial logistic regression."""

    name: ClassVar[str] = "logistic regression"

    def fit(
        self,
        rows: MemberRows,
        columns: TreeColumns,
        held: MemberRows | None,
        left: Left,
    ) -> tuple[LinearModel, Linear]:
        from sklearn.linear_model import LogisticRegression

        X = rows.X[:, columns.number]
        y = rows.y
        weight = rows.weight
        C = rows.n_classes
        if len(y) > LINEAR_ROWS:
            kept = np.random.default_rng(0).permutation(len(y))[:LINEAR_ROWS]
            kept = np.union1d(kept, np.unique(y, return_index=True)[1])
            X = X[kept]
            y = y[kept]
            if weight is None:
                weight = None
            else:
                weight = weight[kept]
        Z, shift, scale = standardise(X, weight)
        model = LogisticRegression(C=LINEAR_STRENGTH, max_iter=50, tol=1e-3).fit(
            Z, y, weight
        )
        slope = model.coef_.T
        bias = model.intercept_[None]
        if C == 2:  # one score, of the second class
            slope, bias = (
                np.hstack([np.zeros_like(part), part]) for part in (slope, bias)
            )
        return LinearModel(columns.number.copy(), shift, scale, slope, bias), self


@dataclass(frozen=True)
class Networks:
    """Small neural networks; held-out rows choose the number of steps."""

    count: int
    seed: int
    most: int  # steps
    steps: int  # before held-out rows ask for more

    name: ClassVar[str] = "networks"

    def fit(
        self,
        rows: MemberRows,
        columns: TreeColumns,
        held: MemberRows | None,
        left: Left,
    ) -> tuple[Network, Networks]:
        X = rows.X[:, columns.number]
        grows = held is not None and self.most > self.steps
        # what the second half of the first steps gains decides whether there are more
        if grows:
            first = self.steps // 2
        else:
            first = self.steps
        before = left()
        stages = train_networks(
            X, rows.y, rows.weight, rows.n_classes, self.count, self.seed, first
        )
        stages = (
            (steps, found._replace(used=columns.number.copy()))
            for steps, found in stages
        )
        steps, best = next(stages)
        if not grows or held is None:
            return best, self
        loss = _find_loss(best, held)
        for taken, network in stages:
            earlier = loss
            loss = _find_loss(network, held)
            paid = _is_clear(earlier - loss, loss, held.weight)
            if paid or steps < self.steps:
                steps = taken
                best = network
            if not paid or 2 * taken > self.most or before - left() > left():
                break
        return best, replace(self, steps=steps, most=steps)


def _find_loss(member: Member, held: MemberRows) -> Floats:
    """Return the log loss of each held-out row."""
    return -np.asarray(
        member.log_proba(held.X)[np.arange(len(held.y)), held.y], dtype=np.float64
    )


def _is_clear(gain: Floats, loss: Floats, weight: Floats | None) -> bool:
    """Return whether the mean gain of rows is larger than its standard error, and a
    share of the loss that is left.
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
    leaves: int  # most of a tree; 0: any number
    seed: int

    name: ClassVar[str] = "extra trees"

    def fit(
        self,
        rows: MemberRows,
        columns: TreeColumns,
        held: MemberRows | None,
        left: Left,
    ) -> tuple[Forest, Forests]:
        (X, y, weight, *_), columns = rows.for_trees(columns)
        threads = 1
        if not len(y) <= ONE_THREAD_ROWS:
            threads = -1
        trees = grow_trees(X, y, weight, self.trees, self.seed, self.leaves, threads)
        return rows.make_member(trees, columns), self


@dataclass(frozen=True)
class Given:
    """A classifier of the user's own."""

    classifier: Any

    @property
    def name(self) -> str:
        return type(self.classifier).__name__

    def fit(
        self,
        rows: MemberRows,
        columns: TreeColumns,
        held: MemberRows | None,
        left: Left,
    ) -> tuple[Member, Given]:
        from sklearn.base import clone

        model = bin_without_weights(clone(self.classifier))
        model.fit(
            rows.X[:, columns.number] * columns.sign, rows.y, sample_weight=rows.weight
        )
        return make_forest(model, columns), self


def make_members(ensemble: Any, plan: MembersPlan, seed: int) -> list[Recipe]:
    """Return the recipes of a plan, those that give most per second first, or the
    user's own classifiers.
    """
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
        steps = min(NETWORK_STEPS, plan.network_steps)
        found.append(Networks(plan.networks, seed, plan.network_steps, steps))
    if plan.trees:
        found.append(Forests(plan.trees, plan.leaves, seed))
    return found


def fit_members(
    recipes: list[Recipe],
    table: Table,
    held: Table | None,
    blocks: Sequence[slice],
    left: Left,
) -> tuple[list[Member], list[Recipe]]:
    """Fit members until time is up; also return the recipes for other fits.

    `blocks`: the features of each category.
    """
    given = [recipe.classifier for recipe in recipes if isinstance(recipe, Given)]
    columns = choose_columns(table.X, given)
    rows = MemberRows.of(table)
    for block in blocks:
        columns.sign[
            (columns.number >= block.start) & (columns.number < block.stop)
        ] = 1.0
    rows = rows._replace(codes=make_codes(rows, blocks))
    judges = None
    if held is not None:
        judges = MemberRows.of(held)
    fitted: list[tuple[Member, Recipe]] = []
    with (
        warnings.catch_warnings(),
        limit_openmp() if table.n_rows <= ONE_THREAD_ROWS else nullcontext(),
    ):
        warnings.simplefilter("ignore")
        for recipe in recipes:
            if len(fitted) >= (1 if given else ALWAYS) and left() <= 0:
                break
            fitted.append(recipe.fit(rows, columns, judges, left))
    return [member for member, _ in fitted], [known for _, known in fitted]
