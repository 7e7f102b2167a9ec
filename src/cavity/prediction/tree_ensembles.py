"""Tree ensembles as plain arrays: what a model keeps of scikit-learn's trees, so that files hold numbers and no code.

`fitting.sklearn_trees` makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.integer[Any]]
LEAST = 1e-6  # smallest probability that a member of a pool gives to a class
ROWS = 1 << 9  # of a block at most: their cells stay in the cache
# pairs of a row and a tree whose leaves are sought at a time: their arrays stay in the cache, too
PAIRS = 1 << 17
VALUES = 1 << 20  # numbers of leaves that are summed at a time
STEPS = 4  # levels that are walked before pairs at a leaf are left out
SMALL = 1 << 8  # nodes of a tree that a byte can number
MOST_NODES = 1 << 18  # of all small trees: a block of FEW rows then takes 50 MB
FEW = 64  # rows up to which walking down is faster than looking at all nodes


NO_CODES: Any = np.empty(0)


class Forest(NamedTuple):
    """Trees with K numbers at each leaf. The children of a node are neighbours with larger numbers; a leaf is its own child."""

    feature: Index  # [nodes]
    threshold: NDArray[np.floating[Any]]  # [nodes], rows with at most this go left; ∞ at a leaf
    child: NDArray[np.int32]  # [nodes], the left one
    leaf: Index  # [nodes], row of `value`: leaves with the same numbers share it
    value: NDArray[np.float32]  # [values K]
    root: NDArray[np.int32]  # [trees]
    column: NDArray[np.int32]  # [trees], where a tree with K = 1 adds its number; 0 if K = C
    start: Array  # [C], or [1] for two classes with one score
    boosted: bool  # scores of a softmax; otherwise frequencies, whose mean over the trees counts
    # [D] or empty: the levels of a category are features of their own, but trees split one column with a code for each level,
    # which is the first of these features
    block: Index = NO_CODES  # the first feature of each feature's category, or the feature itself
    code: Array = NO_CODES  # 1 for other features

    def add_codes(self, X: Any) -> Any:
        """Return rows, an array or a value of an ONNX graph, with the codes of categories."""
        if not len(self.code):
            return X
        codes = np.zeros((len(self.code), len(self.code)))
        codes[np.arange(len(self.code)), self.block] = self.code
        if not isinstance(X, np.ndarray):
            return X @ codes
        found = X.copy()
        for first in np.unique(self.block[self.block != np.arange(len(self.block))]):
            of = np.flatnonzero(self.block == first)
            found[:, first] = X[:, of] @ self.code[of]
        return found

    def log_proba(self, X: Array) -> Array:
        """Return logarithms of the class probabilities, [n C]."""
        X = self.add_codes(X)
        # scikit-learn's forests compare cells in float32, its boosting in float64
        with np.errstate(over="ignore"):  # cells beyond float32 are infinite
            X = X.astype(self.threshold.dtype)
        climbs = len(X) > FEW and len(self.child) <= MOST_NODES and self._sizes().max() <= SMALL
        find = self._make_climber() if climbs else self._descend
        rows = min(ROWS, max(FEW, PAIRS // len(self.root))) if climbs else ROWS
        blocks = (np.ascontiguousarray(X[i : i + rows].T) for i in range(0, len(X), rows))
        parts = [self._find_logs(find(cells)) for cells in blocks]
        return np.concatenate(parts) if parts else np.empty((0, max(2, len(self.start))))

    def _sizes(self) -> Index:
        """Return the number of nodes of each tree."""
        return np.diff(self.root, append=len(self.child))

    def _descend(self, cells: NDArray[Any]) -> Index:
        """Return the row of `value` that rows with these cells [D n] get, [trees n]: all rows in some of the trees at a time."""
        n, trees = cells.shape[1], len(self.root)
        most, found = max(1, PAIRS // n), np.empty((trees, n), np.int32)
        for first in range(0, trees, most):
            root = self.root[first : first + most].astype(np.intp)
            row = np.tile(np.arange(n), len(root)) if n > 1 else None
            leaves = self._walk(root.repeat(n), row, cells)
            found[first : first + most] = self.leaf.take(leaves).reshape(-1, n)
        return found

    def _walk(self, at: Index, row: Index | None, cells: NDArray[Any]) -> Index:
        """Return the leaves below the nodes `at`; `row` numbers the row of each, None if there is one row."""
        n, flat = cells.shape[1], cells.reshape(-1)
        while True:
            for _ in range(STEPS):
                before, cell = at, self.feature.take(at)
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

    def _make_climber(self) -> Callable[[NDArray[Any]], Index]:
        """Return what `_descend` does, for small trees: from the deepest nodes up, each takes over the leaf of one of its children.

        A byte per node and row, the number of that leaf in its tree: a CPU computes dozens of bytes at a time.
        """
        levels, at = [], self.root
        while len(at):
            at = at[self.child[at] != at]
            left = self.child[at]
            levels.append((at, left, self.feature[at], self.threshold[at, None]))
            at = np.concatenate([left, left + 1])
        own = np.arange(len(self.child)) - np.repeat(self.root, self._sizes())

        def climb(cells: NDArray[Any]) -> Index:
            number = np.repeat(own.astype(np.uint8)[:, None], cells.shape[1], 1)  # [nodes n]
            for at, left, feature, threshold in reversed(levels):
                right = cells.take(feature, 0) > threshold
                of_left, of_right = number.take(left, 0), number.take(left + 1, 0)
                of_right -= of_left
                of_right *= right.view(np.uint8)
                of_right += of_left
                number[at] = of_right
            return self.leaf.take(self.root[:, None] + number[self.root])

        return climb

    def _find_logs(self, leaves: Index) -> Array:
        if not self.boosted:
            return _normalised(self._sum_frequencies(leaves))
        scores = self.start + self._sum_scores(leaves)
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        scores -= scores.max(1, keepdims=True)
        return _normalised(np.exp(scores))

    def _sum_frequencies(self, leaves: Index) -> Array:
        """Return the sum over trees, in their order: its last bits do not depend on the other rows, [n C]."""
        size = max(1, VALUES // (len(leaves) * self.value.shape[1]))
        some = (leaves[:, i : i + size] for i in range(0, leaves.shape[1], size))
        return np.concatenate([self.value.take(part, 0).astype(np.float64).sum(0) for part in some])

    def _sum_scores(self, leaves: Index) -> Array:
        """Return the sum over the trees of each column, in their order, [n C] or [n 1]."""
        C, n = len(self.start), leaves.shape[1]
        cell = self.column[:, None] + C * np.arange(n)
        value = self.value[:, 0].take(leaves)
        total = np.bincount(cell.reshape(-1), value.reshape(-1), n * C)
        return np.asarray(total, dtype=np.float64).reshape(n, C)


def _normalised(p: Array) -> Array:
    p = np.maximum(p / p.sum(1, keepdims=True), LEAST)
    return np.asarray(np.log(p / p.sum(1, keepdims=True)))


class Nodes(NamedTuple):
    """The nodes of all trees, with both children; a leaf is its own child, and children come after their parent."""

    feature: NDArray[Any]  # [nodes]
    threshold: NDArray[Any]  # [nodes]
    left: NDArray[Any]  # [nodes]
    right: NDArray[Any]  # [nodes]
    value: NDArray[Any]  # [leaves K], in the order of nodes
    root: NDArray[Any]  # [trees], ascending

    def make_forest(self, column: NDArray[np.int32], start: Array, boosted: bool) -> Forest:
        """Return the trees with children as neighbours, and equal leaves once."""
        node, child, root = self._arrange()
        is_leaf = child == np.arange(len(child))
        threshold = np.where(is_leaf, np.inf, self.threshold[node])
        number = np.cumsum(self.left == np.arange(len(self.left))) - 1  # of a leaf among the leaves
        place, value = _find_distinct(self.value[number[node[is_leaf]]].astype(np.float32, copy=False))
        leaf = np.zeros(len(node), np.int64)
        leaf[is_leaf] = place
        threshold = threshold if boosted else _round_down(threshold)
        feature = np.where(is_leaf, 0, self.feature[node])
        return Forest(_shrink(feature), threshold, child, _shrink(leaf), value, root, column, start, boosted)

    def _arrange(self) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]:
        """Return the nodes in their new order, the left child of each there, and the roots: a tree's nodes follow its root."""
        inner, trees = np.flatnonzero(self.left != np.arange(len(self.left))), len(self.root)
        pairs = np.stack([self.left[inner], self.right[inner]], 1)
        tree = np.searchsorted(self.root, inner, side="right") - 1
        order = np.argsort(np.concatenate([np.arange(trees), np.repeat(tree, 2)]), kind="stable")
        node = np.concatenate([self.root, pairs.reshape(-1)]).astype(np.intp)[order]
        place = np.empty(len(node), np.int32)
        place[order] = np.arange(len(node))
        child = np.arange(len(node), dtype=np.int32)
        parents = np.flatnonzero(self.left[node] != node)
        child[parents] = place[trees + 2 * np.searchsorted(inner, node[parents])]
        return node, child, place[:trees]


def _find_distinct(value: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return each row's index in the distinct rows, and these."""
    draw, size = np.random.default_rng(0).random(value.shape[1]), max(1, VALUES // value.shape[1])
    blocks = [slice(i, i + size) for i in range(0, len(value), size)]
    key = np.concatenate([(value[block] * draw).sum(1) for block in blocks])  # faster to sort than rows
    _, first, place = np.unique(key, return_index=True, return_inverse=True)
    found = value[first]
    same = all(np.array_equal(found[place[block]], value[block]) for block in blocks)
    return (place, found) if same else (np.arange(len(value)), value)


def _round_down(threshold: Array) -> NDArray[np.float32]:
    """Return the largest float32 up to each threshold: the same float32 cells are at most this."""
    found = threshold.astype(np.float32)
    return np.where(found > threshold, np.nextafter(found, np.float32(-np.inf)), found)


def _shrink(index: Index) -> Index:
    kinds = (np.uint8, np.int16, np.int32)
    return index.astype(next(kind for kind in kinds if index.max(initial=0) <= np.iinfo(kind).max))
