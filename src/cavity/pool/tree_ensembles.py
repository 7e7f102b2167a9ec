"""Tree ensembles as plain arrays: what a model keeps of scikit-learn's trees, so that
files hold numbers and no code.

`fitting.sklearn_trees` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Floats

Index = NDArray[np.integer[Any]]
LEAST = 1e-6  # smallest probability that a member of a pool gives to a class
ROWS = 1 << 9  # of a block at most: their cells stay in the cache
# pairs of a row and a tree whose leaves are sought at a time: their arrays stay in the
# cache, too
PAIRS = 1 << 15
VALUES = 1 << 20  # numbers of leaves that are summed at a time
STEPS = 4  # levels that are walked before pairs at a leaf are left out
SMALL = 1 << 8  # nodes of a tree, and thresholds of a feature, that a byte can number
CLIMBED = 1 << 8  # rows that climb at a time
CLIMBED_NODES = 1 << 13  # the nodes of so many trees stay in the cache with them
MOST_NODES = 1 << 18  # of all small trees: CLIMBED rows then take 64 MB
FEW = 128  # rows up to which walking down is faster than looking at all nodes


NO_CODES: Any = np.empty(0)


def add_codes(X: Any, block: Index, code: Floats) -> Any:
    """Return rows, an array or a value of an ONNX graph, with a code at the first
    feature of each category: see `Forest`.
    """
    own = np.arange(len(code))
    if not isinstance(X, np.ndarray):
        codes = np.zeros((len(code), len(code)))
        codes[own, block] = code
        return X @ codes
    found = X.copy()
    for first in np.unique(block[block != own]):
        of = np.flatnonzero(block == first)
        found[:, first] = X[:, of] @ code[of]
    return found


class Forest(NamedTuple):
    """Trees with K numbers at each leaf.

    The children of a node are neighbours with larger numbers; a leaf is its own child.
    """

    feature: Index  # [nodes]
    # [nodes], rows with at most this go left; ∞ at a leaf
    threshold: NDArray[np.floating[Any]]
    child: NDArray[np.int32]  # [nodes], the left one
    leaf: Index  # [nodes], row of `value`: leaves with the same numbers share it
    value: NDArray[np.float32]  # [values K]
    root: NDArray[np.int32]  # [trees]
    # [trees], where a tree with K = 1 adds its number; 0 if K = C
    column: NDArray[np.int32]
    start: Floats  # [C], or [1] for two classes with one score
    # scores of a softmax; otherwise frequencies, whose mean over the trees counts
    boosted: bool
    # [D] or empty: the levels of a category are features of their own, but trees split
    # one column with a code for each level, which is the first of these features the
    # first feature of each feature's category, or the feature itself
    block: Index = NO_CODES
    code: Floats = NO_CODES  # 1 for other features

    def add_codes(self, X: Any) -> Any:
        """Return rows, an array or a value of an ONNX graph, with the codes of
        categories.
        """
        if len(self.code):
            return add_codes(X, self.block, self.code)
        return X

    def log_proba(self, X: Floats) -> Floats:
        """Return logarithms of the class probabilities, [n C]."""
        X = self.add_codes(X)
        # scikit-learn's forests compare cells in float32, its boosting in float64
        with np.errstate(over="ignore"):  # cells beyond float32 are infinite
            X = X.astype(self.threshold.dtype)
        find = None
        if len(X) > FEW:
            find = self._make_climber()
        blocks = (slice(i, i + ROWS) for i in range(0, len(X), ROWS))
        parts = [
            self._find_logs((find or self._descend)(np.ascontiguousarray(X[i].T)))
            for i in blocks
        ]
        if parts:
            return np.concatenate(parts)
        return np.empty((0, max(2, len(self.start))))

    def _sizes(self) -> Index:
        """Return the number of nodes of each tree."""
        return np.diff(self.root, append=len(self.child))

    def _descend(self, cells: NDArray[Any]) -> Index:
        """Return the row of `value` that rows with these cells [D n] get, [trees n]:
        all rows in some of the trees at a time.
        """
        n = cells.shape[1]
        trees = len(self.root)
        most = max(1, PAIRS // n)
        found = np.empty((trees, n), np.int32)
        for first in range(0, trees, most):
            root = self.root[first : first + most].astype(np.intp)
            row = None
            if n > 1:
                row = np.tile(np.arange(n), len(root))
            leaves = self._walk(root.repeat(n), row, cells)
            found[first : first + most] = self.leaf.take(leaves).reshape(-1, n)
        return found

    def _walk(self, at: Index, row: Index | None, cells: NDArray[Any]) -> Index:
        """Return the leaves below the nodes `at`; `row` numbers the row of each, None
        if there is one row.
        """
        n = cells.shape[1]
        flat = cells.reshape(-1)
        while True:
            for _ in range(STEPS):
                before = at
                cell = self.feature.take(at)
                if row is not None:
                    cell = row + np.multiply(cell, n, dtype=np.intp)
                right = flat.take(cell) > self.threshold.take(at)
                at = np.add(self.child.take(at), right, dtype=np.intp)
            moved = np.flatnonzero(at != before)
            if not len(moved):
                return at
            if row is not None and 2 * len(moved) < len(at):  # leave out the others
                at[moved] = self._walk(at[moved], row[moved], cells)
                return at

    def _make_climber(self) -> Callable[[NDArray[Any]], Index] | None:
        """Return what `_descend` does, for small trees: from the deepest nodes up, each
        takes over the leaf of one of its children.

        A byte per node and row, the number of that leaf in its tree, and cells as the
        numbers of thresholds below them: a CPU computes dozens of bytes at a time. None
        if a byte is not enough.
        """
        if len(self.child) > MOST_NODES or self._sizes().max() > SMALL:
            return None
        edges, rank = self._rank_thresholds()
        if max(map(len, edges.values()), default=0) >= SMALL:
            return None
        start = np.flatnonzero(np.diff(self.root // CLIMBED_NODES, prepend=-1))
        root = self.root[:, None].astype(np.intp)
        groups = [
            self._arrange_levels(some, rank) for some in np.split(self.root, start[1:])
        ]
        most = max(len(level.inner) for levels in groups for level in levels)
        scratch = np.empty((3, most, CLIMBED), np.uint8)

        def climb(cells: NDArray[Any]) -> Index:
            found = np.empty((len(self.root), cells.shape[1]), self.leaf.dtype)
            for first in range(0, cells.shape[1], CLIMBED):
                some = slice(first, first + CLIMBED)
                code = np.empty(cells[:, some].shape, np.uint8)
                for feature, thresholds in edges.items():
                    code[feature] = thresholds.searchsorted(cells[feature, some])
                number = np.concatenate(
                    [_climb(levels, code, scratch) for levels in groups]
                )
                found[:, some] = self.leaf.take(root + number)
            return found

        return climb

    def _rank_thresholds(self) -> tuple[dict[int, NDArray[Any]], Index]:
        """Return the distinct thresholds of each feature that splits, and the place of
        each node's among them, [nodes].
        """
        rank = np.zeros(len(self.child), np.int64)
        edges = {}
        inner = np.flatnonzero(self.child != np.arange(len(self.child)))
        inner = inner[np.argsort(self.feature[inner], kind="stable")]
        features, start = np.unique(self.feature[inner], return_index=True)
        for feature, of in zip(
            features.tolist(), np.split(inner, start[1:]), strict=len(features) > 0
        ):
            edges[feature], rank[of] = np.unique(
                self.threshold[of], return_inverse=True
            )
        return edges, rank

    def _arrange_levels(self, at: Index, rank: Index) -> list[Level]:
        """Return the nodes at and below the roots `at`, level by level: left children,
        then right ones.
        """
        levels: list[Level] = []
        own = np.arange(len(self.child)) - np.repeat(self.root, self._sizes())
        while not levels or len(levels[-1].inner):
            inner = np.flatnonzero(self.child[at] != at)
            number = np.repeat(own[at, None].astype(np.uint8), CLIMBED, 1)
            at = at[inner]
            feature = self.feature[at].astype(np.intp)
            order = rank[at, None].astype(np.uint8)
            levels.append(Level(inner, feature, order, number))
            at = np.concatenate([self.child[at], self.child[at] + 1])
        return levels

    def _find_logs(self, leaves: Index) -> Floats:
        if not self.boosted:
            return _normalised(self._sum_frequencies(leaves))
        scores = self.start + self._sum_scores(leaves)
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        scores -= scores.max(1, keepdims=True)
        return _normalised(np.exp(scores))

    def _sum_frequencies(self, leaves: Index) -> Floats:
        """Return the sum over trees, in their order: its last bits do not depend on the
        other rows, [n C].
        """
        size = max(1, VALUES // (len(leaves) * self.value.shape[1]))
        some = (leaves[:, i : i + size] for i in range(0, leaves.shape[1], size))
        return np.concatenate(
            [self.value.take(part, 0).astype(np.float64).sum(0) for part in some]
        )

    def _sum_scores(self, leaves: Index) -> Floats:
        """Return the sum over the trees of each column, in their order, [n C] or [n 1]."""
        C = len(self.start)
        size = max(1, PAIRS // len(leaves))
        value = self.value[:, 0].astype(np.float64)
        total = np.empty((leaves.shape[1], C))
        for first in range(0, len(total), size):
            some = leaves[:, first : first + size]
            n = some.shape[1]
            cell = self.column[:, None] + C * np.arange(n)
            sums = np.bincount(cell.reshape(-1), value.take(some).reshape(-1), n * C)
            total[first : first + size] = sums.reshape(n, C)
        return total


class Level(NamedTuple):
    """Nodes at one depth of some trees."""

    inner: Index  # places of those that split
    feature: Index  # of these
    rank: NDArray[np.uint8]  # [inner 1], of their thresholds
    # [nodes CLIMBED], of the leaf at which rows end: constant at leaves
    number: NDArray[np.uint8]


def _climb(
    levels: list[Level], code: NDArray[np.uint8], scratch: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Return the numbers of the leaves, [trees n], of rows with these codes [D n].

    The next call overwrites them.
    """
    n = code.shape[1]
    number = levels[-1].number[:, :n]
    for level in reversed(levels[:-1]):
        k = len(level.inner)
        left = number[:k]
        right = number[k:]
        (step, cell, below) = scratch[:, :k, :n]
        # other modes take memory
        np.take(code, level.feature, 0, out=cell, mode="clip")
        np.greater(cell, level.rank, out=below.view(np.bool_))
        np.subtract(right, left, out=step)
        step *= below
        step += left
        number = level.number[:, :n]
        number[level.inner] = step
    return number


def _normalised(p: Floats) -> Floats:
    p = np.maximum(p / p.sum(1, keepdims=True), LEAST)
    return np.asarray(np.log(p / p.sum(1, keepdims=True)))


class Nodes(NamedTuple):
    """The nodes of all trees, with both children; a leaf is its own child, and children
    come after their parent.
    """

    feature: NDArray[Any]  # [nodes]
    threshold: NDArray[Any]  # [nodes]
    left: NDArray[Any]  # [nodes]
    right: NDArray[Any]  # [nodes]
    value: NDArray[Any]  # [leaves K], in the order of nodes
    root: NDArray[Any]  # [trees], ascending

    def make_forest(
        self, column: NDArray[np.int32], start: Floats, boosted: bool
    ) -> Forest:
        """Return the trees with children as neighbours, and equal leaves once."""
        node, child, root = self._arrange()
        is_leaf = child == np.arange(len(child))
        threshold = np.where(is_leaf, np.inf, self.threshold[node])
        # of a leaf among the leaves
        number = np.cumsum(self.left == np.arange(len(self.left))) - 1
        place, value = _find_distinct(
            self.value[number[node[is_leaf]]].astype(np.float32, copy=False)
        )
        leaf = np.zeros(len(node), np.int64)
        leaf[is_leaf] = place
        threshold = threshold if boosted else _round_down(threshold)
        feature = np.where(is_leaf, 0, self.feature[node])
        return Forest(
            _shrink(feature),
            threshold,
            child,
            _shrink(leaf),
            value,
            root,
            column,
            start,
            boosted,
        )

    def _arrange(self) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]:
        """Return the nodes in their new order, the left child of each there, and the
        roots: a tree's nodes follow its root.
        """
        inner = np.flatnonzero(self.left != np.arange(len(self.left)))
        trees = len(self.root)
        pairs = np.stack([self.left[inner], self.right[inner]], 1)
        tree = np.searchsorted(self.root, inner, side="right") - 1
        order = np.argsort(
            np.concatenate([np.arange(trees), np.repeat(tree, 2)]), kind="stable"
        )
        node = np.concatenate([self.root, pairs.reshape(-1)]).astype(np.intp)[order]
        place = np.empty(len(node), np.int32)
        place[order] = np.arange(len(node))
        child = np.arange(len(node), dtype=np.int32)
        parents = np.flatnonzero(self.left[node] != node)
        child[parents] = place[trees + 2 * np.searchsorted(inner, node[parents])]
        return node, child, place[:trees]


def _find_distinct(
    value: NDArray[np.float32],
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return each row's index in the distinct rows, and these."""
    draw = np.random.default_rng(0).random(value.shape[1])
    size = max(1, VALUES // value.shape[1])
    blocks = [slice(i, i + size) for i in range(0, len(value), size)]
    key = np.concatenate(
        [(value[block] * draw).sum(1) for block in blocks]
    )  # faster to sort than rows
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    found = value[first]
    same = all(np.array_equal(found[place[block]], value[block]) for block in blocks)
    if same:
        return (place, found)
    return (np.arange(len(value)), value)


def _round_down(threshold: Floats) -> NDArray[np.float32]:
    """Return the largest float32 up to each threshold: the same float32 cells are at
    most this.
    """
    found = threshold.astype(np.float32)
    return np.where(found > threshold, np.nextafter(found, np.float32(-np.inf)), found)


def _shrink(index: Index) -> Index:
    kinds = (np.uint8, np.int16, np.int32)
    return index.astype(
        next(kind for kind in kinds if index.max(initial=0) <= np.iinfo(kind).max)
    )
