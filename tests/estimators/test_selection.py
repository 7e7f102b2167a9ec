"""Model selection of method="auto"."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

import cavity
from cavity import GPClassifier, Training
from cavity.errors import BadOption, NotPositiveDefinite
from cavity.fitting.budget import Budget
from cavity.fitting.selection import ModelSearch, Search, Trial, split_for_screening
from cavity.intake.tables import Table


def make_long_tail(n=400, seed=0):
    """Classes that depend on the logarithms of two columns with very long tails."""
    z = np.random.default_rng(seed).standard_normal((n, 2))
    return np.exp(4 * z), (np.sin(3 * z[:, 0]) + z[:, 1] > 0).astype(int)


def make_overlapping(n=300, seed=0):
    """Three classes in two dimensions; a quarter of the labels is random."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])[y] + 0.5 * rng.standard_normal((n, 2))
    return X, np.where(rng.random(n) < 0.25, rng.integers(3, size=n), y)


def loss(clf, X, y):
    return -clf.predict_log_proba(X)[np.arange(len(y)), y].mean()


@pytest.fixture(scope="module")
def ranked():
    return GPClassifier(n_inducing=30, random_state=0).fit(*make_long_tail())


@pytest.fixture(scope="module")
def robust():
    return GPClassifier(n_inducing=20, random_state=0).fit(*make_overlapping())


def test_ranks_are_selected_for_long_tails_and_predict_better(ranked):
    new = make_long_tail(1000, seed=1)
    plain = GPClassifier(n_inducing=30, selection=None, random_state=0).fit(*make_long_tail())
    assert "ranks" in ranked.selection_.selected
    assert not hasattr(plain, "selection_")
    assert loss(ranked, *new) < 0.8 * loss(plain, *new)


def test_random_labels_are_selected_where_labels_are_random(robust):
    new = make_overlapping(1000, seed=1)
    plain = GPClassifier(n_inducing=20, selection=None, random_state=0).fit(*make_overlapping())
    assert "random labels" in robust.selection_.selected
    assert 0.1 < robust.epsilon_ < 0.4
    assert loss(robust, *new) < loss(plain, *new)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_candidates_with_random_labels_are_trained_where_labels_are_random(share):
    X, _ = make_overlapping()
    rng, y = np.random.default_rng(5), (X[:, 0] > 1.5) + 2 * (X[:, 1] > 1.5)
    y = np.where(rng.random(len(y)) < share, rng.integers(3, size=len(y)), np.minimum(y, 2))
    clf = GPClassifier(n_inducing=15, calibration=None, random_state=0).fit(X, y)
    base, noisy = clf.selection_.scores
    assert np.isfinite(noisy.loss) and noisy.evidence > base.evidence + 10
    assert clf.selection_.robust


def test_a_candidate_with_a_lower_evidence_at_the_best_hyper_parameters_is_dropped_and_named():
    rng = np.random.default_rng(0)  # no label is random, but few rows are far from a boundary
    X = rng.standard_normal((150, 8))
    y = (X @ rng.standard_normal((8, 3)) + 0.5 * rng.standard_normal((150, 3))).argmax(1)
    fits = [
        GPClassifier(n_inducing=20, selection=s, calibration=None, random_state=0).fit(X, y)
        for s in ("auto", None)
    ]
    base, noisy = fits[0].selection_.scores
    assert np.isnan(noisy.loss) and noisy.evidence < base.evidence
    assert "random labels: dropped before training, log evidence" in str(fits[0].selection_)
    np.testing.assert_array_equal(*(clf.predict_proba(X) for clf in fits))
    best = GPClassifier("auto", n_inducing=20, effort="best", ensemble=None, calibration=None, random_state=0)
    assert np.isfinite(best.fit(X, y).selection_.scores[1].loss)


@pytest.mark.parametrize("data", [make_long_tail, make_overlapping])
def test_the_evidence_of_the_same_model_is_that_of_the_fit(data, monkeypatch):
    found, foresee = [], Trial.foresee

    def compare(self, run):
        found.append((self.evidence, self.learnt.evidence_of(run)))
        return foresee(self, run)

    monkeypatch.setattr(Trial, "foresee", compare)
    monkeypatch.setattr(Search, "_changes", lambda self, first: iter(["matern"]))
    monkeypatch.setattr(ModelSearch, "_apply", lambda self, candidate, config, table: config)
    GPClassifier(n_inducing=15, calibration=None, random_state=0).fit(*data())
    assert found[0][1] == pytest.approx(found[0][0], abs=0.05)


def test_a_candidate_that_cannot_be_fitted_is_not_selected(monkeypatch):
    apply = ModelSearch._apply

    def fail(self, candidate, *rest):
        if candidate.robust:
            raise NotPositiveDefinite("no factor")
        return apply(self, candidate, *rest)

    monkeypatch.setattr(ModelSearch, "_apply", fail)
    fitted = GPClassifier(n_inducing=8, max_epochs=5, random_state=0).fit(*make_overlapping())
    assert np.isnan(fitted.selection_.scores[-1].loss) and not fitted.selection_.robust
    assert "random labels: could not be fitted" in str(fitted.selection_)
    assert np.isfinite(fitted.predict_log_proba(make_overlapping(20, 1)[0])).all()


def make_rules(n=600, seed=0):
    """Two classes by a rule of triples: some row of a 3 × 3 board has three crosses."""
    board = np.random.default_rng(seed).choice(["x", "o", "b"], (n, 9), p=[0.6, 0.2, 0.2])
    y = (board.reshape(n, 3, 3) == "x").all(2).any(1).astype(int)
    return pd.DataFrame(board, columns=[f"c{i}" for i in range(9)]), y


def test_rules_of_categories_get_more_points_and_predict_better(tmp_path):
    table, y = make_rules()
    clf, plain = (
        GPClassifier(selection=s, calibration=None, random_state=0).fit(table, y) for s in ("auto", None)
    )
    assert "more points" in clf.selection_.selected and clf.selection_.points == 300
    assert clf.inducing_points_.shape[-2] > plain.inducing_points_.shape[-2]
    new, truth = make_rules(500, seed=1)
    assert loss(clf, new, truth) < loss(plain, new, truth)
    clf.save(tmp_path / "m.cavity")
    assert cavity.load(tmp_path / "m.cavity").selection_.points == 300


def test_the_number_of_points_that_you_give_is_kept():
    clf = GPClassifier(n_inducing=40, calibration=None, random_state=0).fit(*make_rules())
    assert clf.inducing_points_.shape[-2] == 40


def test_a_clean_table_keeps_the_default_model_to_the_bit():
    X, y = load_iris(return_X_y=True)
    fits = [GPClassifier(n_inducing=15, selection=s, random_state=0).fit(X, y) for s in ("auto", None)]
    assert fits[0].selection_.selected == fits[0].selection_.scores[0].name
    np.testing.assert_array_equal(*(clf.predict_proba(X) for clf in fits))


def test_candidates_of_a_large_table_are_compared_on_other_rows():
    X, y = make_long_tail(1200)
    clf = GPClassifier(n_inducing=20, max_epochs=2, random_state=0).fit(X, y)
    assert "400 rows" in clf.selection_.how
    assert len(clf.selection_.scores) == 3  # the default, ranks, Matérn 3/2
    assert "ranks" in clf.selection_.selected


@pytest.mark.parametrize("which", ["ranked", "robust"])
def test_files_and_pickles_keep_the_selected_model(which, request, tmp_path):
    clf = request.getfixturevalue(which)
    X = (make_long_tail if which == "ranked" else make_overlapping)(50, seed=2)[0]
    clf.save(tmp_path / "m.cavity")
    for again in (cavity.load(tmp_path / "m.cavity"), pickle.loads(pickle.dumps(clf))):
        np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
        assert str(again.selection_) == str(clf.selection_)


def test_partial_fit_adds_rows_to_the_selected_model(robust):
    clf, new = pickle.loads(pickle.dumps(robust)), make_overlapping(200, seed=3)
    before = loss(clf, *new)
    clf.partial_fit(*new)
    assert loss(clf, *new) < before


def test_every_class_has_a_row_to_fit_candidates_to():
    y = np.r_[np.zeros(1500, int), np.ones(3, int), 2]
    table = Table(np.arange(len(y), dtype=float)[:, None], y, np.ones(len(y)), 3)
    for seed in range(20):
        part, judges = split_for_screening(table, seed)
        assert set(part.y) == {0, 1, 2}
        assert len(part.y) == 1000 and len(judges.y) == 504
        assert not set(part.X[:, 0]) & set(judges.X[:, 0])


def test_many_classes_are_not_screened():
    y = np.arange(1100) % 31
    table = Table(np.arange(1100.0)[:, None], y, np.ones(1100), 31)
    search = ModelSearch(None, table, 0, lambda *a: pytest.fail("a candidate was fitted"), Budget(0.0))
    assert search.screen() is None


def test_the_user_has_the_last_word():
    X, y = make_overlapping(100)
    for given in (
        {"kernel": cavity.kernels.RBF()},
        {"effort": "fast"},
        {"method": "ep"},
        {"selection": None},
    ):
        clf = GPClassifier(**{"n_inducing": 10, "max_epochs": 2, "random_state": 0} | given).fit(X, y)
        assert not hasattr(clf, "selection_")
    with pytest.raises(BadOption, match="selection"):
        GPClassifier(selection="kernel").fit(X, y)


def test_a_time_limit_leaves_candidates_out():
    X, y = make_overlapping(200)
    clf = GPClassifier(n_inducing=10, training=Training(max_seconds=1e-3), random_state=0).fit(X, y)
    assert len(clf.selection_.scores) == 1
