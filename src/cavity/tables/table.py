"""Training rows: what the engine needs to know about them, and the starting values they
give.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import (
    Columns,
    Triple,
    arrange_columns,
    distinct_rows,
    from_moments,
    hash_rows,
    share_units,
    summarize,
)
from cavity.common.types import Floats, Ints
from cavity.tables import inducing_points
from cavity.tables.array_sources import Arrays
from cavity.tables.arrow_tables import to_plain
from cavity.tables.columns.feature_groups import group_features
from cavity.tables.pieces import Apart
from cavity.tables.splitting import number_units
from cavity.tables.validation import Features


class GivenRows(NamedTuple):
    """The arguments of `fit`, as the user gave them."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    target: Any = None
    weight: Any = None
    eval_set: Any = None
    time_limit: Any = None
    groups: Any = None

    def with_arrays(self) -> GivenRows:
        """Return the same with labels and weights as arrays if they are tensors; masked
        ones are refused.
        """
        y = to_plain(self.y, "y")
        weight = to_plain(self.sample_weight, "sample_weight")
        return self._replace(
            y=y, sample_weight=weight, groups=to_plain(self.groups, "groups")
        )


class Start(NamedTuple):
    """Starting values that depend on the rows but not on the method."""

    columns: Columns
    candidates: inducing_points.Candidates  # rows that inducing points are chosen from


def share_lengthscales(
    begin: Start, features: Features, rng: np.random.Generator
) -> Start:
    """Let the features of each raw column share a lengthscale; features that nothing
    prepared stay as they are.
    """
    prepare = features.preparation
    if prepare is None or (
        begin.columns.group is not None and begin.columns.constant is None
    ):
        return begin
    sharing, _ = group_features(prepare.columns_)
    if len(np.unique(sharing.group)) == len(sharing.group):
        return begin
    columns, U = share_units(
        begin.columns, sharing, begin.candidates.U, begin.candidates.weight, rng
    )
    return Start(columns, begin.candidates._replace(U=U, distance=columns.distance))


@dataclass(frozen=True)
class Table:
    """Rows in memory with encoded labels, 0..C−1, or with real targets in units of
    their spread, (y − shift)/scale.
    """

    X: Floats  # [N D]
    y: NDArray[Any]  # [N]
    weight: Floats  # [N], positive
    n_classes: int  # 1 with targets
    # row numbers in the table that the user gave; None: 0..N−1
    given: Ints | None = None
    units: tuple[float, float] | None = None  # shift and scale of targets
    member: Ints | None = None  # [N], of a committee
    place: Ints | None = None  # row of each unmerged row; None: no rows were merged
    # [N], the same for rows that stay together, if the user named any
    group: Ints | None = None

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def n_latent(self) -> int:
        """Number of latent functions: one per class, a single one for two classes."""
        if self.member is not None:
            return int(self.member.max()) + 1
        if self.n_classes > 2:
            return self.n_classes
        return 1

    @property
    def class_totals(self) -> Floats:
        """Sum of weights of each class, [C]."""
        return np.bincount(
            self._classes, weights=self.weight, minlength=self.n_classes
        ).astype(np.float64)

    @property
    def lightest(self) -> float:
        return float(self.weight.min())

    @property
    def heaviest(self) -> float:
        return float(self.weight.max())

    @property
    def numbers(self) -> Ints:
        if self.given is None:
            return np.arange(self.n_rows)
        return self.given

    @property
    def n_groups(self) -> int:
        """Number of groups that the user named; 0: none."""
        if self.group is None:
            return 0
        return len(np.unique(self.group))

    @cached_property
    def distinct(self) -> tuple[Floats, Ints]:
        """The distinct rows of X, and each row's index in them."""
        return distinct_rows(self.X)

    @cached_property
    def kind(self) -> Ints:
        """The number of each row's kind, [N]: see `number_units`."""
        return number_units(self.X)

    def merge(self, cells: bool = False) -> Table:
        """Return equal rows of equal labels as one row that weighs as much as all of
        them, in an order of their content.

        Two equal rows and one row of weight 2 make the same table, wherever they stand.
        Rows of different groups stay apart; with `cells` those of different weights,
        too, because each is a case that leaves alone.
        """
        told = [
            self.y,
            *([self.weight] if cells else []),
            *([] if self.group is None else [self.group]),
        ]
        first, place = _find_equal(self.X, told)
        # once more with the columns in an order and signs of their own, so that theirs
        # in the table do not matter
        again, rank = _find_equal(
            arrange_columns(self.X[first]), [column[first] for column in told]
        )
        first = first[again]
        place = rank[place]
        weight = np.bincount(place, self.weight).astype(np.float64)
        group = None
        if self.group is not None:
            group = self.group[first]
        X = self.X[first]
        y = self.y[first]
        return replace(
            self, X=X, y=y, weight=weight, given=None, place=place, group=group
        )

    @property
    def _classes(self) -> NDArray[Any]:
        if self.units is None:
            return self.y
        return np.zeros(self.n_rows, dtype=np.int64)

    def select(self, rows: NDArray[Any]) -> Table:
        group = None
        if self.group is not None:
            group = self.group[rows]
        given = self.numbers[rows]
        return Table(
            self.X[rows],
            self.y[rows],
            self.weight[rows],
            self.n_classes,
            given,
            group=group,
        )

    def content(self) -> str:
        """Return a digest of every row."""
        hasher = hashlib.sha256()
        for array in (
            self.X,
            self.y,
            self.weight,
            *([] if self.group is None else [self.group]),
        ):
            hasher.update(np.ascontiguousarray(array).data)
        if self.units is not None:
            hasher.update(np.array(self.units).data)
        return hasher.hexdigest()

    def start(self, rng: np.random.Generator) -> Start:
        """Return column statistics and candidate rows.

        Neither row order nor repeating versus weighting matters.
        """
        many = len(self.X) > inducing_points.CANDIDATES
        if many:
            distinct = self.X
            place = np.arange(self.n_rows)
        else:
            distinct, place = self.distinct
        weight = np.bincount(
            place, weights=self.weight, minlength=len(distinct)
        ).astype(np.float64)
        columns = summarize(distinct, weight, rng)
        found = inducing_points.draw_candidates(
            self.X, self._classes, self.weight, self.n_classes, columns, rng
        )
        return Start(columns, found)


def _find_equal(X: Floats, told: list[Any]) -> tuple[Ints, Ints]:
    """Return where each distinct row with what is told of it first occurs, and each
    row's index in them.

    Their order is that of X where it tells them apart, so that names of classes and
    groups decide nothing.
    """
    own = hash_rows(X)
    words = own + hash_rows(np.column_stack(told), X.shape[1])
    _, first, place = np.unique(words, return_index=True, return_inverse=True)
    order = np.argsort(own[first], kind="stable")
    return first[order], np.argsort(order)[place.reshape(-1)]


class Streamed(NamedTuple):
    """A source after its only pass: the rows of this rank, and what the engine needs to
    know about those of all ranks.
    """

    read: Arrays  # with labels as numbers of classes, or targets
    first: int  # number of the first of them
    classes: NDArray[Any]  # [C], sorted; one with real targets
    factor: Floats  # [C], factors of class_weight, which weights have
    n_rows: int
    class_totals: Floats  # [C], sums of weights
    lightest: float
    heaviest: float
    low: Floats  # [D]
    high: Floats  # [D]
    moments: (
        Triple | None
    )  # weight of all rows, mean and Σ weight · deviation² of columns; None if the sample has all rows
    sampled: Table
    digest: str  # of all rows
    apart: Apart | None = None  # rows that judge the model, if there are groups
    units: tuple[float, float] = (0.0, 1.0)  # of real targets: shift and scale

    @property
    def n_groups(self) -> int:
        if self.apart is None:
            return 0
        return self.apart.n_groups

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def n_latent(self) -> int:
        if self.n_classes == 2:
            return 1
        return self.n_classes

    def start(self, rng: np.random.Generator) -> Start:
        """Return the starting values of a table in memory if the sample is complete;
        else exact column statistics and a sample.
        """
        if self.moments is None:
            return self.sampled.start(rng)
        rows = self.sampled
        (total, center, square) = self.moments
        columns = from_moments(
            self.low,
            self.high,
            center,
            np.sqrt(square / total),
            rows.X,
            rows.weight,
            rng,
        )
        drawn = rows.X, rows.y, rows.weight
        found = inducing_points.draw_candidates(
            *drawn, self.n_classes, columns, rng, limit=rows.n_rows
        )
        return Start(columns, found)

    def content(self) -> str:
        return self.digest


# What the engine needs to know about the training rows, in memory or not
Facts = Table | Streamed
