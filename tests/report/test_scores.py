"""Scores with weights and bootstrap intervals, against scikit-learn and theory."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn import metrics

from cavity.report import reliability, scores

rng = np.random.default_rng(0)
N, C = 400, 3
P = rng.dirichlet(np.ones(C), N)
Y = np.array([rng.choice(C, p=0.7 * p + 0.1) for p in P])
W = rng.uniform(0.2, 3, N)


@pytest.mark.parametrize("w", [np.ones(N), W])
def test_every_score_is_that_of_scikit_learn(w):
    found, label = scores.score_classes(np.log(P), Y, w), P.argmax(1)
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        Y, label, sample_weight=w
    )
    for name, expected in (("precision", precision), ("recall", recall), ("f1", f1)):
        np.testing.assert_allclose(found["classes"][name], expected)
    auc = [metrics.roc_auc_score(Y == c, P[:, c], sample_weight=w) for c in range(C)]
    np.testing.assert_allclose(found["classes"]["auc"], auc)
    assert found["auc"] == pytest.approx(np.mean(auc)) and found["f1"] == pytest.approx(
        f1.mean()
    )
    assert found["error"] == pytest.approx(
        1 - metrics.accuracy_score(Y, label, sample_weight=w)
    )
    assert found["nll"] == pytest.approx(metrics.log_loss(Y, P, sample_weight=w))
    brier = np.average(((P - np.eye(C)[Y]) ** 2).sum(1), weights=w)
    assert found["brier"] == pytest.approx(brier)
    if np.ptp(w) == 0:
        assert found["ece"] == pytest.approx(reliability(P, Y).error)


def test_ties_count_half_and_one_sided_classes_have_no_auc():
    positive = np.array([True, False, True, False])
    assert scores.compute_auc(np.ones(4), positive, np.ones(4)) == 0.5
    assert np.isnan(scores.compute_auc(np.arange(4.0), np.ones(4, bool), np.ones(4)))
    never = scores.score_classes(
        np.log([[0.7, 0.3]] * 3), np.array([0, 1, 0]), np.ones(3)
    )
    assert (
        np.isnan(never["classes"]["precision"][1])
        and never["classes"]["recall"][1] == 0
    )


@pytest.mark.parametrize(
    "most", [10**6, 100 * C]
)  # all rows, or fewer rows and a smaller interval
def test_an_interval_is_as_wide_as_the_standard_error_says(most):
    rows = (np.log(P), Y, np.ones(N))
    found = scores.bootstrap(scores.score_classes, rows, C, most=most)
    losses = -np.log(P[np.arange(N), Y])
    low, high = found["nll"]
    assert low < losses.mean() < high
    assert (high - low) / (2 * 1.96 * losses.std() / np.sqrt(N)) == pytest.approx(
        1, abs=0.25
    )
    assert np.shape(found["classes"]["f1"]) == (C, 2)


def test_regression_scores_are_those_of_scikit_learn_and_of_the_normal_density():
    y, std = rng.normal(size=N), rng.uniform(0.5, 2, N)
    mean = y + std * rng.normal(size=N)
    found = scores.score_targets(mean, std, y, W)
    assert found["rmse"] == pytest.approx(
        metrics.root_mean_squared_error(y, mean, sample_weight=W)
    )
    assert found["mae"] == pytest.approx(
        metrics.mean_absolute_error(y, mean, sample_weight=W)
    )
    assert found["r2"] == pytest.approx(metrics.r2_score(y, mean, sample_weight=W))
    assert found["nlpd"] == pytest.approx(
        -np.average(norm.logpdf(y, mean, std), weights=W)
    )
    low, high = norm.interval(0.95, mean, std)
    assert found["coverage"] == pytest.approx(
        np.average((low <= y) & (y <= high), weights=W)
    )
