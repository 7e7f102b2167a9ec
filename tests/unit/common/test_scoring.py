"""One scorer: weights are numbers of rows, and standard errors count the rows that say
as much as the weighted ones.
"""

import numpy as np
import pytest

from cavity.common import scoring

rng = np.random.default_rng(0)
N, C = 500, 3
P = rng.dirichlet(np.ones(C), N)
Y = np.array([rng.choice(C, p=p) for p in P])
W = rng.integers(1, 5, N)


def test_a_weight_is_a_number_of_rows():
    again = np.repeat(np.arange(N), W)
    one, many = (
        scoring.score_log_proba(np.log(P), Y, 1.0 * W),
        scoring.score_log_proba(np.log(P[again]), Y[again]),
    )
    assert one == pytest.approx(many)
    weighted, copies = (
        scoring.bin_rows(P, Y, 1.0 * W),
        scoring.bin_rows(P[again], Y[again]),
    )
    for name in ("confidence", "accuracy", "share"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(copies, name))


def test_the_effective_number_of_rows_is_theirs_for_equal_weights_and_one_for_a_single_heavy_row():
    assert scoring.count_effective(np.full(7, 0.3)) == pytest.approx(7)
    assert scoring.count_effective(np.r_[1e9, np.ones(7)]) == pytest.approx(1)


@pytest.mark.parametrize("weight", [np.ones(N), rng.gamma(0.5, size=N)])
def test_the_standard_error_is_the_spread_of_the_mean_over_many_tables(weight):
    means, errors = zip(
        *(scoring.average(rng.normal(size=N), weight) for _ in range(400)), strict=True
    )
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)


def test_the_scale_of_the_weights_changes_nothing():
    for k, values in scoring.score_rows(np.log(P), Y).items():
        assert scoring.average(values, 1.0 * W) == pytest.approx(
            scoring.average(values, 50.0 * W)
        ), k


def test_an_interval_of_a_share_is_wilsons():
    from scipy.stats import binomtest

    for k, n in ((0, 9), (3, 20), (50, 50)):
        found = binomtest(k, n).proportion_ci(0.95, "wilson")
        assert scoring.find_interval(k / n, n) == pytest.approx((found.low, found.high))


def test_intervals_of_bins_hold_their_accuracy_and_empty_bins_have_none():
    table = scoring.bin_rows(P, Y, 1.0 * W, bins=20)
    full = table.rows > 0
    assert (table.low[full] <= table.accuracy[full]).all() and (
        table.accuracy[full] <= table.high[full]
    ).all()
    assert np.isnan(table.low[~full]).all() and not full.all()
    assert table.rows.sum() == N and table.share.sum() == pytest.approx(1)
