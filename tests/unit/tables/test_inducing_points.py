"""Choosing Z: rows of the data, blind to repetition, weighting and order."""

import numpy as np
import pytest

from cavity.common.column_statistics import summarize
from cavity.errors import BadInput, BadOption
from cavity.tables.inducing_points import CHOOSERS, choose, draw_candidates, greedy
from reference.greedy import largest_conditional_variance
from reference.kernels import rbf

NAMED = list(CHOOSERS)


def rng():
    return np.random.default_rng(7)


def table(N=40, C=3, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(N, 2)) * [1.0, 100.0]
    return X, np.arange(N) % C


def pool(X, y, weight=None, C=3, **options):
    weight = np.ones(len(X)) if weight is None else weight
    columns = summarize(X, weight, rng())
    return draw_candidates(X, y, weight, C, columns, rng(), **options)


def is_row_of(Z, X):
    return (Z[:, None] == X[None]).all(-1).any(1)


@pytest.mark.parametrize("how", NAMED)
def test_chosen_points_are_distinct_rows(how):
    X, y = table()
    Z = choose(how, pool(X, y), 10, 3, rng())
    assert Z.shape == (3, 10, 2)
    for c in range(3):
        assert len(np.unique(Z[c], axis=0)) == 10
        assert is_row_of(Z[c], X).all()


@pytest.mark.parametrize("how", NAMED)
@pytest.mark.parametrize("M", [15, 16, 100])
def test_all_distinct_rows_where_m_reaches_their_number(how, M):
    X, y = table(15)
    twice = np.concatenate([X, X])
    Z = choose(how, pool(twice, np.concatenate([y, y])), M, 3, rng())
    assert Z.shape == (3, 15, 2)
    for c in range(3):
        np.testing.assert_array_equal(np.unique(Z[c], axis=0), np.unique(X, axis=0))


@pytest.mark.parametrize("how", NAMED)
def test_repeating_a_row_is_weighting_it(how):
    X, y = table()
    times = np.random.default_rng(1).integers(1, 5, len(X))
    weighted = pool(X, y, times.astype(float))
    repeated = pool(np.repeat(X, times, axis=0), np.repeat(y, times))
    # the columns' statistics differ by rounding; the choice is made on the same numbers
    repeated = repeated._replace(U=weighted.U, distance=weighted.distance)
    np.testing.assert_array_equal(weighted.class_weight, repeated.class_weight)
    np.testing.assert_array_equal(
        choose(how, weighted, 9, 3, rng()), choose(how, repeated, 9, 3, rng())
    )


@pytest.mark.parametrize("how", NAMED)
def test_neither_order_nor_units_matter(how):
    X, y = table()
    order = np.random.default_rng(2).permutation(len(X))
    one, two = pool(X, y), pool(X[order], y[order])
    two = two._replace(U=one.U, distance=one.distance)
    np.testing.assert_array_equal(
        choose(how, one, 9, 3, rng()), choose(how, two, 9, 3, rng())
    )
    scale = np.array([1024.0, 2.0**-12])
    np.testing.assert_array_equal(
        choose(how, pool(X * scale, y), 9, 3, rng()),
        choose(how, pool(X, y), 9, 3, rng()) * scale,
    )


def test_half_of_each_class_s_points_come_from_the_class():
    X, y = table(60)
    Z = choose("per-class", pool(X, y), 10, 3, rng())
    for c in range(3):
        assert is_row_of(Z[c], X[y == c]).sum() >= 5
        assert is_row_of(Z[c][:5], X[y == c]).all()
    assert not np.array_equal(Z[0], Z[1])


def test_a_small_class_gives_what_it_has():
    X, y = table(60)
    y[:] = 0
    y[3], y[8], y[11] = 1, 2, 2
    Z = choose("per-class", pool(X, y), 10, 3, rng())
    assert Z.shape == (3, 10, 2)
    assert is_row_of(Z[1], X[3:4]).sum() == 1 and is_row_of(Z[2], X[[8, 11]]).sum() == 2
    for c in range(3):
        assert len(np.unique(Z[c], axis=0)) == 10


def test_greedy_spreads():
    """In every tight cluster one point, before any cluster gets a second."""
    generator = np.random.default_rng(0)
    centres = np.array([[0, 0], [10, 0], [0, 10], [10, 10], [5, 5.0]])
    X = np.concatenate([c + 0.01 * generator.normal(size=(20, 2)) for c in centres])
    Z = choose("greedy", pool(X, np.arange(100) % 3), 5, 1, rng())[0]
    nearest = [int(np.abs(centres - z).sum(1).argmin()) for z in Z]
    assert sorted(nearest) == [0, 1, 2, 3, 4]


def test_greedy_takes_the_largest_conditional_variance():
    candidates = pool(*table(60))
    chosen = greedy(candidates, 12, rng())
    k = lambda A, B: rbf(A, B, candidates.distance, 1.0)
    expected = largest_conditional_variance(k, candidates.U, 12, chosen[0])
    assert chosen.tolist() == expected


def test_random_follows_the_weights():
    X, y = table(100)
    weight = np.where(np.arange(100) < 10, 1e6, 1e-4)
    Z = choose("random", pool(X, y, weight), 10, 1, rng())[0]
    assert is_row_of(Z, X[:10]).all()


def test_very_many_rows_are_sampled():
    X, y = table(500)
    p = pool(X, y, limit=100)
    assert len(p.X) == 100 and p.weight.sum() == 100
    assert is_row_of(p.X, X).all()


# --- given -----------------------------------------------------------------------------------------------
def test_given_points_are_taken_as_they_are():
    X, y = table()
    Z = np.random.default_rng(0).normal(size=(3, 5, 2))
    got = choose(Z, pool(X, y), 99, 3, rng())
    np.testing.assert_array_equal(got, Z)
    got[:] = 0
    assert Z.any(), "the user's array is not written to"
    np.testing.assert_array_equal(
        choose(Z[0], pool(X, y), 99, 3, rng()), np.stack([Z[0]] * 3)
    )
    np.testing.assert_array_equal(
        choose(Z[0].tolist(), pool(X, y), 99, 1, rng())[0], Z[0]
    )


@pytest.mark.parametrize("shape", [(5,), (5, 3), (2, 5, 2), (3, 0, 2), (3, 5, 2, 1)])
def test_given_points_of_a_wrong_shape_are_refused(shape):
    X, y = table()
    with pytest.raises(BadOption, match=r"\(3, M, 2\)"):
        choose(np.zeros(shape), pool(X, y), 5, 3, rng())


def test_given_points_must_be_finite_and_an_unknown_chooser_names_the_known_ones():
    X, y = table()
    with pytest.raises(BadInput, match="NaN or infinite"):
        choose(np.full((4, 2), np.nan), pool(X, y), 5, 3, rng())
    with pytest.raises(BadOption, match=r"'clever'.*'random'"):
        choose("clever", pool(X, y), 5, 3, rng())
