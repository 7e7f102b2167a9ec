"""Tree ensembles as plain arrays: what a model keeps of scikit-learn's trees, so that files hold numbers and no code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadOption

Array = NDArray[np.float64]
LEAST = 1e-6  # smallest probability that a member of a pool gives to a class
BLOCK = 1 << 22  # pairs of a row and a tree that are walked at a time
TREE_BY_TREE = 200  # rows from which trees are walked one after the other


class Forest(NamedTuple):
    """Trees with K numbers at each leaf. A node's children have larger numbers; a leaf is its own child."""

    feature: NDArray[np.int32]  # [nodes]
    threshold: Array  # [nodes], a row goes left if its feature is at most this
    left: NDArray[np.int32]  # [nodes]
    right: NDArray[np.int32]  # [nodes]
    value: NDArray[np.float32]  # [nodes K]
    root: NDArray[np.int32]  # [trees]
    column: NDArray[
        np.int32
    ]  # [trees], where a tree with K = 1 adds its number; 0 if K is the number of classes
    start: Array  # [C], or [1] for two classes with one score
    boosted: (
        bool  # scores that a softmax turns into probabilities; otherwise the mean of the trees' frequencies
    )

    def log_proba(self, X: Array) -> Array:
        """Return logarithms of the class probabilities, [n C]."""
        rows = max(1, BLOCK // len(self.root))
        # scikit-learn's forests compare features in float32, its boosting in float64
        X = X if self.boosted else X.astype(np.float32).astype(np.float64)
        parts = [self._block(X[i : i + rows]) for i in range(0, len(X), rows)]
        return np.concatenate(parts) if parts else np.empty((0, max(2, len(self.start))))

    def _find_leaves(self, X: Array) -> NDArray[np.int32]:
        """Return the leaf of each row in each tree, [n trees]."""
        if len(X) < TREE_BY_TREE:
            return self._walk(X, np.broadcast_to(self.root, (len(X), len(self.root))))
        # one tree at a time stays in the cache
        start = np.zeros((len(X), 1), np.int32)
        return np.hstack([self._walk(X, start + root) for root in self.root])

    def _walk(self, X: Array, at: NDArray[np.int32]) -> NDArray[np.int32]:
        rows = np.arange(len(X))[:, None]
        while True:
            below = np.where(X[rows, self.feature[at]] <= self.threshold[at], self.left[at], self.right[at])
            if np.array_equal(below, at):
                return at
            at = below

    def _block(self, X: Array) -> Array:
        at = self._find_leaves(X)
        found = self.value[at].astype(np.float64)  # [n trees K]
        if not self.boosted:
            return _normalised(found.mean(1))
        scores = np.tile(self.start, (len(X), 1))
        for column in range(len(self.start)):
            scores[:, column] += found[:, self.column == column, 0].sum(1)
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        scores -= scores.max(1, keepdims=True)
        return _normalised(np.exp(scores))


def _normalised(p: Array) -> Array:
    p = np.maximum(p / p.sum(1, keepdims=True), LEAST)
    return np.asarray(np.log(p / p.sum(1, keepdims=True)))


def make_forest(model: Any) -> Forest:
    """Return the arrays of a fitted tree ensemble of scikit-learn; raises BadOption for any other classifier."""
    if hasattr(model, "_predictors"):
        return _from_boosting(model)
    trees = getattr(model, "estimators_", [model] if hasattr(model, "tree_") else None)
    if trees is None or not all(hasattr(tree, "tree_") for tree in np.ravel(trees)):
        raise BadOption(
            f"{type(model).__name__} cannot be stored as arrays: use HistGradientBoostingClassifier, ExtraTreesClassifier, "
            "RandomForestClassifier or DecisionTreeClassifier."
        )
    return _from_forest([tree.tree_ for tree in np.ravel(trees)], len(model.classes_))


def _from_forest(trees: list[Any], n_classes: int) -> Forest:
    offsets = np.cumsum([0, *(tree.node_count for tree in trees)])[:-1]
    own = [np.arange(tree.node_count) for tree in trees]
    is_leaf = [tree.children_left < 0 for tree in trees]
    left = [
        np.where(leaf, i, tree.children_left) + o
        for tree, i, leaf, o in zip(trees, own, is_leaf, offsets, strict=True)
    ]
    right = [
        np.where(leaf, i, tree.children_right) + o
        for tree, i, leaf, o in zip(trees, own, is_leaf, offsets, strict=True)
    ]
    value = np.concatenate([tree.value[:, 0, :] for tree in trees])
    value = value / value.sum(1, keepdims=True)
    return Forest(
        np.concatenate([np.maximum(tree.feature, 0) for tree in trees]).astype(np.int32),
        np.concatenate([tree.threshold for tree in trees]),
        np.concatenate(left).astype(np.int32),
        np.concatenate(right).astype(np.int32),
        value.astype(np.float32),
        offsets.astype(np.int32),
        np.zeros(len(trees), np.int32),
        np.zeros(n_classes),
        boosted=False,
    )


def _from_boosting(model: Any) -> Forest:
    predictors = [tree for stage in model._predictors for tree in stage]
    columns = [k for stage in model._predictors for k in range(len(stage))]
    nodes = [tree.nodes for tree in predictors]
    offsets = np.cumsum([0, *map(len, nodes)])[:-1]
    own = [np.arange(len(n)) for n in nodes]
    leaf = [n["is_leaf"].astype(bool) for n in nodes]
    children = {
        name: np.concatenate(
            [
                np.where(at, i, n[name].astype(np.int64)) + o
                for n, i, at, o in zip(nodes, own, leaf, offsets, strict=True)
            ]
        )
        for name in ("left", "right")
    }
    return Forest(
        np.concatenate([n["feature_idx"] for n in nodes]).astype(np.int32),
        np.concatenate([n["num_threshold"] for n in nodes]),
        children["left"].astype(np.int32),
        children["right"].astype(np.int32),
        np.concatenate([n["value"] for n in nodes]).astype(np.float32)[:, None],
        offsets.astype(np.int32),
        np.array(columns, np.int32),
        np.asarray(model._baseline_prediction, np.float64).reshape(-1),
        boosted=True,
    )
