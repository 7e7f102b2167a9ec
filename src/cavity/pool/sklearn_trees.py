"""Tree ensembles of scikit-learn as arrays: the only file that reads its private
attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import find_signs, hash_rows, order_columns
from cavity.common.types import Floats, Ints
from cavity.errors import BadOption
from cavity.pool.tree_ensembles import Forest, Nodes


def limit_cells(X: Floats) -> Floats:
    """Return the rows within the range of a float32, in which scikit-learn's forests
    compare cells.
    """
    most = float(np.finfo(np.float32).max)
    if np.abs(X).max(initial=0.0) <= most:
        return X
    return np.clip(X, -most, most)


def bin_without_weights(model: Any) -> Any:
    """Return the classifier; if it is boosting, it bins its columns by quantiles of the
    rows, whatever these weigh.

    scikit-learn sorts a column anew for each of 254 weighted quantiles, which took two
    thirds of a default fit with class weights. The trees weigh rows as before.
    """
    bins = getattr(model, "_bin_data", None)
    if bins is not None and "sample_weight" in signature(bins).parameters:
        model._bin_data = lambda X, sample_weight, is_training_data: bins(
            X, None, is_training_data
        )
    return model


def grow_trees(
    X: Floats,
    y: Ints,
    weight: Floats | None,
    n_trees: int,
    seed: int,
    leaves: int,
    threads: int,
) -> list[Any]:
    """Grow scikit-learn's ExtraTreesClassifier without its checks: nine tenths of its
    time on 200 rows, a fifth on 10,000.

    `leaves`: most of a tree; 0 for any number. `threads`: -1 for one per core.
    """
    from sklearn.utils.parallel import Parallel, delayed

    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=n_trees)
    grow = partial(_grow_tree, np.ascontiguousarray(X, np.float32), y, weight, leaves)
    if threads == 1:  # joblib would take a fifth longer on small tables
        return list(map(grow, seeds))
    return list(
        Parallel(n_jobs=threads, prefer="threads")(
            delayed(grow)(seed) for seed in seeds
        )
    )


def _grow_tree(
    X: NDArray[np.float32], y: Ints, weight: Floats | None, leaves: int, seed: int
) -> Any:
    """Grow an ExtraTreeClassifier by its builder alone; by its public `fit`, which is
    slower, if the builder has changed.
    """
    try:
        from sklearn.tree._criterion import Gini
        from sklearn.tree._splitter import RandomSplitter
        from sklearn.tree._tree import BestFirstTreeBuilder, DepthFirstTreeBuilder, Tree

        classes = np.array([y.max() + 1], np.intp)
        deepest = np.iinfo(np.int32).max
        tree = Tree(X.shape[1], classes, 1)
        columns = max(1, int(np.sqrt(X.shape[1])))
        splitter = RandomSplitter(
            Gini(1, classes), columns, 1, 0.0, np.random.RandomState(seed), None
        )
        if 0 < leaves < len(y):
            builder = BestFirstTreeBuilder(splitter, 2, 1, 0.0, deepest, leaves, 0.0)
        else:
            builder = DepthFirstTreeBuilder(splitter, 2, 1, 0.0, deepest, 0.0)
        builder.build(tree, X, y[:, None].astype(np.float64), weight)
        return tree
    except (ImportError, TypeError, ValueError, AttributeError):
        from sklearn.tree import ExtraTreeClassifier

        model = ExtraTreeClassifier(random_state=seed, max_leaf_nodes=leaves or None)
        return model.fit(X, y, weight, check_input=False).tree_


class TreeColumns(NamedTuple):
    """Columns that trees are fitted to, each times a sign: X and −X make the same
    trees.
    """

    number: Ints
    sign: Floats

    @classmethod
    def first(cls, n: int) -> TreeColumns:
        """Return the first n columns, none turned."""
        return cls(np.arange(n), np.ones(n))


def choose_columns(X: Floats, members: Sequence[Any]) -> TreeColumns:
    """Return the columns for trees: those that vary, in an order of their own, or all
    if a member has constraints by number.
    """
    limits = (
        getattr(m, name, None)
        for m in members
        for name in ("monotonic_cst", "interaction_cst")
    )
    if any(limit is not None for limit in limits):
        return TreeColumns.first(X.shape[1])
    distinct = X[np.unique(hash_rows(X), return_index=True)[1]]
    sign = find_signs(distinct)
    found = order_columns(distinct * sign)
    if len(found):
        return TreeColumns(found, sign[found])
    return TreeColumns.first(X.shape[1])


def make_forest(
    model: Any, columns: TreeColumns | None = None, rounds: int | None = None
) -> Forest:
    """Return the arrays of trees fitted to these columns, of so many `rounds` or all.

    Raises BadOption for other classifiers.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    if columns is None:
        columns = TreeColumns.first(model.n_features_in_)
    if isinstance(model, HistGradientBoostingClassifier):
        return _read_boosting(model, columns, rounds)
    trees = np.ravel(getattr(model, "estimators_", [model]))
    if not all(hasattr(tree, "tree_") for tree in trees):
        raise BadOption(
            f"{type(model).__name__} cannot be stored as arrays: use "
            f"HistGradientBoostingClassifier, ExtraTreesClassifier, "
            "RandomForestClassifier or DecisionTreeClassifier."
        )
    return join_trees([tree.tree_ for tree in trees], columns)


def join_trees(trees: list[Any], columns: TreeColumns) -> Forest:
    """Return the arrays of a forest's trees, with the frequencies of the classes in
    their leaves.
    """
    each = [
        (t.feature, t.threshold, t.children_left, t.children_right, t.children_left < 0)
        for t in trees
    ]
    value = np.concatenate([tree.value[tree.children_left < 0, 0] for tree in trees])
    nodes = _join_nodes(
        each, np.asarray(value / value.sum(1, keepdims=True), np.float32), columns
    )
    return nodes.make_forest(
        np.zeros(len(trees), np.int32), np.zeros(value.shape[1]), boosted=False
    )


def _join_nodes(trees: list[Any], value: NDArray[Any], columns: TreeColumns) -> Nodes:
    """Number the nodes of all trees: features, thresholds, left and right children,
    which are leaves; `value` is of the leaves.
    """
    root = np.cumsum([0, *(len(tree[0]) for tree in trees)])
    feature, threshold, left, right, is_leaf = (
        np.concatenate(part) for part in zip(*trees, strict=True)
    )
    is_leaf = is_leaf.astype(bool)
    own = np.arange(root[-1])
    first = np.repeat(root[:-1], np.diff(root))
    left, right = (np.where(is_leaf, own, first + child) for child in (left, right))
    feature = np.where(is_leaf, 0, feature)
    turned = columns.sign[feature] < 0  # −x ≤ t goes left: x < −t goes right
    threshold = np.where(turned, np.nextafter(-threshold, -np.inf), threshold)
    left, right = np.where(turned, right, left), np.where(turned, left, right)
    return Nodes(columns.number[feature], threshold, left, right, value, root[:-1])


def _read_boosting(model: Any, columns: TreeColumns, rounds: int | None) -> Forest:
    """Read the trees of boosting, which scikit-learn keeps in private attributes, and
    check one prediction.
    """
    if np.any(model.is_categorical_):  # None without categories
        raise BadOption(
            "HistGradientBoostingClassifier with categorical_features cannot be stored "
            "as arrays: leave categorical_features out."
        )
    try:
        forest = _from_boosting(model, columns, None)
        row = np.zeros((1, 1 + columns.number.max()))
        expected = model.predict_proba(row[:, columns.number])
        same = np.allclose(np.exp(forest.log_proba(row)), expected, atol=1e-4)
        if rounds is None:
            forest = forest
        else:
            forest = _from_boosting(model, columns, rounds)
    except (AttributeError, LookupError, TypeError, ValueError):
        same = False
    if not same:
        raise BadOption(
            f"the trees of HistGradientBoostingClassifier of scikit-learn "
            f"{version('scikit-learn')} cannot be read: install "
            "scikit-learn 1.6 to 1.9, update cavity, or use "
            "ensemble=ExtraTreesClassifier(200)."
        )
    return forest


def _from_boosting(model: Any, columns: TreeColumns, rounds: int | None) -> Forest:
    predictors = [
        (k, tree.nodes)
        for stage in model._predictors[:rounds]
        for k, tree in enumerate(stage)
    ]
    names = ("feature_idx", "num_threshold", "left", "right", "is_leaf")
    each = [tuple(nodes[name] for name in names) for _, nodes in predictors]
    value = np.concatenate(
        [nodes["value"][nodes["is_leaf"].astype(bool), None] for _, nodes in predictors]
    )
    column = np.array([k for k, _ in predictors], np.int32)
    start = np.asarray(model._baseline_prediction, np.float64).reshape(-1)
    return _join_nodes(each, value, columns).make_forest(column, start, boosted=True)
