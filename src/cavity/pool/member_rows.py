"""Rows that the members of a pool are fitted to, with one code per level of a category
for trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Floats, Ints
from cavity.pool.sklearn_trees import TreeColumns, join_trees, limit_cells, make_forest
from cavity.pool.tree_ensembles import Forest, add_codes
from cavity.tables.table import Table

Left = Callable[[], float]  # the seconds that are left; infinity without a limit

LEVEL_ROWS = 20.0  # of a level of a category, with which its class shares count half


class Codes(NamedTuple):
    """Codes of the levels of categories, [D] each: see `Forest`."""

    block: Ints
    code: Floats


def make_codes(rows: MemberRows, blocks: Sequence[slice]) -> Codes | None:
    """Number the levels of categories by what they say of the labels; None without
    categories of three levels or more.

    The shares of the classes at each level, shrunk towards those of all rows, are
    ordered along their first principal axis. Codes are centred, so that a level which
    no training row has is in the middle.
    """
    block = np.arange(rows.X.shape[1])
    code = np.ones(rows.X.shape[1])
    if rows.weight is None:
        weight = np.ones(len(rows.y))
    else:
        weight = rows.weight
    labels = np.eye(rows.n_classes)[rows.y] * weight[:, None]
    prior = labels.sum(0) / weight.sum()
    wide = [of for of in blocks if of.stop - of.start > 2]
    for of in wide:
        count = rows.X[:, of].T @ labels  # [levels C]
        total = count.sum(1, keepdims=True)
        off = (count - total * prior) / (total + LEVEL_ROWS)
        axis = np.linalg.svd(np.sqrt(total) * off, full_matrices=False)[2][0]
        rank = np.argsort(
            np.argsort(off @ axis * np.sign(axis[np.abs(axis).argmax()]), kind="stable")
        )
        block[of] = of.start
        code[of] = rank - (len(rank) - 1) / 2
    return Codes(block, code) if wide else None


class MemberRows(NamedTuple):
    """Rows that a member is fitted to, or judged by."""

    X: Floats  # [n D]
    y: Ints
    weight: Floats | None  # None: all weigh the same
    n_classes: int
    codes: Codes | None = None  # for trees

    @classmethod
    def of(cls, table: Table) -> MemberRows:
        # equal weights are left out: scikit-learn is faster without
        weight = None
        if table.lightest != table.heaviest:
            weight = table.weight / table.weight.mean()
        return cls(limit_cells(table.X), table.y, weight, table.n_classes)

    def for_trees(self, columns: TreeColumns) -> tuple[MemberRows, TreeColumns]:
        """Return the rows with a code in place of the levels of a category, and their
        columns.
        """
        X = self.X
        # a code has no sign, as the features of categories have none
        if self.codes is not None:
            number, first = np.unique(
                self.codes.block[columns.number], return_index=True
            )
            order = np.argsort(first)
            columns = TreeColumns(number[order], columns.sign[first[order]])
            X = add_codes(X, *self.codes)
        return self._replace(X=X[:, columns.number] * columns.sign), columns

    def make_member(
        self, model: Any, columns: TreeColumns, rounds: int | None = None
    ) -> Forest:
        """Return the arrays of trees that are fitted to these columns: of a model, or
        of a list of trees.
        """
        if isinstance(model, list):
            make = join_trees(model, columns)
        else:
            make = make_forest(model, columns, rounds)
        if self.codes is None:
            return make
        return make._replace(
            block=self.codes.block.astype(np.int32), code=self.codes.code
        )
