"""Column statistics: weights are repetitions, units do not matter, constant columns do
no harm.
"""

import numpy as np
import pytest

from cavity.common.column_statistics import (
    MEDIAN_ROWS,
    distinct_rows,
    hash_arranged,
    hash_rows,
    median_distance,
    summarize,
)


def table(N=30, D=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, D)) * [1.0, 20.0, 0.03] + [0.0, 5.0, -7.0]


def rng():
    return np.random.default_rng(0)


def spread_of(X):
    """The standard deviation, or a quarter of the range if that is more."""
    return np.maximum(X.std(0), np.ptp(X, axis=0) / 4)


def test_plain_statistics():
    X = table()
    columns = summarize(X, np.ones(30), rng())
    np.testing.assert_allclose(columns.center, X.mean(0))
    np.testing.assert_allclose(columns.spread, spread_of(X))
    U = (X - X.mean(0)) / spread_of(X)
    pairs = np.linalg.norm(U[:, None] - U[None], axis=-1)[np.triu_indices(30, 1)]
    assert np.quantile(pairs, 0.49) < columns.distance < np.quantile(pairs, 0.51)


def test_a_weight_is_a_repetition():
    """Up to pairs of a row with itself, which have no distance and do not count."""
    X, times = table(), np.random.default_rng(1).integers(1, 5, 30)
    weighted = summarize(X, times.astype(float), rng())
    repeated = np.repeat(X, times, axis=0)
    np.testing.assert_allclose(weighted.center, repeated.mean(0), rtol=1e-12)
    np.testing.assert_allclose(weighted.spread, spread_of(repeated), rtol=1e-12)
    U = (repeated - repeated.mean(0)) / spread_of(repeated)
    pairs = np.linalg.norm(U[:, None] - U[None], axis=-1)[np.triu_indices(len(U), 1)]
    apart = np.sort(pairs[pairs > 1e-9])
    middle = len(apart) / 2
    assert (
        apart[int(middle) - 2] - 1e-9
        <= weighted.distance
        <= apart[int(middle) + 2] + 1e-9
    )


def test_units_and_order_change_nothing_but_rounding():
    X, weight = table(), np.random.default_rng(1).uniform(0.1, 3, 30)
    one, two = summarize(X, weight, rng()), summarize(X, 1e-3 * weight, rng())
    np.testing.assert_allclose(one.center, two.center, rtol=1e-12)
    np.testing.assert_allclose(one.spread, two.spread, rtol=1e-12)
    assert one.distance == pytest.approx(two.distance, rel=1e-12)
    order = np.random.default_rng(2).permutation(30)
    one, two = summarize(X, weight, rng()), summarize(X[order], weight[order], rng())
    np.testing.assert_allclose(one.spread, two.spread, rtol=1e-12)
    assert one.distance == pytest.approx(two.distance, rel=1e-9)


@pytest.mark.parametrize("power", [-40, -10, 10, 40])
def test_a_power_of_two_scales_to_the_last_bit(power):
    X, weight = table(), np.random.default_rng(1).uniform(0.1, 3, 30)
    scale = np.array([2.0**power, 1.0, 2.0**-power])
    one, two = summarize(X, weight, rng()), summarize(X * scale, weight, rng())
    assert (two.center == one.center * scale).all()
    assert (two.spread == one.spread * scale).all()
    assert two.distance == one.distance


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e12, 1e-12])
def test_a_constant_column_has_a_positive_spread_and_no_distance(value):
    X = table(D=3)
    columns = summarize(np.column_stack([X, np.full(30, value)]), np.ones(30), rng())
    without = summarize(X, np.ones(30), rng())
    assert np.isfinite(columns.spread).all() and (columns.spread > 0).all()
    assert columns.distance == pytest.approx(without.distance, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-12, 1e12, 1e150])
def test_extreme_units(scale):
    columns = summarize(table() * scale, np.ones(30), rng())
    plain = summarize(table(), np.ones(30), rng())
    np.testing.assert_allclose(columns.spread, plain.spread * scale, rtol=1e-12)
    assert columns.distance == pytest.approx(plain.distance, rel=1e-9)


def test_a_small_spread_far_from_zero_is_not_constant():
    X = 1e6 + 1e-2 * table(D=3)[:, :1]
    columns = summarize(X, np.ones(30), rng())
    assert columns.spread[0] == pytest.approx(1e-2 * spread_of(table())[0], rel=1e-6)


def test_a_column_that_is_nearly_always_the_same_keeps_its_exceptions_in_reach():
    X = np.zeros((1000, 1))
    X[3] = 8.0
    assert summarize(X, np.ones(1000), rng()).spread[0] == pytest.approx(2.0)
    assert X.std() < 0.3


def test_median_distance_of_many_rows_is_that_of_a_sample():
    U = np.random.default_rng(3).normal(size=(4 * MEDIAN_ROWS, 2))
    whole = np.linalg.norm(U[:1500, None] - U[None, :1500], axis=-1)[
        np.triu_indices(1500, 1)
    ]
    assert median_distance(U, np.ones(len(U)), rng()) == pytest.approx(
        np.median(whole), rel=0.05
    )


def test_median_distance_by_hand_and_without_pairs():
    """Points 0, 1, 3 on a line: distances 1, 2, 3; a heavy third row moves the median."""
    U = np.array([[0.0], [1.0], [3.0]])
    assert median_distance(U, np.ones(3), rng()) == 2.0
    assert median_distance(U, np.array([1.0, 10.0, 1.0]), rng()) in (1.0, 2.0)
    assert median_distance(U, np.array([10.0, 1.0, 10.0]), rng()) == 3.0
    assert median_distance(np.zeros((1, 2)), np.ones(1), rng()) == 1.0
    assert median_distance(np.zeros((5, 2)), np.ones(5), rng()) == 1.0


@pytest.mark.parametrize("shape", [(1, 1), (40, 1), (60, 3), (200, 17)])
def test_distinct_rows_are_numpy_s_in_another_order(shape):
    r = rng()
    X = r.integers(-2, 3, shape) * r.choice([1.0, 1e-310, 1e300, -0.0, 0.1], shape[1])
    rows, place = distinct_rows(X)
    expected, expected_place = np.unique(X, axis=0, return_inverse=True)
    order = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    np.testing.assert_array_equal(rows, expected[order])
    np.testing.assert_array_equal(order[place], expected_place.reshape(-1))


def test_words_of_distinct_rows_need_no_copy_of_them():
    rng = np.random.default_rng(0)
    distinct = rng.integers(-9, 9, (700, 5)) / 4.0
    distinct = np.unique(distinct, axis=0)[rng.permutation(600)]
    X = np.concatenate([distinct, distinct[:50]])[rng.permutation(650)]
    _, first = np.unique(hash_rows(X), return_index=True)
    assert len(first) == 600
    np.testing.assert_array_equal(
        hash_arranged(X, first)[first], hash_arranged(X[first])
    )


@pytest.mark.parametrize("D", [1, 40, 40_000])
def test_words_of_rows_do_not_depend_on_the_rows_beside_them(D):
    """Wide rows are hashed a few at a time, or one by one."""
    X = np.random.default_rng(0).normal(size=(9, D))
    apart = [hash_rows(X[i : i + 1]) for i in range(9)]
    np.testing.assert_array_equal(hash_rows(X), np.concatenate(apart))
