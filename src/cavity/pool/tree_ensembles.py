"""Tree ensembles as plain arrays, so that model files hold numbers and no code.

`pool.sklearn_trees` converts the trees of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.slices import slices
from cavity.common.types import Floats

Index = NDArray[np.integer[Any]]
Bytes = NDArray[np.uint8]
# rows [n D] → nodes [trees n] of some rounds at a time
Leaves = Callable[[NDArray[Any]], Iterator[Index]]

LEAST = 1e-6  # smallest probability that a member of a pool gives to a class
ROWS = 1 << 9  # rows per block: their cells stay in the cache
# pairs of a row and a tree that are walked together: their arrays stay in the cache, too
PAIRS = 1 << 15
VALUES = 1 << 15  # numbers at leaves that are summed together
STEPS = 4  # levels that are walked before pairs at a leaf are left out
SMALL = 1 << 8  # nodes of a tree, and thresholds of a feature, that a byte can number
CLIMBED_NODES = 1 << 12  # this number of nodes stays in the cache with ROWS rows
MOST_NODES = 1 << 17  # in all small trees: ROWS rows then take 64 MB
FEW = 128  # up to this number of rows, walking down is faster than climbing

NO_CODES: Any = np.empty(0)


def add_codes(X: Any, block: Index, code: Floats) -> Any:
    """Return rows with a code at the first feature of each category: see `Forest`."""
    own = np.arange(len(code))
    coded = X.copy()
    for first in np.unique(block[block != own]):
        levels = np.flatnonzero(block == first)
        coded[:, first] = X[:, levels] @ code[levels]
    return coded


class _Arrays(NamedTuple):
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
    # [trees], where a tree with K = 1 adds its number: 0, 1, ..., C − 1 in each round; 0
    # if K = C
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


class Forest(_Arrays):
    """Trees that predict."""

    def __reduce__(self) -> Any:
        """Pickle the arrays alone."""
        return Forest, tuple(self)

    def add_codes(self, X: Any) -> Any:
        """Return rows with the codes of categories."""
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
        if len(X) > FEW and self._climbed is not None:
            find_leaves = _Climber(self._climbed)
        logs = []
        for some in slices(len(X), ROWS):
            leaves = find_leaves(X[some])
            logs.append(self._find_logs(leaves, len(X[some])))
        return np.concatenate(logs)

    @property
    def _round(self) -> int:
        """Number of trees in a round: boosting has one per class."""
        return len(self.start) if self.boosted else 1

    def _sizes(self) -> Index:
        """Return the number of nodes of each tree."""
        return np.diff(self.root, append=len(self.child))

    def _descend(self, X: NDArray[Any]) -> Iterator[Index]:
        """Walk rows down the trees; yield the leaves of some rounds, [trees n].

        All rows walk together through these trees.
        """
        n, D = X.shape
        cells = X.reshape(-1)
        size = self._round * max(1, PAIRS // (n * self._round))
        for some in slices(len(self.root), size):
            root = self.root[some].astype(np.intp)
            place = np.tile(D * np.arange(n), len(root)) if n > 1 else None
            yield self._walk(root.repeat(n), place, cells).reshape(-1, n)

    def _walk(self, at: Index, place: Index | None, cells: NDArray[Any]) -> Index:
        """Return the leaves below the nodes `at`.

        `place`: where the row at each node begins in `cells`; None if there is one row.
        """
        while True:
            for _ in range(STEPS):
                before = at
                cell = self.feature.take(at, mode="clip")
                if place is not None:
                    cell = place + cell
                right = cells.take(cell) > self.threshold.take(at, mode="clip")
                at = np.add(self.child.take(at, mode="clip"), right, dtype=np.intp)

            moved = np.flatnonzero(at != before)
            if not len(moved):
                return at
            if place is not None and 2 * len(moved) < len(at):  # leave out the others
                at[moved] = self._walk(at[moved], place[moved], cells)
                return at

    @cached_property
    def _climbed(self) -> Climbed | None:
        """The trees level by level, for `_Climber`; None if a byte is too small."""
        if len(self.child) > MOST_NODES or self._sizes().max() > SMALL:
            return None

        edges, rank = self._rank_thresholds()
        if any(len(thresholds) >= SMALL for thresholds in edges.values()):
            return None

        is_first = np.diff(self.root[:: self._round] // CLIMBED_NODES, prepend=-1) > 0
        starts = self._round * np.flatnonzero(is_first)
        groups = []
        for root in np.split(self.root, starts[1:]):
            levels = self._arrange_levels(root, rank)
            groups.append(Group(root[:, None].astype(np.intp), levels))
        return Climbed(edges, groups)

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
            number = own[at, None].astype(np.uint8)

            inner = np.flatnonzero(self.child[at] != at)
            at = at[inner]
            feature = self.feature[at].astype(np.intp)
            order = rank[at, None].astype(np.uint8)
            levels.append(Level(inner, feature, order, number))

            left = self.child[at]
            at = np.concatenate([left, left + 1])

        return levels

    def _find_logs(self, leaves: Iterator[Index], n: int) -> Floats:
        """Return log class probabilities of n rows, [n C], given their leaves."""
        if not self.boosted:
            total = np.zeros((n, len(self.start)))
            return _normalised(self._sum_leaves(leaves, total))

        total = np.zeros((len(self.start), n))
        scores = self.start + self._sum_leaves(leaves, total).T
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        scores -= scores.max(1, keepdims=True)
        return _normalised(np.exp(scores))

    def _sum_leaves(self, leaves: Iterator[Index], total: Floats) -> Floats:
        """Add the numbers at leaves to `total`, [C n] for boosting, otherwise [n C].

        Rounds are added one by one, so that the last bits do not depend on other rows.
        """
        size = self._round * max(1, VALUES // total.size)
        for group in leaves:
            for some in slices(len(group), size):
                numbers: NDArray[Any]
                if self.boosted:
                    numbers = self._scores.take(group[some])
                else:
                    numbers = self.value.take(self.leaf.take(group[some]), 0)
                rounds = numbers.reshape(-1, *total.shape)
                total = np.concatenate([total[None], rounds]).sum(0)
        return total

    @cached_property
    def _scores(self) -> Floats:
        """The number at each leaf, [nodes]."""
        return self.value[:, 0].astype(np.float64).take(self.leaf)


class Level(NamedTuple):
    """Nodes at one depth of some trees."""

    inner: Index  # places of the nodes that split
    feature: Index  # [inner]
    rank: Bytes  # [inner 1], of the threshold
    number: Bytes  # [nodes 1], in the tree


class Group(NamedTuple):
    """Some rounds of small trees, level by level."""

    root: Index  # [trees 1]
    levels: list[Level]  # from the roots down


class Climbed(NamedTuple):
    """Small trees, level by level."""

    edges: dict[int, NDArray[Any]]  # distinct thresholds of each feature that splits
    groups: list[Group]


class _Climber:
    """Finds leaves like `Forest._descend`, faster for small trees.

    From the deepest nodes up, each node takes over the leaf of one of its children. A
    byte per node and row numbers that leaf in its tree; another replaces a cell by the
    number of thresholds below it. A CPU computes dozens of bytes at a time.

    Memory is used again by the next call, so a climber belongs to one thread.
    """

    def __init__(self, climbed: Climbed) -> None:
        self.edges, groups = climbed
        blank = np.zeros(ROWS, np.uint8)
        self.groups = []
        widest = 0
        for group in groups:
            levels = []
            for level in group.levels:
                widest = max(widest, len(level.inner))
                # constant at leaves
                levels.append(level._replace(number=level.number + blank))
            self.groups.append(group._replace(levels=levels))
        self.scratch = np.empty((3, widest, ROWS), np.uint8)

    def __call__(self, X: NDArray[Any]) -> Iterator[Index]:
        """Yield the leaves of at most ROWS rows in each group, [trees n]."""
        cells = np.ascontiguousarray(X.T)
        code = np.empty(cells.shape, np.uint8)
        for feature, thresholds in self.edges.items():
            code[feature] = thresholds.searchsorted(cells[feature])
        for group in self.groups:
            yield group.root + _climb(group.levels, code, self.scratch)


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
