"""Convert tree ensembles of scikit-learn to arrays.

No other file reads private attributes of scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import find_arrangement, hash_rows
from cavity.common.types import Floats, Ints
from cavity.errors import BadOption
from cavity.pool.tree_ensembles import Forest
from cavity.pool.tree_nodes import Nodes


def limit_cells(X: Floats) -> Floats:
    """Clip cells to the range of float32, in which scikit-learn's forests compare."""
    most = float(np.finfo(np.float32).max)
    if np.abs(X).max(initial=0.0) <= most:
        return X

    return np.clip(X, -most, most)


def bin_without_weights(model: Any) -> Any:
    """Let boosting bin its columns by unweighted quantiles; return the classifier.

    scikit-learn sorts a column anew for each of 254 weighted quantiles, which took two
    thirds of a default fit with class weights. The trees still use the weights.
    """
    bin_data = getattr(model, "_bin_data", None)
    if bin_data is not None and "sample_weight" in signature(bin_data).parameters:

        def bin_unweighted(X: Any, sample_weight: Any, is_training_data: bool) -> Any:
            return bin_data(X, None, is_training_data)

        model._bin_data = bin_unweighted

    return model


def grow_trees(
    X: Floats,
    y: Ints,
    weight: Floats | None,
    numbers: range,
    *,
    seed: int,
    leaves: int,
    threads: int,
) -> list[Any]:
    """Grow the trees of scikit-learn's ExtraTreesClassifier without its checks.

    The checks take nine tenths of its time on 200 rows, a fifth on 10,000. `numbers`:
    of the trees in their forest. `leaves`: maximum per tree, 0 if unlimited. `threads`:
    -1 for one per core.
    """
    from sklearn.utils.parallel import Parallel, delayed

    seeds = np.random.RandomState(seed).randint(2**31 - 1, size=numbers.stop)
    seeds = seeds[numbers.start :]
    grow = partial(_grow_tree, np.ascontiguousarray(X, np.float32), y, weight, leaves)
    if threads == 1:  # joblib would take a fifth longer on small tables
        return [grow(seed) for seed in seeds]

    parallel = Parallel(n_jobs=threads, prefer="threads")
    return list(parallel(delayed(grow)(seed) for seed in seeds))


def _grow_tree(
    X: NDArray[np.float32], y: Ints, weight: Floats | None, leaves: int, seed: int
) -> Any:
    """Grow an ExtraTreeClassifier by its private builder; if that has changed, by its
    public `fit`, which is slower.
    """
    try:
        from sklearn.tree._criterion import Gini
        from sklearn.tree._splitter import RandomSplitter
        from sklearn.tree._tree import BestFirstTreeBuilder, DepthFirstTreeBuilder, Tree

        classes = np.array([y.max() + 1], np.intp)
        deepest = np.iinfo(np.int32).max
        tree = Tree(X.shape[1], classes, 1)
        columns = max(1, int(np.sqrt(X.shape[1])))
        gini = Gini(1, classes)
        random = np.random.RandomState(seed)
        splitter = RandomSplitter(gini, columns, 1, 0.0, random, None)
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
    """Columns for trees, each times a sign, so that X and −X yield the same trees."""

    number: Ints
    sign: Floats

    @classmethod
    def first(cls, n: int) -> TreeColumns:
        """Return the first n columns, with their own signs."""
        return cls(np.arange(n), np.ones(n))


def choose_columns(X: Floats, members: Sequence[Any]) -> TreeColumns:
    """Choose the columns that vary, in an order that does not depend on theirs.

    All columns in their order if a member has constraints by column number.
    """
    every = TreeColumns.first(X.shape[1])
    for member in members:
        for name in ("monotonic_cst", "interaction_cst"):
            if getattr(member, name, None) is not None:
                return every

    _, first = np.unique(hash_rows(X), return_index=True)
    sign, varying = find_arrangement(X[first])
    if len(varying):
        return TreeColumns(varying, sign[varying])

    return every


def make_forest(
    model: Any, columns: TreeColumns | None = None, rounds: int | None = None
) -> Forest:
    """Convert trees fitted to these columns to arrays: the first `rounds`, or all.

    Raise BadOption for other classifiers.
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
            "HistGradientBoostingClassifier, ExtraTreesClassifier, "
            "RandomForestClassifier or DecisionTreeClassifier."
        )

    return join_trees([tree.tree_ for tree in trees], columns)


def join_trees(trees: list[Any], columns: TreeColumns) -> Forest:
    """Convert the trees of a forest, with class frequencies in their leaves."""

    def join(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(tree, name) for tree in trees])

    count = np.concatenate([tree.value[tree.children_left < 0, 0] for tree in trees])
    frequency = np.asarray(count / count.sum(1, keepdims=True), np.float32)
    left = join("children_left")
    splits = _Splits(
        join("feature"), join("threshold"), left, join("children_right"), left < 0
    )
    sizes = [tree.node_count for tree in trees]
    column = np.zeros(len(trees), np.int32)
    start = np.zeros(count.shape[1])
    nodes = _number_nodes(splits, sizes, frequency, columns)
    return nodes.make_forest(column, start, boosted=False)


class _Splits(NamedTuple):
    """Nodes of all trees, [nodes] each; children are numbered within their tree."""

    feature: NDArray[Any]
    threshold: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]
    is_leaf: NDArray[np.bool_]


def _number_nodes(
    splits: _Splits, sizes: list[int], value: NDArray[Any], columns: TreeColumns
) -> Nodes:
    """Number the nodes of all trees one after the other.

    `sizes`: number of nodes per tree; `value`: of the leaves.
    """
    ends = np.cumsum(sizes)
    root = ends - sizes
    offset = np.repeat(root, sizes)
    own = np.arange(ends[-1])
    left = np.where(splits.is_leaf, own, offset + splits.left)
    right = np.where(splits.is_leaf, own, offset + splits.right)
    feature = np.where(splits.is_leaf, 0, splits.feature)
    turned = columns.sign[feature] < 0  # −x ≤ t goes left: x < −t goes right
    mirrored = np.nextafter(-splits.threshold, -np.inf)
    return Nodes(
        columns.number[feature],
        np.where(turned, mirrored, splits.threshold),
        np.where(turned, right, left),
        np.where(turned, left, right),
        value,
        root,
    )


def _read_boosting(model: Any, columns: TreeColumns, rounds: int | None) -> Forest:
    """Read the trees of boosting from private attributes of scikit-learn.

    A prediction is checked, because other versions may store trees differently.
    """
    if np.any(model.is_categorical_):  # None without categories
        raise BadOption(
            "HistGradientBoostingClassifier with categorical_features cannot be stored "
            "as arrays: leave categorical_features out."
        )

    try:
        forest = _convert_boosting(model, columns, None)
        row = np.zeros((1, 1 + columns.number.max()))
        expected = model.predict_proba(row[:, columns.number])
        same = np.allclose(np.exp(forest.log_proba(row)), expected, atol=1e-4)
        if rounds is not None:
            forest = _convert_boosting(model, columns, rounds)
    except (AttributeError, LookupError, TypeError, ValueError):
        same = False

    if not same:
        raise BadOption(
            "the trees of HistGradientBoostingClassifier of scikit-learn "
            f"{version('scikit-learn')} cannot be read: install scikit-learn 1.6 to "
            "1.9, update cavity, or use ensemble=ExtraTreesClassifier(200)."
        )

    return forest


def _convert_boosting(model: Any, columns: TreeColumns, rounds: int | None) -> Forest:
    trees = []
    column = []
    for stage in model._predictors[:rounds]:
        for k, predictor in enumerate(stage):
            trees.append(predictor.nodes)
            column.append(k)

    nodes = np.concatenate(trees)
    is_leaf = nodes["is_leaf"].astype(bool)
    splits = _Splits(
        nodes["feature_idx"],
        nodes["num_threshold"],
        nodes["left"],
        nodes["right"],
        is_leaf,
    )
    sizes = [len(tree) for tree in trees]
    numbered = _number_nodes(splits, sizes, nodes["value"][is_leaf, None], columns)
    start = np.asarray(model._baseline_prediction, np.float64).reshape(-1)
    return numbered.make_forest(np.array(column, np.int32), start, boosted=True)
