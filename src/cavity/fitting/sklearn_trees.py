"""Tree ensembles of scikit-learn as arrays: the only file that reads its private attributes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import distinct_rows, order_columns
from cavity.errors import BadOption
from cavity.prediction.tree_ensembles import Forest


def limit_cells(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows within the range of a float32, in which scikit-learn's forests compare cells."""
    most = float(np.finfo(np.float32).max)
    return X if np.abs(X).max(initial=0.0) <= most else np.clip(X, -most, most)


def bin_without_weights(model: Any) -> Any:
    """Return the classifier; if it is boosting, it bins its columns by quantiles of the rows, whatever these weigh.

    scikit-learn sorts a column anew for each of 254 weighted quantiles, which took two thirds of a default fit with class weights.
    The trees weigh rows as before.
    """
    bins = getattr(model, "_bin_data", None)
    if bins is not None and "sample_weight" in signature(bins).parameters:
        model._bin_data = lambda X, sample_weight, is_training_data: bins(X, None, is_training_data)
    return model


def choose_columns(X: NDArray[np.float64], members: Sequence[Any]) -> NDArray[np.int64]:
    """Return the columns that trees are fitted to, in an order that does not depend on the user's; not the constant ones.

    All columns in the user's order, if a member has constraints by the numbers of columns.
    """
    if any(
        getattr(m, name, None) is not None for m in members for name in ("monotonic_cst", "interaction_cst")
    ):
        return np.arange(X.shape[1])
    found = order_columns(distinct_rows(X)[0])
    return found if len(found) else np.arange(X.shape[1])


def make_forest(model: Any, columns: NDArray[np.int64] | None = None) -> Forest:
    """Return the arrays of a tree ensemble, fitted to these columns; raises BadOption for a classifier without trees."""
    forest = _read_forest(model)
    return forest if columns is None else forest._replace(feature=columns[forest.feature].astype(np.int32))


def _read_forest(model: Any) -> Forest:
    from sklearn.ensemble import HistGradientBoostingClassifier

    if isinstance(model, HistGradientBoostingClassifier):
        return _read_boosting(model)
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


def _read_boosting(model: Any) -> Forest:
    """Read the trees of boosting, which scikit-learn keeps in private attributes, and check one prediction."""
    if np.any(model.is_categorical_):  # None without categories
        raise BadOption(
            "HistGradientBoostingClassifier with categorical_features cannot be stored as arrays: leave categorical_features out."
        )
    try:
        forest = _from_boosting(model)
        row = np.zeros((1, model.n_features_in_))
        same = np.allclose(np.exp(forest.log_proba(row)), model.predict_proba(row), atol=1e-4)
    except (AttributeError, LookupError, TypeError, ValueError):
        same = False
    if not same:
        raise BadOption(
            f"the trees of HistGradientBoostingClassifier of scikit-learn {version('scikit-learn')} cannot be read: install "
            "scikit-learn 1.6 to 1.9, update cavity, or use ensemble=ExtraTreesClassifier(200)."
        )
    return forest


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
