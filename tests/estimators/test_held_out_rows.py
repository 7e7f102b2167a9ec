"""`held_out_`, `members_` and `suspect_labels`: what is said follows from one table."""

import pickle
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict

import cavity
from cavity import BadOption, GPClassifier
from cavity.common.scoring import bin_rows
from cavity.fitting.held_out import HeldOut
from cavity.fitting.verdict import judge_rows, score_members, weigh
from cavity.pool.pool import Gate, Pool
from cavity.prediction.estimate import find_wider
from tests.support import with_few_trees, without_warnings

C = 3
SMALL = {"effort": "fast", "n_inducing": 10, "max_epochs": 4, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    """Rows of which some are equal; more than `"fast"` divides into folds."""
    X, y = make_classification(
        1160, 5, n_informative=4, n_redundant=0, n_classes=C, random_state=0
    )
    return np.vstack([X, X[:40]]), np.append(y, y[:40])


@pytest.fixture(scope="module")
def parted(table):
    """A model that a part of the rows judged."""
    with without_warnings(), with_few_trees():
        return GPClassifier(**SMALL).fit(*table)


@pytest.fixture(scope="module")
def folded(table):
    """A model that folds judged."""
    X, y = table
    with without_warnings(), with_few_trees():
        return GPClassifier(**SMALL).fit(X[:200], np.array(["a", "b", "c"])[y[:200]])


@pytest.fixture
def held():
    """Held-out rows of three classifiers; f is unknown at one in 40."""
    rng = np.random.default_rng(0)
    n = 400
    y = rng.integers(0, C, n)
    score = np.eye(C)[y]
    noise = rng.normal(size=(3, n, C))
    logs = log_softmax(np.array([1.0, 2.0, 0.1])[:, None, None] * score + noise, -1)
    return HeldOut(
        log_proba=logs,
        y=y,
        weight=rng.uniform(0.5, 2.0, n),
        unit=np.arange(n),
        part=np.arange(n) % 5,
        u=np.where(np.arange(n) % 40, 0.1, 0.97),
        rows=np.arange(n),
        how="a test",
        kind="held out",
        names=("Gaussian process", "boosting", "networks"),
        seconds=(1.0, 2.0, 3.0),
    )


def own(found):
    return np.arange(len(found)), np.searchsorted(found.classes, found.labels)


def test_every_number_of_the_estimate_follows_from_the_held_out_rows(parted, folded):
    for clf in (parted, folded):
        found = clf.held_out_
        loss = -found.log_proba[own(found)]
        estimate = clf.estimate_
        mean = np.average(loss, weights=found.weight)
        assert mean == pytest.approx(estimate.log_loss)
        right = clf.classes_[found.log_proba.argmax(1)] == found.labels
        assert np.average(right, weights=found.weight) == pytest.approx(
            estimate.accuracy
        )
        for name, alone in zip(clf.members_.names, clf.members_.log_loss, strict=True):
            log_p = found.members[name][own(found)]
            assert -np.average(log_p, weights=found.weight) == pytest.approx(alone)


def test_held_out_rows_are_rows_of_the_table_that_was_given(table, parted, folded):
    _, y = table
    found = parted.held_out_
    assert found.labels.tolist() == y[found.rows].tolist()
    assert len(np.unique(found.rows)) == len(found) and found.of_table
    copies = [set(found.rows) & {i, 1160 + i} for i in range(40)]
    assert {len(pair) for pair in copies} == {0, 2}  # equal rows were merged
    for pair in filter(None, copies):
        assert len(set(found.group[np.isin(found.rows, list(pair))])) == 1
    assert sorted(folded.held_out_.rows) == list(range(200))
    assert len(np.unique(folded.held_out_.fold)) == folded.plan_.judging.parts


def test_bins_of_held_out_rows_err_as_the_estimate_does(parted, folded):
    """Another draw of a small table makes another model: intervals of bins lacked it."""
    held = folded.held_out_
    assert held.wider == 2.0
    found = held.reliability()
    y = np.searchsorted(held.classes, held.labels)
    plain = bin_rows(held.proba, y, held.weight, unit=held.group)
    np.testing.assert_array_equal(found.accuracy, plain.accuracy)
    full = plain.rows > 1
    wide = (found.high - found.low)[full]
    assert (wide > 1.3 * (plain.high - plain.low)[full]).all()

    first = held.reliability(positive="a")
    assert first.rows.sum() == len(held)
    p = held.proba[:, 0]
    assert np.nansum(first.share * first.confidence) == pytest.approx(p.mean())
    with pytest.raises(BadOption, match="'d'"):
        held.reliability(positive="d")
    judged = parted.held_out_
    assert judged.wider == find_wider("folds", len(np.unique(judged.group)))
    assert find_wider("held out", 10) == 1.0


def test_rows_of_weight_0_and_groups_are_told_by_their_numbers(table):
    X, y = table
    weight = np.ones(150)
    weight[[3, 70]] = 0.0
    groups = np.arange(150) // 5
    with without_warnings():
        clf = GPClassifier(**SMALL).fit(X[:150], y[:150], weight, groups=groups)
    found = clf.held_out_
    assert sorted(found.rows) == sorted(set(range(150)) - {3, 70})
    assert found.labels.tolist() == y[found.rows].tolist()
    for g in np.unique(found.group):
        rows = found.rows[found.group == g]
        assert (
            len(set(groups[rows])) == 1 and len(set(found.fold[found.group == g])) == 1
        )
    assert sorted(clf.suspect_labels()) == sorted(found.rows)


@pytest.mark.usefixtures("few_trees")
def test_rows_of_an_eval_set_and_of_leave_one_out_are_held_out_rows(table):
    X, y = table
    named = GPClassifier("ep", n_inducing=8, max_epochs=3, random_state=0)
    with without_warnings():
        named.fit(X[:90], y[:90])
        judged = GPClassifier(**SMALL).fit(
            X[:90], y[:90], eval_set=(X[100:140], y[100:140])
        )
    np.testing.assert_allclose(named.held_out_.log_proba, named.loo_log_proba_)
    loss = -named.loo_log_proba_[np.arange(90), y[:90]].mean()
    assert named.estimate_.log_loss == pytest.approx(loss)
    assert not judged.held_out_.of_table
    assert judged.held_out_.labels.tolist() == y[100:140].tolist()
    # none of them is a row of the table, so all of its rows are predicted
    assert sorted(judged.suspect_labels(folds=2)) == list(range(90))


def test_the_nested_estimate_scales_members_by_the_gate(held):
    """The pool that predicts has a gate: without it members count where f is unknown."""
    verdict = judge_rows(held, np.full(C, 1 / C))
    log_p = np.empty_like(held.log_proba[0])
    gate = Gate(np.ones(1), np.quantile(held.u, 0.95))
    scale = gate.at(held.u[:, None])
    assert scale.min() < 0.2 < 0.9 < scale.max()
    for i in range(5):
        of = held.part == i
        w = weigh(held, ~of)
        far = min(1.0, w.sum())
        own = far + (w[0] - far) * scale[of]
        total = own * held.log_proba[0, of]
        for j in (1, 2):
            total = total + w[j] * scale[of] * held.log_proba[j, of]
        log_p[of] = log_softmax(total, 1)
    np.testing.assert_allclose(verdict.log_proba, log_p)
    loss = -log_p[np.arange(len(held.y)), held.y]
    assert verdict.estimate.log_loss == pytest.approx(
        np.average(loss, weights=held.weight)
    )


def test_a_pool_without_weights_has_no_gate():
    log_p = log_softmax(np.random.default_rng(0).normal(size=(5, C)), 1)
    gate = Gate(np.ones(1), 0.5)
    found = Pool(2.0, (), (0.0,), gate).add_members(log_p, np.ones((5, 1)), [None])
    np.testing.assert_allclose(found, 2.0 * log_p)


def test_gains_of_members_are_losses_of_pools_without_them(held):
    """By a simplex search; the gate is left out."""
    held = held._replace(u=np.ones(len(held.y)))
    weights = weigh(held)
    scores = score_members(held, weights, 2.0)
    nll = partial(log_loss, held.y, sample_weight=held.weight)

    def pooled(w):
        return nll(np.exp(log_softmax(np.tensordot(w, held.log_proba, 1), -1)))

    whole = pooled(weights)
    for j in range(3):
        assert scores.log_loss[j] == pytest.approx(nll(np.exp(held.log_proba[j])))
        found = minimize(
            lambda w, j=j: pooled(np.insert(np.abs(w), j, 0.0)),
            np.ones(2),
            method="Nelder-Mead",
        )
        # penalties, and weights below .05, cost little on 400 rows
        assert -0.002 < scores.gain[j] - (found.fun - whole) < 0.01
    assert scores.gain[1] == max(scores.gain)


def test_a_single_gaussian_process_is_compared_with_class_frequencies(table):
    X, y = table
    with without_warnings():
        clf = GPClassifier(**SMALL, ensemble=None).fit(X[:120], y[:120])
    (gain,) = clf.members_.gain
    estimate = clf.estimate_
    assert gain == pytest.approx(
        estimate.baseline_log_loss - estimate.log_loss, abs=0.02
    )
    assert clf.members_.names == ("Gaussian process",)


def test_members_tell_weights_losses_and_seconds(parted):
    scores = parted.members_
    weights = [w for w in scores.weight if w]
    np.testing.assert_allclose(weights, parted.ensemble_weights_)
    assert all(np.array(scores.seconds) >= 0) and scores.seconds[0] > 0
    assert "Gaussian process" in str(scores)
    assert parted.members_.to_frame()["log_loss"].tolist() == list(scores.log_loss)


def test_a_gaussian_process_without_weight_is_said(parted):
    scores = parted.members_
    assert "kernel_" not in str(scores)
    little = scores._replace(weight=(1e-6, *scores.weight[1:]))
    assert "1e-06" in str(little) and "kernel_" in str(little)


def test_files_and_pickles_hold_members_but_no_rows(parted, tmp_path):
    path = tmp_path / "model.cavity"
    parted.save(path)
    for again in (cavity.load(path), pickle.loads(pickle.dumps(parted))):
        assert again.members_ == parted.members_
        assert again.estimate_ == parted.estimate_
        with pytest.raises(AttributeError, match="held_out_"):
            _ = again.held_out_
        with pytest.raises(ValueError, match="suspect_labels"):
            again.suspect_labels()


def test_what_describes_the_gaussian_process_alone_exists_only_without_a_pool(
    parted, table
):
    for name in ("temperature_", "loo_log_proba_"):
        assert not hasattr(parted, name)
        with pytest.raises(AttributeError, match="held_out_"):
            getattr(parted, name)
    X, y = table
    with without_warnings():
        alone = GPClassifier(**SMALL, ensemble=None).fit(X[:120], y[:120])
    assert alone.temperature_ == 1 / alone.ensemble_weights_[0]
    assert alone.loo_log_proba_.shape == (120, C)


@pytest.mark.usefixtures("few_trees")
def test_scores_of_suspect_labels_are_the_loss_that_the_estimate_expects(parted, table):
    """They are probabilities of models without the rows, at held-out and other rows."""
    X, y = table
    found = parted.suspect_labels()
    assert sorted(found.rows) == list(range(1200))
    assert found.labels.tolist() == y[found.rows].tolist()
    known = np.isin(found.rows, parted.held_out_.rows)
    held = dict(zip(parted.held_out_.rows, parted.held_out_.proba, strict=True))
    own = [held[row][y[row]] for row in found.rows[known]]
    np.testing.assert_allclose(found.scores[known], own)
    loss = -np.log(found.scores[~known])
    error = np.hypot(parted.estimate_.standard_error, loss.std() / len(loss) ** 0.5)
    assert abs(loss.mean() - parted.estimate_.log_loss) < 2 * error
    scores = dict(zip(found.rows, found.scores, strict=True))
    seen = parted.predict_proba(X)[np.arange(1200), y]
    rest = found.rows[~known]
    assert np.mean([scores[i] for i in rest]) < seen[rest].mean()


def test_wrong_labels_have_small_scores_and_come_first():
    """On three tables, as many are found as by folds of boosting, and a threshold finds
    them.
    """
    hits = {"suspects": 0, "boosting": 0}
    for seed in (1, 2, 3):
        X, y = make_classification(
            700, 6, n_informative=5, n_redundant=0, class_sep=2.0, random_state=seed
        )
        rng = np.random.default_rng(seed - 1)
        wrong = rng.choice(700, 35, replace=False)
        y[wrong] = 1 - y[wrong]
        with without_warnings():
            clf = GPClassifier(effort="fast", random_state=0).fit(X, y)
            found = clf.suspect_labels()
        boosting = HistGradientBoostingClassifier(max_iter=50, random_state=0)
        theirs = cross_val_predict(boosting, X, y, method="predict_proba")
        first = np.argsort(theirs[np.arange(700), y])[:35]
        hits["suspects"] += np.isin(found.rows[:35], wrong).sum()
        hits["boosting"] += np.isin(first, wrong).sum()
        low = found.rows[found.scores < 0.05]  # the share of wrong labels
        assert len(low) > 5 and np.isin(low, wrong).mean() > 0.7
    assert hits["suspects"] >= hits["boosting"] > 0.7 * 3 * 35


def test_the_only_row_of_a_class_is_not_ranked(table):
    X, y = table
    y = np.append(y[:100], C)
    with without_warnings():
        clf = GPClassifier(**SMALL).fit(np.vstack([X[:100], X[300]]), y)
    assert sorted(clf.suspect_labels()) == list(range(100))
