"""Rows that the members of a pool are fitted to; trees get one code per category level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Floats, Ints
from cavity.pool.sklearn_trees import TreeColumns, join_trees, limit_cells, make_forest
from cavity.pool.tree_ensembles import Forest, add_codes
from cavity.tables.table import Table

Left = Callable[[], float]  # the seconds that are left; infinity without a limit

# a level's class shares are shrunk halfway to the average at this number of rows
LEVEL_ROWS = 20.0


class Codes(NamedTuple):
    """Codes of category levels, [D] each: see `Forest`."""

    block: Ints
    code: Floats


def make_codes(rows: MemberRows, blocks: Sequence[slice]) -> Codes | None:
    """Number category levels by their class shares.

    The shares of the classes at each level, shrunk towards the overall shares, are
    ordered along their first principal axis. Codes are centred, so that a level without
    training rows is in the middle. None if no category has three levels or more.
    """
    wide = [block for block in blocks if block.stop - block.start > 2]
    if not wide:
        return None

    first = np.arange(rows.X.shape[1])
    code = np.ones(rows.X.shape[1])
    labels = np.eye(rows.n_classes)[rows.y]
    if rows.weight is not None:
        labels *= rows.weight[:, None]
    prior = labels.sum(0) / labels.sum()
    for block in wide:
        count = rows.X[:, block].T @ labels  # [levels C]
        total = count.sum(1, keepdims=True)
        off = (count - total * prior) / (total + LEVEL_ROWS)
        _, _, axes = np.linalg.svd(np.sqrt(total) * off, full_matrices=False)
        axis = axes[0]
        sign = np.sign(axis[np.abs(axis).argmax()])
        order = np.argsort(off @ axis * sign, kind="stable")
        rank = np.argsort(order)
        first[block] = block.start
        code[block] = rank - (len(rank) - 1) / 2

    return Codes(first, code)


class MemberRows(NamedTuple):
    """Rows that a member is fitted to, or judged by."""

    X: Floats  # [n D]
    y: Ints
    weight: Floats | None  # None: equal weights
    n_classes: int
    codes: Codes | None = None  # for trees

    @classmethod
    def of(cls, table: Table) -> MemberRows:
        # equal weights are left out: scikit-learn is faster without
        weight = None
        if table.lightest != table.heaviest:
            weight = table.weight / table.weight.mean()
        return cls(limit_cells(table.X), table.y, weight, table.n_classes)

    def draw(self, most: int) -> MemberRows:
        """Draw at most so many rows, and at least one of each class."""
        if len(self.y) <= most:
            return self

        drawn = np.random.default_rng(0).permutation(len(self.y))[:most]
        _, one_per_class = np.unique(self.y, return_index=True)
        kept = np.union1d(drawn, one_per_class)
        weight = None
        if self.weight is not None:
            weight = self.weight[kept]
        return self._replace(X=self.X[kept], y=self.y[kept], weight=weight)

    def for_trees(self, columns: TreeColumns) -> tuple[MemberRows, TreeColumns]:
        """Return the rows and columns for trees, with one column per category."""
        X = self.X
        # a code has no sign, as the features of categories have none
        if self.codes is not None:
            blocks = self.codes.block[columns.number]
            number, first = np.unique(blocks, return_index=True)
            order = np.argsort(first)
            columns = TreeColumns(number[order], columns.sign[first[order]])
            X = add_codes(X, *self.codes)

        return self._replace(X=X[:, columns.number] * columns.sign), columns

    def make_member(
        self, model: Any, columns: TreeColumns, rounds: int | None = None
    ) -> Forest:
        """Convert trees that were fitted to these columns, a model or a list, to arrays."""
        if isinstance(model, list):
            forest = join_trees(model, columns)
        else:
            forest = make_forest(model, columns, rounds)

        if self.codes is None:
            return forest

        block = self.codes.block.astype(np.int32)
        return forest._replace(block=block, code=self.codes.code)


class Pace:
    """Seconds per round, or per tree, since the clock was started."""

    def __init__(self, left: Left) -> None:
        self._left = left
        self._at_start = left()

    def count_affordable(self, rounds: int) -> float:
        """Return how many more rounds fit into the time, given `rounds` so far."""
        left = self._left()
        if left == math.inf:
            return math.inf

        spent = max(self._at_start - left, 1e-9)
        return rounds * max(left, 0.0) / spent
