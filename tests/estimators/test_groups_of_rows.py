"""Rows of one group, such as those of a patient, stay together wherever a model is
judged by rows that it did not see.
"""

import time
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import special
from sklearn import config_context, datasets
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier, GPRegressor
from cavity.errors import BadInput, BadOption
from cavity.fitting import folds, judges, monitoring
from cavity.fitting.options import nest
from cavity.methods import GFITC
from cavity.report.baselines import count_rows, logistic_log_loss
from cavity.tables.labelled import read_table
from cavity.tables.near_copies import has_near_copies
from cavity.tables.repeats import find_units, has_cells
from cavity.tables.splitting import choose_folds, hold_out
from cavity.tables.table import GivenRows, Table
from support import slow, toy


def make_groups(n_groups=40, rows=10, seed=0, spread=1e-3):
    """Groups of near copies; the label of a group is a noisy function of its centre."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(n_groups, 5))
    y = (centre[:, 0] + rng.normal(size=n_groups) > 0).astype(int)
    X = centre.repeat(rows, 0) + spread * rng.normal(size=(n_groups * rows, 5))
    return X, y.repeat(rows), np.arange(n_groups).repeat(rows)


def make_table(X, y, group=None):
    codes = np.unique(y, return_inverse=True)[1]
    return Table(
        np.asarray(X, float), codes, np.ones(len(y)), int(codes.max()) + 1, group=group
    )


@pytest.fixture
def splits(monkeypatch):
    """The groups of the rows that are fitted to and held out, whenever a table is split
    in two.
    """
    found = []
    judged = folds.predict_rows

    def predict_rows(model, members, held, **named):
        predicted = judged(model, members, held, **named)
        np.testing.assert_array_equal(predicted.unit, held.group)
        found.append(set(held.group))
        return predicted

    monkeypatch.setattr(folds, "predict_rows", predict_rows)
    monkeypatch.setattr(judges, "predict_rows", predict_rows)
    return found


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_the_estimate_covers_new_groups(effort, splits):
    X, y, groups = make_groups(rows=3)
    new, labels, _ = make_groups(2000, 1, seed=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "most rows are near copies")
        clf = GPClassifier(effort=effort, random_state=0).fit(
            X, y, groups=[f"patient {g}" for g in groups]
        )
    true = -np.log(clf.predict_proba(new)[np.arange(2000), labels]).mean()
    assert abs(clf.estimate_.log_loss - true) < 2 * clf.estimate_.standard_error
    assert len(splits) > 1 and sum(map(len, splits)) == len(set().union(*splits)) == 40
    assert "40 groups kept together" in str(
        clf.plan_
    ) and "groups kept together" in str(clf.estimate_)
    assert sorted(clf.held_out_.rows) == list(range(120))


@pytest.mark.usefixtures("few_trees")
def test_near_copies_without_groups_raise_a_warning_that_names_the_remedy():
    X, y, _ = make_groups()
    with pytest.warns(UserWarning, match="groups="):
        clf = GPClassifier(effort="fast", n_inducing=10, random_state=0).fit(X, y)
    assert any("groups=" in text for text in clf.fit_warnings_)


@pytest.mark.parametrize("load", ["iris", "wine", "digits", "breast_cancer"])
def test_ordinary_tables_have_no_near_copies(load):
    assert not has_near_copies(
        make_table(*getattr(datasets, f"load_{load}")(return_X_y=True))
    )


@pytest.mark.parametrize("rows", [60, 300, 1500])
@pytest.mark.parametrize("seed", range(5))
def test_neither_whole_numbers_nor_heavy_tails_nor_tight_classes_are_near_copies(
    seed, rows
):
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 2, size=(rows, 3))
    centres = rng.normal(size=(20, 3))
    turn = 6 * rng.uniform(size=rows)
    label = rng.integers(20, size=rows)
    sizes = product((2, 10, 1000), (1, 3))
    tables = [rng.integers(0, n, size=(rows, d)) for n, d in sizes]
    tables += [
        np.c_[rng.lognormal(sigma=2, size=rows), cells],
        rng.standard_cauchy(size=(rows, 2)),
    ]
    tables += [np.c_[np.cos(turn), np.sin(turn)]]
    for X in tables:
        assert not has_near_copies(make_table(X, X[:, 0] > np.median(X[:, 0])))
    assert not has_near_copies(
        make_table(centres[label] + 1e-3 * rng.normal(size=(rows, 3)), label)
    )


@pytest.mark.parametrize(("n_groups", "rows"), [(40, 10), (200, 2), (2000, 10)])
def test_near_copies_are_found(n_groups, rows):
    assert has_near_copies(make_table(*make_groups(n_groups, rows)[:2]))


@pytest.mark.parametrize("rows", [2, 4, 8, 20, None])
@pytest.mark.parametrize(
    ("columns", "spread"), [(2, 0.05), (3, 0.1), (5, 0.2), (10, 1 / 3), (20, 1 / 3)]
)
def test_near_copies_are_found_where_columns_show_them(columns, spread, rows):
    """Noise is a share of the spread between groups; None: 2 to 20 rows per group."""
    rng = np.random.default_rng(0)
    size = np.full(60, rows) if rows else rng.integers(2, 21, size=60)
    centre = rng.normal(size=(60, columns))
    y = (centre[:, 0] + rng.normal(size=60) > 0).repeat(size)
    X = centre.repeat(size, 0)
    assert has_near_copies(make_table(X + spread * rng.normal(size=X.shape), y))


@pytest.mark.parametrize("seed", range(3))
def test_categories_neither_look_like_near_copies_nor_hide_them(seed):
    """Of 67 real tables, five of categories were taken for near copies."""
    rng = np.random.default_rng(seed)

    def draw_categories(n):
        codes = [np.minimum(rng.geometric(p, n), 9) for p in (0.2, 0.3, 0.5)]
        return np.hstack([np.eye(10)[code] for code in codes])

    X = np.hstack([np.round(rng.lognormal(3, 1, (1500, 1))), draw_categories(1500)])
    y = rng.random(1500) < 0.4
    assert not has_near_copies(make_table(X, y))
    assert not has_near_copies(make_table(X[:, 1:], y))
    X, y, _ = make_groups(60, 8, seed, spread=0.05)
    mixed = np.hstack([X, draw_categories(60).repeat(8, 0)])
    assert has_near_copies(make_table(mixed, y))


@pytest.mark.parametrize("seed", range(3))
def test_texts_of_common_parts_are_no_near_copies(seed):
    rng = np.random.default_rng(seed)
    family = rng.integers(6, size=400)
    code = [f"{'AKMPQT'[f]}X-{rng.integers(10_000):04d}" for f in family]
    frame = pd.DataFrame({"code": code, "x": rng.normal(size=400)})
    rows = read_table(GivenRows(frame, (family + rng.random(400)) % 2 < 1), None, "")
    assert len(rows.texts) == 1
    assert not has_near_copies(rows.table, rows.texts)


def test_independent_rows_seldom_look_like_near_copies():
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        for n in (80, 400):
            tables = [rng.normal(size=(n, d)) for d in (1, 2, 8)]
            tables += [rng.standard_t(2, size=(n, d)) for d in (2, 8)]
            tables += [rng.integers(10, size=(n, 4)), np.exp(rng.normal(size=(n, 6)))]
            tables += [
                datasets.make_classification(
                    n,
                    6,
                    n_informative=4,
                    n_classes=3,
                    n_clusters_per_class=2,
                    class_sep=separation,
                    random_state=seed,
                )[0]
                for separation in (1, 3)
            ]
            for X in tables:
                y = X[:, 0] + X.std(0)[0] * rng.normal(size=n) > np.median(X[:, 0])
                found.append(has_near_copies(make_table(X, y)))
    assert np.mean(found) <= 0.02


@pytest.mark.parametrize("columns", [60, 300])
def test_wide_tables_are_searched_by_projections(columns):
    """Near copies are found; independent, whole, heavy and sparse rows are none."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 600)
    copies = rng.normal(size=(200, columns)).repeat(3, 0)
    copies += 0.2 * rng.normal(size=copies.shape)
    assert has_near_copies(make_table(copies, label))
    filled = rng.random((600, columns)) < 0.1
    for X in (
        rng.normal(size=(600, columns)),
        rng.integers(0, 2, size=(600, columns)),
        rng.standard_t(2, size=(600, columns)),
        np.where(filled, rng.random((600, columns)), 0),
    ):
        assert not has_near_copies(make_table(X, label))


def test_the_search_for_near_copies_takes_little_time():
    rng = np.random.default_rng(0)
    for rows, columns in ((50_000, 60), (3000, 1000)):
        table = make_table(rng.normal(size=(rows, columns)), rng.integers(0, 2, rows))
        begun = time.process_time()
        has_near_copies(table)
        assert time.process_time() - begun < 0.4  # measured: 0.07 s


@pytest.mark.parametrize("seed", range(5))
def test_no_split_cuts_a_group(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 2))
    y = rng.integers(3, size=200)
    group = rng.integers(30, size=200) * 7
    fold = choose_folds(X, y, 3, seed, group=group)
    held = hold_out(X, y, 0.3, seed, group=group)
    rest, out = monitoring.hold_out_rows(make_table(X, y, group), 0.3, rng)
    for i in np.unique(group):
        assert len(set(fold[group == i])) == len(set(held[group == i])) == 1
    assert set(fold) == {0, 1, 2} and held.any() and not held.all()
    assert not set(rest.group) & set(out.group)


def test_the_baseline_of_a_fit_does_not_know_groups_either():
    group = np.arange(20).repeat(6)
    X = np.eye(20)[group] + 1e-3 * np.random.default_rng(0).normal(size=(120, 20))
    alone, together = (
        logistic_log_loss(X, group % 2, None, 0, groups) for groups in (None, group)
    )
    assert alone < 0.3 < 0.6 < together


def test_the_baseline_of_a_large_table_is_that_of_a_sample():
    """300 columns and 2 classes: 3,333 of 8,000 rows; labels follow a known curve."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 300))
    p = special.expit(3 * X[:, 0])
    y = rng.random(8000) < p
    entropy = -np.mean(special.xlogy(p, p) + special.xlogy(1 - p, 1 - p))
    found = logistic_log_loss(X, y, None, 0)
    assert entropy < found < np.log(2) - 0.1
    assert count_rows(8000, 300, 2) == 3333


def test_the_baseline_ends_with_the_time():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X[:, 0] > 0
    assert logistic_log_loss(X, y, None, 0, is_over=lambda: True) is None
    calls = iter([False, False, True])
    assert logistic_log_loss(X, y, None, 0, is_over=lambda: next(calls)) > 0


def test_equal_rows_of_different_groups_stay_apart():
    """And a group is a case, whatever the columns look like."""
    X = np.tile([[0.0], [0.0], [1.0], [1.0]], (10, 1))
    table = make_table(X, X[:, 0], np.arange(40) // 4)
    merged = table.merge()
    assert merged.n_rows == 20 and merged.n_groups == 10 and not has_cells(table)
    np.testing.assert_array_equal(
        find_units(merged.select(merged.group > 4)), merged.group[merged.group > 4]
    )
    np.testing.assert_array_equal(merged.group[merged.place], table.group)


@pytest.mark.parametrize("method", ["ep", GFITC(), "sep"], ids=["ep", "gfitc", "sep"])
def test_a_group_leaves_as_a_table_without_it_says(method):
    """Rows 0 and 20 are neighbours and heavy: leaving them out is near to a fit without
    both, not to one without either.
    """
    X, y = toy(40, 2)
    X[20], y[20] = X[0] + 1e-3, y[0]
    weight = np.ones(40)
    groups = np.arange(40)
    weight[[0, 20]] = 4.0
    groups[20] = 0
    options = nest(n_inducing=8, learn=(), tol=1e-9, random_state=0)
    clf = GPClassifier(method, **options).fit(X, y, sample_weight=weight, groups=groups)
    alone = GPClassifier(method, **options).fit(X, y, sample_weight=weight)
    kept = np.delete(np.arange(40), [0, 20])
    without = GPClassifier(
        method, **options | {"inducing": clf.inducing_points_[0]}
    ).fit(X[kept], y[kept])
    exact, seen = (model.predict_log_proba(X[:1])[0, y[0]] for model in (without, clf))
    assert abs(clf.loo_log_proba_[0, y[0]] - exact) < 0.25 * abs(seen - exact)
    np.testing.assert_allclose(
        clf.loo_log_proba_[kept], alone.loo_log_proba_[kept], rtol=1e-6
    )


@pytest.mark.usefixtures("few_trees")
def test_rows_held_out_of_a_larger_table_are_whole_groups(splits):
    X, y, groups = make_groups(60, 50, spread=0.3)
    clf = GPClassifier(effort="fast", n_inducing=10, max_epochs=2, random_state=0).fit(
        X, y, groups=groups
    )
    assert clf.plan_.judging.how == "part" and 10 <= len(splits[0]) < 30
    assert clf.estimate_.rows == 50 * len(splits[0])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(40), "only one group .* at least two"),
        (np.arange(39), "label per row"),
        ([*"ab" * 19, "c", None], "row 39"),
        (np.r_[np.nan, np.arange(39.0)], "row 0"),
        ([["a"]] * 39 + [["a", "b"]], "groups"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups, message):
    X, y = toy(40, 2)
    with pytest.raises(BadInput, match=message):
        GPClassifier().fit(X, y, groups=groups)


def test_neither_batches_nor_regressors_have_groups():
    X, y = toy(40, 2)
    with pytest.raises(BadOption, match="groups="):
        GPClassifier("sep").fit([(X, y)], groups=np.arange(40))
    with pytest.raises(TypeError, match="groups"):
        GPRegressor().fit(X, y, groups=np.arange(40))


@pytest.mark.usefixtures("few_trees")
def test_scikit_learn_routes_groups_to_the_fit():
    X, y, groups = make_groups(20, 3)
    model = GPClassifier(effort="fast", n_inducing=5, max_epochs=2, random_state=0)
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            make_pipeline(StandardScaler(), model.set_fit_request(groups=True)),
            {"gpclassifier__n_inducing": [5]},
            cv=2,
        ).fit(X, y, groups=groups)
    assert search.best_estimator_[-1].plan_.judging.groups == 20
