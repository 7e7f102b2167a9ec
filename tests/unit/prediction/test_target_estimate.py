"""Scores of a regressor on rows that did not train it. [METHOD 13]"""

import numpy as np
import pytest
from scipy.stats import norm

from cavity.prediction.target_estimate import (
    choose_half_width,
    estimate_targets,
    find_normal_half_width,
)


def score(n, seed=0, weight=None):
    """Normal predictions that are true."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=n)
    sd = rng.uniform(0.5, 2.0, size=n)
    y = mean + sd * rng.normal(size=n)
    weight = np.ones(n) if weight is None else weight
    return mean, sd, y, estimate_targets(mean, sd, y, weight)


def test_scores_are_those_of_their_definitions():
    mean, sd, y, found = score(300)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found.r2 == pytest.approx(1 - found.rmse**2 / y.var())
    assert found.log_density == pytest.approx(norm.logpdf(y, mean, sd).mean())
    inside = np.abs(y - mean) <= norm.ppf(0.75) * sd
    assert found.coverage_50 == pytest.approx(inside.mean())
    assert found.baseline_rmse == pytest.approx(y.std())


def test_a_row_of_weight_two_counts_twice():
    weight = np.arange(40) % 3 + 1.0
    mean, sd, y, found = score(40, weight=weight)
    times = weight.astype(int)
    rows = (np.repeat(part, times) for part in (mean, sd, y))
    repeated = estimate_targets(*rows, np.ones(times.sum()))
    for name in ("rmse", "r2", "log_density", "coverage_50", "baseline_rmse"):
        assert getattr(found, name) == pytest.approx(getattr(repeated, name)), name


def test_the_half_width_is_the_conformal_quantile_of_the_scores():
    """The ⌈(n + 1) coverage⌉-th smallest of n: the k-th of 99 at k per cent."""
    mean, sd, y, found = score(99)
    scores = np.sort(np.abs(y - mean) / sd)
    widths = [found.find_half_width(k / 100) for k in range(1, 100)]
    np.testing.assert_allclose(widths, scores, rtol=1e-12)
    assert found.find_half_width(0.873) == pytest.approx(scores[87])


def test_without_enough_scores_it_is_at_least_the_normal_one():
    assert find_normal_half_width(0.95) == pytest.approx(norm.ppf(0.975))
    assert choose_half_width(None, 0.95) == find_normal_half_width(0.95)
    *_, few = score(5)
    assert few.find_half_width(0.99) >= find_normal_half_width(0.99)
