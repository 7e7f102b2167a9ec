"""Leave-one-out leaves out whole rows, whatever they weigh: the estimate, the
temperature and suspect labels depend on it.
"""

import itertools

import numpy as np
import pytest
from sklearn.metrics import log_loss

from cavity import GPClassifier, Training
from cavity.fitting.left_out import effective_share
from cavity.fitting.options import nest
from cavity.methods import GFITC
from cavity.pool.weights import fit_temperature
from support import slow, toy


def blobs(n, seed):
    """Three overlapping classes with unit noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[y] + rng.normal(
        size=(n, 2)
    ), y


def rare(n, seed):
    """Two classes, one of them with 6 % of the rows."""
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=n) < 0.06).astype(int)
    return rng.normal(size=(n, 2)) + 1.2 * y[:, None], y


@pytest.fixture(scope="module")
def fresh():
    return blobs(4000, 99)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
@pytest.mark.parametrize("kind", ["threes", "log-normal"])
def test_the_estimate_of_weighted_rows_is_near_fresh_rows(effort, kind, fresh):
    X, y = blobs(150, 0)
    weight = (
        np.random.default_rng(1).lognormal(-0.5, 1.0, 150)
        if kind == "log-normal"
        else np.full(150, 3.0)
    )
    clf = GPClassifier(effort=effort, random_state=0).fit(X, y, sample_weight=weight)
    found = clf.estimate_
    true = log_loss(fresh[1], clf.predict_proba(fresh[0]))
    assert abs(found.log_loss - true) < 3 * found.standard_error + 0.05
    assert 0.5 < clf.ensemble_weights_.sum() < 1.7


@pytest.mark.parametrize("seeds", [(5,), slow((3, 4, 5, 6))], ids=len)
def test_the_estimate_of_balanced_classes_is_near_the_weighted_loss_of_fresh_rows(
    seeds,
):
    """Nine to 22 rare rows that weighed as dozens each were learnt by heart, and trees
    that had drawn them all got the pool.
    """
    new, labels = rare(20000, 4)
    losses = []
    for seed, given in itertools.product(
        seeds, ({"effort": "fast", "calibration": None}, {"effort": "fast"}, {})
    ):
        X, y = rare(300, seed)
        clf = GPClassifier(class_weight="balanced", random_state=0, **given).fit(X, y)
        weight = (1 / np.bincount(y))[labels]
        losses.append(log_loss(labels, clf.predict_proba(new), sample_weight=weight))
        assert (
            abs(clf.estimate_.log_loss - losses[-1]) < 2 * clf.estimate_.standard_error
        )
    plain, fast, default = np.mean(np.reshape(losses, (-1, 3)), axis=0)
    assert max(plain, fast, default) < 0.47 and fast < plain + 0.02


def fixed(method="ep", **options):
    return GPClassifier(
        method,
        **nest(
            **{"n_inducing": 8, "learn": (), "tol": 1e-9, "random_state": 0} | options
        ),
    )


@pytest.mark.parametrize("method", ["ep", GFITC(), "sep"], ids=["ep", "gfitc", "sep"])
def test_a_row_and_its_twins_leave_as_a_table_without_them_says(method):
    """Rows 0 and 20 are equal and heavy: leaving them out is near to a fit without
    both, not to one without either.
    """
    X, y = toy(40, 2)
    X[20], y[20] = X[0], y[0]
    weight = np.ones(40)
    weight[[0, 20]] = 4.0
    clf = fixed(method).fit(X, y, sample_weight=weight)
    others = np.delete(np.arange(40), [0, 20])
    without = fixed(method, inducing=clf.inducing_points_[0]).fit(X[others], y[others])
    exact = without.predict_log_proba(X[:1])[0, y[0]]
    assert np.ptp(clf.loo_log_proba_[[0, 20]], axis=0).max() < 1e-9
    seen = clf.predict_log_proba(X[:1])[0, y[0]]
    assert abs(clf.loo_log_proba_[0, y[0]] - exact) < 0.25 * abs(seen - exact)


def test_the_unit_of_the_weights_does_not_change_how_far_the_temperature_is_trusted():
    """Twice the weight is not twice the evidence for a temperature: the rows are as
    many as before.
    """
    X, y = blobs(60, 6)
    fixed = Training(learn=(), tol=0.1)
    log_p = (
        GPClassifier("ep", n_inducing=10, training=fixed, random_state=0)
        .fit(X, y)
        .predict_log_proba(X)
    )
    found = [
        fit_temperature(log_p, y, w * effective_share(w))
        for w in (np.ones(60), np.full(60, 7.0))
    ]
    assert found[0] == pytest.approx(found[1])


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_rows_of_a_table_of_cells_leave_alone(effort):
    """A new row of two categories meets the other rows of its cell: they stay."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(400, 2)).astype(float)
    y = (rng.uniform(size=400) < 0.2 + 0.3 * X.sum(1)).astype(int)
    clf = GPClassifier(effort=effort, random_state=0).fit(X, y)
    true = log_loss(y, np.c_[0.8 - 0.3 * X.sum(1), 0.2 + 0.3 * X.sum(1)])
    assert abs(clf.estimate_.log_loss - true) < 0.03


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
@pytest.mark.parametrize("columns", [slow(1), 2])
def test_rows_of_cells_with_one_label_each_leave_alone(effort, columns):
    """Without its whole cell, a row that follows a rule exactly would look hopeless."""
    X = np.array(
        list(itertools.product(range(2), repeat=columns)) * (100 >> columns),
        dtype=float,
    )
    y = X.sum(1) % 2
    clf = GPClassifier(effort=effort, random_state=0).fit(X, y)
    assert clf.estimate_.log_loss < 0.05 and not clf.fit_warnings_
    found = clf.suspect_labels()
    assert len(found) == 100 and (found.scores > 0.9).all()


def test_suspect_labels_are_row_numbers_of_the_given_table():
    X, y = toy(200, 3, seed=2)
    y[40] = (y[40] + 1) % 3
    clf = GPClassifier("ep", n_inducing=20, max_epochs=60, random_state=0)
    place = clf.fit(X, y).suspect_labels().rows.tolist().index(40)
    weight = np.ones(200)
    weight[[3, 11]] = 0.0
    found = clf.fit(X, y, sample_weight=weight).suspect_labels()
    rows = found.rows
    p = found.scores
    assert abs(rows.tolist().index(40) - place) <= 2
    assert sorted(rows) == sorted(set(range(200)) - {3, 11})
    assert (np.diff(p) >= 0).all() and (p > 0).all() and (p <= 1).all()
    kept = np.delete(np.arange(200), [3, 11])
    own = np.exp(clf.loo_log_proba_[np.arange(198), y[kept]])
    np.testing.assert_allclose(p, own[np.searchsorted(kept, rows)])
