"""Tree ensembles as plain arrays, so that model files hold numbers and no code.

`pool.sklearn_trees` converts the trees of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.slices import slices
from cavity.common.types import Floats

Index = NDArray[np.integer[Any]]
Bytes = NDArray[np.uint8]
Leaves = Callable[[NDArray[Any]], Index]  # cells [D n] → rows of `Forest.value`

LEAST = 1e-6  # smallest probability that a member of a pool gives to a class
ROWS = 1 << 9  # rows per block: their cells stay in the cache
# pairs of a row and a tree that are walked together: their arrays stay in the cache, too
PAIRS = 1 << 15
VALUES = 1 << 20  # numbers at leaves that are summed together
STEPS = 4  # levels that are walked before pairs at a leaf are left out
SMALL = 1 << 8  # nodes of a tree, and thresholds of a feature, that a byte can number
CLIMBED = 1 << 8  # rows that climb together
CLIMBED_NODES = 1 << 13  # this number of nodes stays in the cache with these rows
MOST_NODES = 1 << 18  # in all small trees: CLIMBED rows then take 64 MB
FEW = 128  # up to this number of rows, walking down is faster than climbing

NO_CODES: Any = np.empty(0)


def add_codes(X: Any, block: Index, code: Floats) -> Any:
    """Return rows with a code at the first feature of each category: see `Forest`.

    X is an array or a value of an ONNX graph.
    """
    own = np.arange(len(code))
    if not isinstance(X, np.ndarray):
        codes = np.zeros((len(code), len(code)))
        codes[own, block] = code
        return X @ codes

    coded = X.copy()
    for first in np.unique(block[block != own]):
        levels = np.flatnonzero(block == first)
        coded[:, first] = X[:, levels] @ code[levels]
    return coded


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
    # whether values are scores of a softmax; otherwise they are frequencies, which are
    # averaged over the trees
    boosted: bool
    # [D] or empty. The levels of a category are separate features, but trees split one
    # column with a code for each level, at the category's first feature. `block` is that
    # feature for each level; other features stand for themselves
    block: Index = NO_CODES
    code: Floats = NO_CODES  # 1 for other features

    def add_codes(self, X: Any) -> Any:
        """Return rows, an array or an ONNX value, with the codes of categories."""
        if len(self.code):
            return add_codes(X, self.block, self.code)

        return X

    def log_proba(self, X: Floats) -> Floats:
        """Return log class probabilities, [n C]."""
        X = self.add_codes(X)
        # scikit-learn's forests compare cells in float32, its boosting in float64
        with np.errstate(over="ignore"):  # cells beyond float32 are infinite
            X = X.astype(self.threshold.dtype)
        if not len(X):
            return np.empty((0, max(2, len(self.start))))

        find_leaves: Leaves = self._descend
        if len(X) > FEW:
            find_leaves = self._make_climber() or self._descend
        logs = []
        for piece in slices(len(X), ROWS):
            cells = np.ascontiguousarray(X[piece].T)
            logs.append(self._find_logs(find_leaves(cells)))
        return np.concatenate(logs)

    def _sizes(self) -> Index:
        """Return the number of nodes of each tree."""
        return np.diff(self.root, append=len(self.child))

    def _descend(self, cells: NDArray[Any]) -> Index:
        """Walk rows with cells [D n] down the trees; return rows of `value`, [trees n].

        All rows walk together through some of the trees.
        """
        n = cells.shape[1]
        size = max(1, PAIRS // n)
        found = np.empty((len(self.root), n), np.int32)
        for trees in slices(len(self.root), size):
            root = self.root[trees].astype(np.intp)
            row = np.tile(np.arange(n), len(root)) if n > 1 else None
            leaves = self._walk(root.repeat(n), row, cells)
            found[trees] = self.leaf.take(leaves).reshape(-1, n)

        return found

    def _walk(self, at: Index, row: Index | None, cells: NDArray[Any]) -> Index:
        """Return the leaves below the nodes `at`.

        `row`: number of the row at each node; None if there is one row.
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

    def _make_climber(self) -> Leaves | None:
        """Return a function like `_descend` that is faster for small trees.

        From the deepest nodes up, each node takes over the leaf of one of its children.
        A byte per node and row numbers that leaf in its tree; another replaces a cell
        by the number of thresholds below it. A CPU computes dozens of bytes at a time.
        None if a byte is too small.
        """
        if len(self.child) > MOST_NODES or self._sizes().max() > SMALL:
            return None

        edges, rank = self._rank_thresholds()
        if any(len(thresholds) >= SMALL for thresholds in edges.values()):
            return None

        is_first = np.diff(self.root // CLIMBED_NODES, prepend=-1) > 0
        groups = [
            self._arrange_levels(roots, rank)
            for roots in np.split(self.root, np.flatnonzero(is_first)[1:])
        ]
        widest = max(len(level.inner) for level in chain.from_iterable(groups))
        scratch = np.empty((3, widest, CLIMBED), np.uint8)
        root = self.root[:, None].astype(np.intp)

        def climb(cells: NDArray[Any]) -> Index:
            found = np.empty((len(self.root), cells.shape[1]), self.leaf.dtype)
            for some in slices(cells.shape[1], CLIMBED):
                code = np.empty(cells[:, some].shape, np.uint8)
                for feature, thresholds in edges.items():
                    code[feature] = thresholds.searchsorted(cells[feature, some])
                numbers = [_climb(levels, code, scratch) for levels in groups]
                found[:, some] = self.leaf.take(root + np.concatenate(numbers))

            return found

        return climb

    def _rank_thresholds(self) -> tuple[dict[int, NDArray[Any]], Index]:
        """Return the distinct thresholds of each feature, and each node's rank [nodes].

        Only features that split have thresholds. The rank is the place of the node's
        threshold among them.
        """
        inner = np.flatnonzero(self.child != np.arange(len(self.child)))
        inner = inner[np.argsort(self.feature[inner], kind="stable")]
        features, start = np.unique(self.feature[inner], return_index=True)
        ends = np.append(start[1:], len(inner))
        rank = np.zeros(len(self.child), np.int64)
        edges = {}
        for feature, first, last in zip(features.tolist(), start, ends, strict=False):
            nodes = inner[first:last]
            found = self.threshold[nodes]
            edges[feature], rank[nodes] = np.unique(found, return_inverse=True)

        return edges, rank

    def _arrange_levels(self, at: Index, rank: Index) -> list[Level]:
        """Return the nodes at and below the roots `at`, level by level.

        In a level, left children come before right ones.
        """
        levels: list[Level] = []
        own = np.arange(len(self.child)) - np.repeat(self.root, self._sizes())
        while not levels or len(levels[-1].inner):
            number = np.repeat(own[at, None].astype(np.uint8), CLIMBED, 1)

            inner = np.flatnonzero(self.child[at] != at)
            at = at[inner]
            feature = self.feature[at].astype(np.intp)
            order = rank[at, None].astype(np.uint8)
            levels.append(Level(inner, feature, order, number))

            left = self.child[at]
            at = np.concatenate([left, left + 1])

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
        """Return the sum over trees, [n C].

        Trees are added in their order, so that the last bits do not depend on other
        rows.
        """
        size = max(1, VALUES // (len(leaves) * self.value.shape[1]))
        sums = []
        for rows in slices(leaves.shape[1], size):
            value = self.value.take(leaves[:, rows], 0)
            sums.append(value.astype(np.float64).sum(0))
        return np.concatenate(sums)

    def _sum_scores(self, leaves: Index) -> Floats:
        """Return the sum over the trees of each column, in their order, [n C] or [n 1]."""
        C = len(self.start)
        size = max(1, PAIRS // len(leaves))
        value = self.value[:, 0].astype(np.float64)
        total = np.empty((leaves.shape[1], C))
        for rows in slices(len(total), size):
            scores = value.take(leaves[:, rows])
            n = scores.shape[1]
            cell = self.column[:, None] + C * np.arange(n)
            sums = np.bincount(cell.reshape(-1), scores.reshape(-1), n * C)
            total[rows] = sums.reshape(n, C)

        return total


class Level(NamedTuple):
    """Nodes at one depth of some trees."""

    inner: Index  # places of the nodes that split
    feature: Index  # [inner]
    rank: Bytes  # [inner 1], of the threshold
    # [nodes CLIMBED], number of the leaf at which rows end: constant at leaves
    number: Bytes


def _climb(levels: list[Level], code: Bytes, scratch: Bytes) -> Bytes:
    """Return the numbers of the leaves [trees n] of rows with codes [D n].

    The next call overwrites them.
    """
    n = code.shape[1]
    number = levels[-1].number[:, :n]
    for level in reversed(levels[:-1]):
        k = len(level.inner)
        left = number[:k]
        right = number[k:]
        step, cell, below = scratch[:, :k, :n]
        # mode: the others take memory
        np.take(code, level.feature, 0, out=cell, mode="clip")
        np.greater(cell, level.rank, out=below.view(np.bool_))
        np.subtract(right, left, out=step)
        step *= below
        step += left
        number = level.number[:, :n]
        number[level.inner] = step

    return number


def _normalised(p: Floats) -> Floats:
    """Return the logs of rows scaled to probabilities of at least about LEAST."""
    p = np.maximum(p / p.sum(1, keepdims=True), LEAST)
    return np.asarray(np.log(p / p.sum(1, keepdims=True)))
