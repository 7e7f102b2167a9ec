"""Trees as arrays predict what scikit-learn's own objects do."""

import pickle
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from cavity.common.slices import slices
from cavity.errors import BadOption
from cavity.pool import members
from cavity.pool.member_rows import MemberTask
from cavity.pool.sklearn_trees import (
    TreeColumns,
    bin_without_weights,
    grow_trees,
    make_forest,
)
from cavity.pool.tree_ensembles import FEW, LEAST, ROWS, VALUES

MODELS = {
    "boosting": HistGradientBoostingClassifier(max_iter=12, random_state=0),
    "extra trees": ExtraTreesClassifier(20, random_state=0),
    "leaves": ExtraTreesClassifier(20, max_leaf_nodes=9, random_state=0),
    "forest": RandomForestClassifier(20, random_state=0),
    "tree": DecisionTreeClassifier(max_depth=4),
}


@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_arrays_predict_as_the_object_does(name, C):
    X, y = make_classification(400, 6, n_informative=4, n_classes=C, random_state=0)
    model = MODELS[name].fit(X[:200], y[:200], np.linspace(0.5, 2, 200))
    expected = np.maximum(model.predict_proba(X), LEAST)
    expected /= expected.sum(1, keepdims=True)
    found = make_forest(model).log_proba(X)
    np.testing.assert_allclose(np.exp(found), expected, atol=1e-6)
    np.testing.assert_allclose(make_forest(model).log_proba(X[:0]).shape, (0, C))


@pytest.mark.parametrize("threads", [1, -1])
@pytest.mark.parametrize("leaves", [0, 12])
@pytest.mark.parametrize(
    "weight", [None, np.linspace(0.5, 2, 200)], ids=["equal", "weighted"]
)
@pytest.mark.parametrize("C", [2, 4])
def test_trees_of_the_builder_are_those_of_the_public_forest(
    weight, C, leaves, threads, monkeypatch
):
    X, y = make_classification(200, 6, n_informative=4, n_classes=C, random_state=0)
    grown = [grow_trees(X, y, weight, range(5), seed=0, leaves=leaves, threads=threads)]
    public = ExtraTreesClassifier(5, max_leaf_nodes=leaves or None, random_state=0).fit(
        X, y, weight
    )
    monkeypatch.setitem(
        sys.modules, "sklearn.tree._splitter", None
    )  # as if scikit-learn had moved it
    grown.append(
        grow_trees(X, y, weight, range(5), seed=0, leaves=leaves, threads=threads)
    )
    for trees in grown:
        for found, tree in zip(trees, public.estimators_, strict=True):
            assert found.node_count == tree.tree_.node_count
            np.testing.assert_array_equal(found.threshold, tree.tree_.threshold)
            np.testing.assert_array_equal(found.value, tree.tree_.value)


@pytest.mark.parametrize("C", [2, 4])
@pytest.mark.parametrize("name", ["boosting", "forest"])
def test_blocks_of_rows_and_trees_do_not_matter(name, C):
    """A few rows walk down the trees, many climb, in several blocks."""
    X, y = make_classification(1200, 6, n_informative=4, n_classes=C, random_state=0)
    forest = make_forest(MODELS[name].fit(X[:100], y[:100]))
    whole = forest.log_proba(X)
    assert FEW < ROWS < len(X)
    for size in (1, FEW, ROWS - 1):
        parts = [forest.log_proba(X[rows]) for rows in slices(len(X), size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_blocks_of_numbers_at_leaves_do_not_matter():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 4))
    forest = make_forest(ExtraTreesClassifier(60).fit(X, np.arange(ROWS) % 100))
    assert 60 * 100 * ROWS > 2 * VALUES
    parts = [forest.log_proba(X[rows]) for rows in slices(ROWS, 50)]
    np.testing.assert_array_equal(forest.log_proba(X), np.concatenate(parts))


@pytest.mark.parametrize("name", ["boosting", "forest"])
def test_a_pickle_holds_the_arrays_alone(name):
    X, y = make_classification(300, 6, n_informative=4, n_classes=4, random_state=0)
    forest = make_forest(MODELS[name].fit(X, y))
    before = pickle.dumps(forest)
    whole = forest.log_proba(X)
    assert pickle.dumps(forest) == before
    np.testing.assert_array_equal(pickle.loads(before).log_proba(X), whole)


@pytest.mark.parametrize("name", ["boosting", "extra trees", "leaves"])
def test_rows_at_thresholds_go_where_the_object_sends_them(name):
    X, y = make_classification(200, 4, random_state=0)
    model = MODELS[name].fit(X, y)
    trees = [t.tree_.threshold for t in getattr(model, "estimators_", [])]
    cells = np.concatenate(trees)[:500] if trees else make_forest(model).threshold[:500]
    cells = cells[np.isfinite(cells)]
    near = [np.nextafter(cells, way) for way in (-np.inf, np.inf)] + [
        cells.astype(np.float32).astype(float)
    ]
    rows = np.repeat(np.concatenate([cells, *near])[:, None], 4, 1)
    np.testing.assert_allclose(
        np.exp(make_forest(model).log_proba(rows)), model.predict_proba(rows), atol=2e-6
    )


def test_leaves_with_the_same_frequencies_are_stored_once():
    X, y = make_classification(300, 6, n_informative=4, n_classes=4, random_state=0)
    forest = make_forest(MODELS["extra trees"].fit(X, y))
    assert (
        len(forest.value) == 4
        and sum(array.nbytes for array in forest[:5]) <= 10 * len(forest.child) + 64
    )


def test_what_cannot_be_stored_as_arrays_is_refused():
    X, y = make_classification(60, random_state=0)
    with pytest.raises(BadOption, match="LogisticRegression"):
        make_forest(LogisticRegression().fit(X, y))
    X[:, 0] = X[:, 0] > 0
    with pytest.raises(BadOption, match="categorical_features"):
        make_forest(
            HistGradientBoostingClassifier(max_iter=2, categorical_features=[0]).fit(
                X, y
            )
        )


@pytest.mark.parametrize(
    "change",
    [
        lambda m: delattr(m, "_predictors"),
        lambda m: setattr(
            m, "_baseline_prediction", m._baseline_prediction + np.eye(3)[:1]
        ),
    ],
)
def test_private_attributes_that_another_version_changed_are_noticed(change):
    X, y = make_classification(60, n_informative=4, n_classes=3, random_state=0)
    model = HistGradientBoostingClassifier(max_iter=2).fit(X, y)
    expected = model.predict_proba

    class Later(HistGradientBoostingClassifier):
        """Predicts as before, with other attributes inside."""

        def predict_proba(self, X):
            return expected(X)

    later = Later()
    later.__dict__.update(model.__dict__)
    change(later)
    with pytest.raises(BadOption, match=r"scikit-learn \d"):
        make_forest(later)


def test_boosting_bins_columns_without_weights_but_weighs_the_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), rng.integers(2, size=400)
    weight = np.where(X[:, 0] > 0, 10.0, 1.0)
    new = HistGradientBoostingClassifier(max_iter=3, random_state=0)
    plain, weighted = (
        clone(new).fit(X, y),
        bin_without_weights(clone(new)).fit(X, y, weight),
    )
    for ours, theirs in zip(
        weighted._bin_mapper.bin_thresholds_,
        plain._bin_mapper.bin_thresholds_,
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert not np.allclose(weighted.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize("name", MODELS)
def test_trees_of_mirrored_columns_are_turned(name):
    """A cell that equals a threshold stays on its side: cells of a few values, and
    thresholds of rounded halves between them.
    """
    rng, sign = np.random.default_rng(0), np.array([-1.0, 1.0, -1.0])
    X = rng.integers(-3, 4, size=(300, 3)) / 10
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=300) > 0).astype(int)
    model = clone(MODELS[name]).fit(X * sign, y)
    forest = make_forest(model, TreeColumns(np.arange(3), sign))
    at = [
        np.eye(3)[j] * forest.threshold[forest.feature == j][:50, None]
        for j in range(3)
    ]
    rows = np.nan_to_num(np.concatenate([X, *at]), posinf=0.0)
    expected = np.maximum(model.predict_proba(rows * sign), LEAST)
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(forest.log_proba(rows)), expected, atol=1e-6)


def test_trees_split_a_category_by_one_code_whatever_the_order_of_columns():
    """Levels are ordered by what they say of the labels: one split parts those of each
    class, and no row's own code is lost.
    """
    rng = np.random.default_rng(0)
    level = rng.integers(6, size=400)
    X, y = np.column_stack([rng.normal(size=400), np.eye(6)[level]]), level % 2
    rows = members.MemberRows(X, y, None, 2)
    rows = rows._replace(codes=members.make_codes(rows, [slice(1, 7)]))
    even = np.sort(rows.codes.code[1:][::2])
    assert (
        even.max() < rows.codes.code[1:][1::2].min()
        or even.min() > rows.codes.code[1:][1::2].max()
    )
    assert rows.codes.code[1:].sum() == 0  # a level without rows is in the middle
    recipe = members.Boosting(0.1, 0, rounds=30)
    found, _ = recipe.fit(MemberTask(rows, TreeColumns.first(7)))
    turned = TreeColumns(np.arange(7)[::-1], np.ones(7))
    again, _ = recipe.fit(MemberTask(rows, turned))
    np.testing.assert_array_equal(found.log_proba(X).argmax(1), y)
    assert set(np.unique(found.feature)) <= {0, 1}
    np.testing.assert_allclose(found.log_proba(X), again.log_proba(X), atol=1e-6)


def test_a_round_of_boosting_stays_only_if_it_gains_more_than_its_trees_cost():
    X, y = make_classification(
        900, 8, n_informative=8, n_redundant=0, n_classes=6, random_state=0
    )
    rest, held = (
        members.MemberRows(X[i], y[i], None, 6) for i in (slice(500), slice(500, None))
    )
    rounds, losses = [], []
    for price in (0.0, 1e-5, 1e-4, 1e-3):
        member, recipe = members.Boosting(0.1, 0, tree_price=price).fit(
            MemberTask(rest, TreeColumns.first(8), held)
        )
        assert len(member.root) == 6 * recipe.rounds
        rounds.append(recipe.rounds)
        losses.append(-member.log_proba(held.X)[np.arange(400), held.y].mean())
        worth = price * np.log(6) * 6 * np.subtract(rounds[0], rounds)
        assert (losses[-1] - losses[0] <= worth[-1] + 1e-9).all()
    assert rounds == sorted(rounds, reverse=True) and rounds[-1] < rounds[0] // 2


def test_with_any_limit_boosting_is_not_worse_than_that_of_scikit_learn_with_as_many_rounds(
    monkeypatch,
):
    """The clock counts rounds, so that the limits are deterministic.

    Rules of three columns take many.
    """
    rng, spent, fit = np.random.default_rng(0), [0], HistGradientBoostingClassifier.fit
    X = rng.normal(size=(4000, 6))
    y = (
        (X[:, 0] * X[:, 1] > 0)
        + 2 * ((X[:, 2] > 0) ^ (X[:, 3] > X[:, 4]))
        + (rng.random(4000) < 0.1)
    )
    rest, held, new = (members.MemberRows(X[i::4], y[i::4], None, 5) for i in range(3))

    def count(model, *rows):
        before = getattr(model, "n_iter_", 0)
        spent[0] += fit(model, *rows).n_iter_ - before
        return model

    def loss(log_p):
        return -log_p[np.arange(len(new.y)), new.y].mean()

    for limit in (10, 30, 100):
        alone = HistGradientBoostingClassifier(learning_rate=0.05, max_iter=limit).fit(
            rest.X, rest.y
        )
        monkeypatch.setattr(HistGradientBoostingClassifier, "fit", count)
        spent[0] = 0
        left = lambda limit=limit: limit - spent[0]
        task = MemberTask(rest, TreeColumns.first(6), held, left)
        member, _ = members.Boosting(0.1, 0).fit(task)
        monkeypatch.undo()
        assert spent[0] <= max(1.2 * limit, 20)
        assert (
            loss(member.log_proba(new.X))
            < loss(np.log(alone.predict_proba(new.X))) + 0.01
        )
