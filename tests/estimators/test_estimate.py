"""`estimate_`: what a fit says about its own quality, against independent references."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.metrics import accuracy_score, log_loss

import cavity
from cavity import GPClassifier
from cavity.common.scoring import average
from cavity.fitting.options import nest
from cavity.prediction.estimate import estimate_quality
from support import slow, without_warnings


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(
        4150, 5, n_informative=4, n_redundant=0, n_classes=3, flip_y=0.2, random_state=0
    )
    return X[:150], y[:150], X[150:], y[150:]


def model(**options):
    return GPClassifier(
        **nest(**{"n_inducing": 8, "max_epochs": 15, "random_state": 0} | options)
    )


@pytest.mark.parametrize("copies", [1, 4])
def test_errors_know_of_the_losses_that_few_rows_do_not_show(copies):
    """Nearly half of these tables have no wrong row: their losses do not differ at all."""
    rng = np.random.default_rng(0)
    logs = np.log([0.98, 0.02])
    covered = []
    true = -np.exp(logs) @ logs
    unit = np.arange(40).repeat(copies)
    for _ in range(400):
        y = rng.binomial(1, 0.02, 40).repeat(copies)
        log_p = np.tile(logs, (len(y), 1))
        ones = np.ones(len(y))
        found = estimate_quality(
            log_p, y, ones, np.full(2, 0.5), "", "held out", unit=unit
        )
        covered.append(abs(found.log_loss - true) < 2 * found.standard_error)
    assert 0.94 < np.mean(covered)
    assert found.standard_error < 0.25


def test_the_numbers_are_those_of_scikit_learn_weights_included():
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(4), 60)
    y = rng.integers(0, 4, 60)
    w = rng.uniform(0.1, 3, 60)
    prior = np.bincount(y, w) / w.sum()
    found = estimate_quality(np.log(P), y, w, prior, "3 folds")
    assert found.log_loss == pytest.approx(log_loss(y, P, sample_weight=w))
    assert found.accuracy == pytest.approx(
        accuracy_score(y, P.argmax(1), sample_weight=w)
    )
    plain = DummyClassifier().fit(P, y, w)
    assert found.baseline_log_loss == pytest.approx(
        log_loss(y, plain.predict_proba(P), sample_weight=w)
    )
    assert found.baseline_accuracy == pytest.approx(plain.score(P, y, w))
    twice = estimate_quality(np.log(P), y, 2 * w, prior, "3 folds")
    assert twice.standard_error == pytest.approx(found.standard_error)
    np.testing.assert_allclose(twice.true, 2 * np.array(found.true))


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_the_estimate_is_near_the_log_loss_of_new_rows(table, effort, tmp_path):
    X, y, new, labels = table
    clf = model(effort=effort).fit(X, y)
    found = clf.estimate_
    true = log_loss(labels, clf.predict_proba(new))
    assert found.how == clf.calibration_
    assert found.rows == 150
    assert abs(found.log_loss - true) < 2 * found.standard_error < 0.4
    assert (
        found.baseline_log_loss - found.log_loss
        > (found.baseline_log_loss - true) / 3
        > 0.05
    )
    assert abs(found.accuracy - clf.score(new, labels)) < 0.1
    np.testing.assert_allclose(clf.class_prior_, np.bincount(y) / 150)
    assert "did not see" in str(found)
    clf.save(tmp_path / "m")
    loaded = cavity.load(tmp_path / "m")
    assert loaded.estimate_ == found
    np.testing.assert_array_equal(loaded.class_prior_, clf.class_prior_)


@pytest.mark.usefixtures("few_trees")
def test_random_labels_get_no_good_estimate_from_a_model_that_memorises_them():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(90, 2))
    y = rng.integers(0, 2, 90)
    kernel = cavity.kernels.RBF(lengthscale=0.05)
    clf = model(n_inducing=90, kernel=kernel, learn=("noise",)).fit(X, y)
    assert clf.score(X, y) > 0.9
    assert clf.estimate_.log_loss > 0.65 and clf.estimate_.accuracy < 0.7


@pytest.mark.usefixtures("few_trees")
def test_classes_with_a_single_row_are_missing_from_folds_and_the_estimate_says_so(
    table,
):
    X, y, _, _ = table
    X = np.vstack([X, [[9.0] * 5, [-9.0] * 5]])
    y = np.append(y, [3, 4])
    clf = model().fit(X, y)
    found = clf.estimate_
    assert found.rows == 150 and found.absent == (3, 4)
    assert found.trust.endswith(
        "No row of 2 classes is among them: their loss is not known."
    )
    known = model().fit(X[:150], y[:150]).estimate_
    assert known.absent == () and "No row" not in known.trust
    with_one = model(effort="fast").fit(X, y).estimate_
    assert with_one.rows == 150 and with_one.absent == (3, 4)


def test_rows_that_are_alone_in_their_class_have_no_estimate_and_leave_one_out_does_not_score_them(
    table,
):
    X, y, _, _ = table
    for rows in ([0, 1], [0, 0, 0, 1, 1]):  # also copies: two cases
        two = model(effort="fast").fit(X[rows], rows)
        with pytest.raises(AttributeError, match="single row"):
            _ = two.estimate_
        assert two.predict_proba(X).shape == (len(X), 2)
    X = np.vstack([X, [[9.0] * 5]])
    y = np.append(y, 3)
    for calibration in (None, "temperature"):
        clf = GPClassifier(
            "ep",
            n_inducing=10,
            effort="fast",
            calibration=calibration,
            max_epochs=20,
            random_state=0,
        )
        found = clf.fit(X, y).estimate_
        assert found.rows == 150 and found.absent == (3,)


def test_errors_of_folds_are_wider_where_tables_are_small():
    rng = np.random.default_rng(0)
    P = rng.dirichlet([3.0, 1.0], 40_000)
    y = np.zeros(40_000, dtype=np.int64)
    for n, wider in ((1000, 2.0), (40_000, 1.05)):
        given = np.log(P[:n]), y[:n], np.ones(n), np.array([0.5, 0.5]), "folds"
        held, folds = (estimate_quality(*given, kind) for kind in ("held out", "folds"))
        assert folds.standard_error == pytest.approx(wider * held.standard_error)
        assert folds.log_loss == held.log_loss and "did not see" in folds.trust


def test_rows_that_belong_together_count_once_in_the_error():
    rng = np.random.default_rng(0)
    P = rng.dirichlet([3.0, 1.0], 50)
    y = np.zeros(50, dtype=np.int64)
    prior = np.array([0.5, 0.5])
    one = estimate_quality(np.log(P), y, np.ones(50), prior, "rows")
    units = np.arange(50).repeat(7)
    many = estimate_quality(
        np.log(P.repeat(7, 0)), y.repeat(7), np.ones(350), prior, "rows", unit=units
    )
    assert many.standard_error == pytest.approx(one.standard_error)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_a_model_of_random_labels_says_that_it_is_no_better_than_guessing(effort):
    """250 rows of five noisy classes fitted with a training accuracy of .85, and nobody
    was told. One draw may be luck.
    """
    told = 0
    for seed in range(3, 6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(250, 4))
        y = rng.integers(0, 5, 250)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            clf = GPClassifier(effort=effort, random_state=0).fit(X, y)
        assert (
            clf.estimate_.baseline_log_loss - clf.estimate_.log_loss
            < clf.estimate_.standard_error
        )
        said = any(
            "not better than class frequencies" in str(w.message) for w in caught
        )
        assert (
            said
            == (clf.estimate_.verdict is not None)
            == (clf.estimate_.verdict in clf.fit_warnings_)
        )
        told += said
    assert told >= 2


def draw_table(seed):
    """Draw rows of Gaussian classes, of argmax of smooth functions, or of noisy linear
    classes; many new rows.
    """
    rng = np.random.default_rng(seed)
    N = int(rng.choice([100, 250, 600]))
    C = int(rng.integers(2, 5))
    D = int(rng.choice([2, 5, 10]))
    X = rng.normal(size=(N + 4000, D))
    if seed % 3 == 0:
        y = rng.integers(C, size=len(X))
        X += rng.normal(size=(C, D))[y] * rng.uniform(0.7, 2) / np.sqrt(D)
    else:
        W = rng.normal(size=(D, C)) * rng.uniform(0.5, 2) / np.sqrt(D)
        f = 3 * np.sin(X @ W) if seed % 3 == 1 else 2 * X @ W
        y = (f + rng.gumbel(size=f.shape)).argmax(1)
    known = np.unique(y[:N])
    new = np.isin(y[N:], known)
    return X[:N], y[:N], X[N:][new], y[N:][new]


@pytest.mark.slow
@pytest.mark.parametrize("effort", ["fast", "balanced"])
@pytest.mark.parametrize("weights", ["none", "log-normal", "balanced"])
def test_new_rows_are_within_two_errors_of_the_estimate_in_most_tables(effort, weights):
    """40 tables with known truth: at least 36 within two errors, where 38 are promised
    on average.
    """
    inside = []
    for seed in range(40):
        X, y, new, labels = draw_table(seed)
        given = (
            np.random.default_rng(seed).lognormal(size=len(y))
            if weights == "log-normal"
            else None
        )
        by_class = "balanced" if weights == "balanced" else None
        with without_warnings():
            clf = GPClassifier(
                effort=effort, class_weight=by_class, random_state=0
            ).fit(X, y, given)
        codes = np.searchsorted(clf.classes_, labels)
        weight = (
            1 / np.bincount(np.searchsorted(clf.classes_, y))[codes]
            if by_class
            else None
        )
        new_rows = average(
            -clf.predict_log_proba(new)[np.arange(len(codes)), codes], weight
        )
        error = np.hypot(clf.estimate_.standard_error, new_rows.error)
        inside.append(abs(new_rows.value - clf.estimate_.log_loss) < 2 * error)
    assert sum(inside) >= 36


def test_the_accuracy_of_rows_that_are_all_wrong_is_zero():
    """It was 1 − 1.0000000000000002, and the file of such a model was refused."""
    for n in range(1, 60):
        log_p = np.log(np.tile([0.4, 0.6], (n, 1)))
        y = np.zeros(n, dtype=np.int64)
        assert (
            estimate_quality(log_p, y, np.ones(n), np.full(2, 0.5), "folds").accuracy
            == 0
        )
