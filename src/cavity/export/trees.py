"""The members of a pool as nodes of an ONNX graph: all trees of a member are one TreeEnsembleRegressor."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.common.onnx_graph import ML_DOMAIN, Value
from cavity.prediction.tree_ensembles import LEAST, Forest


def add_trees(forest: Forest, X: Value) -> Value:
    """Return logarithms of the class probabilities, [n C], as `Forest.log_proba` computes them.

    Thresholds and sums are in float64; the operator rounds each score to float32, by a relative error of 6e-8.
    """
    graph, types = X.graph, X.graph.onnx.TensorProto
    if not forest.boosted:
        X = graph.op("Cast", graph.op("Cast", X, to=types.FLOAT), to=types.DOUBLE)
    scores = graph.op("TreeEnsembleRegressor", X, domain=ML_DOMAIN, **_attributes(forest, graph.onnx))
    p = graph.op("Cast", scores, to=types.DOUBLE)
    if forest.boosted:
        if len(forest.start) == 1:
            p = graph.op("Concat", p * 0.0, p, axis=1)
        p = (p - p.max(1, keepdims=True)).exp()
    return _normalised(_normalised(p).at_least(LEAST)).log()


def _normalised(p: Value) -> Value:
    return p / p.sum(1, keepdims=True)


def _attributes(forest: Forest, onnx: Any) -> dict[str, Any]:
    """Return the trees as lists of nodes, and of what leaves add to which score; frequencies of 0 are left out."""
    node, start = np.arange(len(forest.child)), forest.root
    tree = np.searchsorted(start, node, side="right") - 1
    is_leaf = forest.child == node
    value = forest.value[forest.leaf]
    leaf, k = np.nonzero(is_leaf[:, None] & (forest.boosted | (value != 0)))
    target = forest.column[tree[leaf]] if forest.boosted else k

    def tensor(values: Any) -> Any:
        return onnx.numpy_helper.from_array(np.ascontiguousarray(values, dtype=np.float64))

    return {
        "n_targets": len(forest.start),
        "base_values_as_tensor": tensor(forest.start),
        "nodes_treeids": tree.tolist(),
        "nodes_nodeids": (node - start[tree]).tolist(),
        "nodes_featureids": forest.feature.tolist(),
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values_as_tensor": tensor(np.where(is_leaf, 0.0, forest.threshold)),
        "nodes_truenodeids": np.where(is_leaf, 0, forest.child - start[tree]).tolist(),
        "nodes_falsenodeids": np.where(is_leaf, 0, forest.child + 1 - start[tree]).tolist(),
        "target_treeids": tree[leaf].tolist(),
        "target_nodeids": (leaf - start[tree[leaf]]).tolist(),
        "target_ids": target.tolist(),
        "target_weights_as_tensor": tensor(value[leaf, k]),
    }
