"""Tree ensembles as plain arrays: what a model keeps of scikit-learn's trees, so that files hold numbers and no code.

`fitting.sklearn_trees` makes them.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LEAST = 1e-6  # smallest probability that a member of a pool gives to a class
BLOCK = 1 << 22  # pairs of a row and a tree whose leaves are held at a time
PAIRS = 1 << 15  # of them that are walked at a time: their arrays, and a few trees, stay in the cache
ROWS = 1 << 12  # most rows of a block: they stay in the cache, too
VALUES = 1 << 20  # numbers of leaves that are summed at a time
STEPS = 4  # levels that are walked before pairs at a leaf are left out


class _Arrays(NamedTuple):
    feature: NDArray[np.int32]  # [nodes]
    threshold: Array  # [nodes], a row goes left if its feature is at most this
    left: NDArray[np.int32]  # [nodes]
    right: NDArray[np.int32]  # [nodes]
    value: NDArray[np.float32]  # [nodes K]
    root: NDArray[np.int32]  # [trees]
    column: NDArray[np.int32]  # [trees], where a tree with K = 1 adds its number; 0 for K classes
    start: Array  # [C], or [1] for two classes with one score
    boosted: bool  # leaves hold scores, of which a softmax makes probabilities; otherwise frequencies


class _Places(NamedTuple):
    """Nodes in the order of a walk: place t is the root of tree t, and the children of a node are neighbours."""

    feature: NDArray[np.intp]  # [places]
    threshold: Array  # [places], ∞ at a leaf
    child: NDArray[np.intp]  # [places], of the left child; a leaf is its own
    node: NDArray[np.intp]  # [places], its number

    def walk(self, at: NDArray[np.intp], rows: Array, row: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the leaves below the places `at`; `row` is where the row of each begins in the flat `rows`."""
        found, going = at, np.arange(len(at))
        while len(going):
            before = at
            for _ in range(STEPS):
                before, cell = at, self.feature.take(at)
                cell += row
                right = rows.take(cell) > self.threshold.take(at)
                at = self.child.take(at)
                at += right
            found[going] = self.node.take(at)
            moved = np.flatnonzero(at != before)
            going, at, row = going[moved], at[moved], row[moved]
        return found


class Forest(_Arrays):
    """Trees with K numbers at each leaf. A node's children have larger numbers; a leaf is its own child."""

    @cached_property
    def places(self) -> _Places:
        """Nodes in the order of a walk, computed at the first prediction."""
        own = np.arange(len(self.left))
        inner = (self.left != own) | (self.right != own)
        pairs = np.stack([self.left[inner], self.right[inner]], 1)
        node = np.concatenate([self.root, pairs.reshape(-1)]).astype(np.intp)
        child = (len(self.root) + 2 * (np.cumsum(inner) - 1))[node]
        at_leaf = ~inner[node]
        child[at_leaf] = np.flatnonzero(at_leaf)
        threshold = np.where(at_leaf, np.inf, self.threshold[node])
        return _Places(self.feature[node].astype(np.intp), threshold, child.astype(np.intp), node)

    def __getstate__(self) -> None:
        """Leave the places out of pickles and copies."""

    def log_proba(self, X: Array) -> Array:
        """Return logarithms of the class probabilities, [n C]."""
        rows = max(1, min(ROWS, BLOCK // len(self.root)))
        if not self.boosted:  # scikit-learn's forests compare features in float32, its boosting in float64
            with np.errstate(over="ignore"):  # cells beyond float32 are infinite
                X = X.astype(np.float32).astype(np.float64)
        parts = [self._block(np.ascontiguousarray(X[i : i + rows])) for i in range(0, len(X), rows)]
        return np.concatenate(parts) if parts else np.empty((0, max(2, len(self.start))))

    def _find_leaves(self, X: Array) -> NDArray[np.int32]:
        """Return the leaf of each row in each tree, [trees n]: all rows in some of the trees at a time."""
        (n, D), trees = X.shape, len(self.root)
        most, rows = max(1, PAIRS // n), X.reshape(-1)
        found = np.empty((trees, n), np.int32)
        for first in range(0, trees, most):
            some = range(first, min(trees, first + most))
            at, row = np.repeat(np.array(some), n), np.tile(D * np.arange(n), len(some))
            found[first : some.stop] = self.places.walk(at, rows, row).reshape(-1, n)
        return found

    def _block(self, X: Array) -> Array:
        leaves = self._find_leaves(X)
        if not self.boosted:
            return _normalised(self._sum_frequencies(leaves))
        scores = self.start + self._sum_scores(leaves)
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        scores -= scores.max(1, keepdims=True)
        return _normalised(np.exp(scores))

    def _sum_frequencies(self, leaves: NDArray[np.int32]) -> Array:
        """Return the sum over trees, in their order: its last bits do not depend on the other rows, [n C]."""
        size = max(1, VALUES // (len(leaves) * self.value.shape[1]))
        some = (leaves[:, i : i + size] for i in range(0, leaves.shape[1], size))
        return np.concatenate([self.value.take(part, 0).astype(np.float64).sum(0) for part in some])

    def _sum_scores(self, leaves: NDArray[np.int32]) -> Array:
        """Return the sum over the trees of each column, in their order, [n C] or [n 1]."""
        C, n = len(self.start), leaves.shape[1]
        cell = self.column[:, None] + C * np.arange(n)
        value = self.value[:, 0].take(leaves)
        total = np.bincount(cell.reshape(-1), value.reshape(-1), n * C)
        return np.asarray(total, dtype=np.float64).reshape(n, C)


def _normalised(p: Array) -> Array:
    p = np.maximum(p / p.sum(1, keepdims=True), LEAST)
    return np.asarray(np.log(p / p.sum(1, keepdims=True)))
