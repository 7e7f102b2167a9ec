"""Nodes of fitted trees, arranged as a `Forest`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import hash_rows
from cavity.common.types import Floats
from cavity.pool.tree_ensembles import Forest, Index


class Nodes(NamedTuple):
    """The nodes of all trees, with both children.

    A leaf is its own child, and children come after their parent.
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
        """Place children next to each other, and store equal leaves once."""
        node, child, root = self._arrange()
        is_leaf = child == np.arange(len(child))
        threshold = np.where(is_leaf, np.inf, self.threshold[node])
        if not boosted:
            threshold = _round_down(threshold)
        # number of each leaf among the leaves
        number = np.cumsum(self.left == np.arange(len(self.left))) - 1
        leaves = number[node[is_leaf]]
        value = self.value[leaves].astype(np.float32, copy=False)
        _, first, place = np.unique(
            hash_rows(value), return_index=True, return_inverse=True
        )
        leaf = np.zeros(len(node), np.int64)
        leaf[is_leaf] = place
        return Forest(
            feature=_shrink(np.where(is_leaf, 0, self.feature[node])),
            threshold=threshold,
            child=child,
            leaf=_shrink(leaf),
            value=value[first],
            root=root,
            column=column,
            start=start,
            boosted=boosted,
        )

    def _arrange(self) -> tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]:
        """Return the nodes in their new order, their left children and the roots.

        The nodes of a tree follow its root.
        """
        inner = np.flatnonzero(self.left != np.arange(len(self.left)))
        trees = len(self.root)

        # roots first, then pairs of children; sorted by their trees
        pairs = np.stack([self.left[inner], self.right[inner]], 1)
        nodes = np.concatenate([self.root, pairs.reshape(-1)]).astype(np.intp)
        tree_of_pair = np.searchsorted(self.root, inner, side="right") - 1
        tree = np.concatenate([np.arange(trees), np.repeat(tree_of_pair, 2)])
        order = np.argsort(tree, kind="stable")
        node = nodes[order]
        place = np.empty(len(node), np.int32)
        place[order] = np.arange(len(node))

        child = np.arange(len(node), dtype=np.int32)
        parents = np.flatnonzero(self.left[node] != node)
        pair = np.searchsorted(inner, node[parents])
        child[parents] = place[trees + 2 * pair]
        return node, child, place[:trees]


def _round_down(threshold: Floats) -> NDArray[np.float32]:
    """Return the largest float32 up to each threshold.

    The same float32 cells are at most this.
    """
    nearest = threshold.astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest > threshold, below, nearest)


def _shrink(index: Index) -> Index:
    """Return the numbers in the smallest type that holds them."""
    largest = index.max(initial=0)
    for kind in (np.uint8, np.int16):
        if largest <= np.iinfo(kind).max:
            return index.astype(kind)
    return index.astype(np.int32)
