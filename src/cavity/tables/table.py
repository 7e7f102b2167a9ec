"""Training rows: what the engine needs to know about them, and starting values."""

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
    Words,
    distinct_rows,
    from_moments,
    hash_arranged,
    hash_rows,
    share_units,
    summarize,
)
from cavity.common.types import Floats, Ints
from cavity.tables import inducing_points
from cavity.tables.array_sources import Arrays
from cavity.tables.arrow_tables import to_plain
from cavity.tables.columns.feature_groups import group_features, place_features
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
        """Convert tensors of labels, weights and groups to arrays; refuse masked ones."""
        return self._replace(
            y=to_plain(self.y, "y"),
            sample_weight=to_plain(self.sample_weight, "sample_weight"),
            groups=to_plain(self.groups, "groups"),
        )


class Start(NamedTuple):
    """Starting values that depend on the rows but not on the method."""

    columns: Columns
    candidates: inducing_points.Candidates  # rows to choose inducing points from


def share_lengthscales(
    begin: Start, features: Features, rng: np.random.Generator
) -> Start:
    """Let the features of each raw column share a lengthscale.

    Features without a preparation stay as they are. The names of columns are kept for
    kernels of some columns.
    """
    columns = begin.columns._replace(places=place_columns(features))
    begin = begin._replace(columns=columns)
    prepare = features.preparation
    shared = begin.columns.group is not None and begin.columns.constant is None
    if prepare is None or shared:
        return begin

    sharing, _ = group_features(prepare.columns_)
    if len(np.unique(sharing.group)) == len(sharing.group):
        return begin

    columns, U = share_units(
        begin.columns, sharing, begin.candidates.U, begin.candidates.weight, rng
    )
    columns = columns._replace(places=begin.columns.places)
    return Start(columns, begin.candidates._replace(U=U, distance=columns.distance))


# place of each class from 0 for the lowest, if classes are ordered, [C]
Places = tuple[int, ...]


def place_columns(features: Features) -> dict[Any, tuple[int, ...]]:
    """Return the features of each column of the table, by its name and its number."""
    if features.preparation is not None:
        return place_features(features.preparation)

    numbers: dict[Any, tuple[int, ...]] = {j: (j,) for j in range(features.n)}
    names = features.names or ()
    return {name: (j,) for j, name in enumerate(names)} | numbers


@dataclass(frozen=True)
class Table:
    """Rows in memory with labels 0..C−1, or with real targets (y − shift)/scale."""

    X: Floats  # [N D]
    y: NDArray[Any]  # [N]
    weight: Floats  # [N], positive
    n_classes: int  # 1 with targets
    given: Ints | None = None  # row numbers in the user's table; None: 0..N−1
    units: tuple[float, float] | None = None  # shift and scale of targets
    member: Ints | None = None  # [N], member of a committee
    place: Ints | None = None  # row of each unmerged row; None: no rows were merged
    group: Ints | None = None  # [N], number of the group that the user named
    order: Places | None = None
    cells: bool = False  # equal rows are different cases, not copies of one

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def n_latent(self) -> int:
        """Number of latent functions: one per class; one for two or ordered classes."""
        if self.member is not None:
            return int(self.member.max()) + 1
        if self.n_classes > 2 and self.order is None:
            return self.n_classes

        return 1

    @property
    def class_totals(self) -> Floats:
        """Sum of weights of each class, [C]."""
        totals = np.bincount(self._classes, self.weight, minlength=self.n_classes)
        return totals.astype(np.float64)

    @property
    def lightest(self) -> float:
        return float(self.weight.min())

    @property
    def heaviest(self) -> float:
        return float(self.weight.max())

    @property
    def numbers(self) -> Ints:
        """Row numbers in the user's table, [N]."""
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
    def words(self) -> Words:
        """One word per row of X, which depends on its numbers alone, [N]."""
        return hash_rows(self.X)

    @cached_property
    def kind(self) -> Ints:
        """The number of each row's kind, [N]: see `number_units`."""
        return number_units(self.X)

    def merge(self, cells: bool = False) -> Table:
        """Merge rows with equal features and labels, in an order of their content.

        A merged row weighs as much as all its rows. So two equal rows and one row of
        weight 2 make the same table, in any order of rows. Rows of different groups
        stay apart. With `cells`, rows of different weights stay apart too: each is a
        case of its own.
        """
        labels = [self.y]
        if cells:
            labels.append(self.weight)
        if self.group is not None:
            labels.append(self.group)
        marks = hash_rows(np.column_stack(labels), self.X.shape[1])
        first, place = _find_equal(self.words, marks)
        # Again with columns in a canonical order and with canonical signs, so that
        # their order and signs in the table do not matter.
        again, rank = _find_equal(hash_arranged(self.X, first)[first], marks[first])
        first = first[again]
        place = rank[place]
        return replace(
            self,
            X=self.X[first],
            y=self.y[first],
            weight=np.bincount(place, self.weight).astype(np.float64),
            given=None,
            place=place,
            group=None if self.group is None else self.group[first],
        )

    @property
    def _classes(self) -> NDArray[Any]:
        if self.units is None:
            return self.y

        return np.zeros(self.n_rows, dtype=np.int64)

    def select(self, rows: NDArray[Any]) -> Table:
        return Table(
            self.X[rows],
            self.y[rows],
            self.weight[rows],
            self.n_classes,
            given=self.numbers[rows],
            units=self.units,
            group=None if self.group is None else self.group[rows],
            order=self.order,
            cells=self.cells,
        )

    def draw(self, most: int, seed: int) -> Table:
        """Draw at most so many rows, and at least one of each class, in their order."""
        if self.n_rows <= most:
            return self

        drawn = np.random.default_rng(seed).permutation(self.n_rows)[:most]
        _, one_per_class = np.unique(self.y, return_index=True)
        return self.select(np.union1d(drawn, one_per_class))

    def content(self) -> str:
        """Return a digest of every row."""
        hasher = hashlib.sha256()
        for array in (self.X, self.y, self.weight, self.group, self.units):
            if array is not None:
                hasher.update(np.ascontiguousarray(array).data)
        return hasher.hexdigest()

    def start(self, rng: np.random.Generator) -> Start:
        """Return column statistics and candidate rows.

        The order of rows does not matter, nor whether rows are repeated or weighted.
        """
        if self.n_rows > inducing_points.CANDIDATES:
            distinct = self.X
            weight = self.weight
        else:
            distinct, place = self.distinct
            weight = np.bincount(place, self.weight).astype(np.float64)

        columns = summarize(distinct, weight, rng)
        found = inducing_points.draw_candidates(
            self.X, self._classes, self.weight, self.n_classes, columns, rng
        )
        return Start(columns, found)


def _find_equal(own: Words, labels: Words) -> tuple[Ints, Ints]:
    """Return the first place of each distinct row with its labels, and each row's index.

    Rows are ordered by their own words as far as these differ, so the order does not
    depend on names of classes and groups.
    """
    words = own + labels
    _, first, place = np.unique(words, return_index=True, return_inverse=True)
    order = np.argsort(own[first], kind="stable")
    return first[order], np.argsort(order)[place]


class Streamed(NamedTuple):
    """A source after its only pass: the rows of this rank, and facts about all rows."""

    read: Arrays  # with labels as numbers of classes, or targets
    first: int  # number of the first row of this rank
    classes: NDArray[Any]  # [C], sorted; one with real targets
    factor: Floats  # [C], factors of class_weight, included in weights
    n_rows: int
    class_totals: Floats  # [C], sums of weights
    lightest: float
    heaviest: float
    low: Floats  # [D]
    high: Floats  # [D]
    # Weight of all rows, mean and Σ weight · deviation² of columns; None if the sample
    # contains all rows.
    moments: Triple | None
    sampled: Table
    digest: str  # of all rows
    apart: Apart | None = None  # rows that judge the model, if there are groups
    units: tuple[float, float] = (0.0, 1.0)  # of real targets: shift and scale
    order: Places | None = None

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
        if self.n_classes == 2 or self.order is not None:
            return 1

        return self.n_classes

    def start(self, rng: np.random.Generator) -> Start:
        """Return exact column statistics, and candidate rows from the sample.

        A complete sample gives the starting values of a table in memory.
        """
        rows = self.sampled
        if self.moments is None:
            return rows.start(rng)

        total, center, square = self.moments
        spread = np.sqrt(square / total)
        columns = from_moments(
            self.low, self.high, center, spread, rows.X, rows.weight, rng=rng
        )
        found = inducing_points.draw_candidates(
            rows.X,
            rows.y,
            rows.weight,
            self.n_classes,
            columns,
            rng,
            limit=rows.n_rows,
        )
        return Start(columns, found)

    def content(self) -> str:
        return self.digest


# What the engine needs to know about the training rows, in memory or not
Facts = Table | Streamed
