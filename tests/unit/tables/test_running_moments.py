"""Moments of a column, merged batch by batch: those of the whole column."""

import numpy as np
import pytest

from cavity.tables.columns.running_moments import RunningMoments


def feed(*batches):
    found = RunningMoments()
    for batch in batches:
        found.add(np.asarray(batch, float))
    return found


@pytest.mark.parametrize("cuts", [[], [1], [0, 40, 40, 99]])
def test_the_batches_do_not_matter(cuts):
    value = np.random.default_rng(0).normal(1e6, 3.0, size=100)
    found = feed(*np.split(value, cuts))
    assert (found.n, found.low, found.high) == (100, value.min(), value.max())
    assert found.mean == pytest.approx(value.mean(), rel=1e-14)
    assert found.scale == pytest.approx(value.std(), rel=1e-9)


def test_merging_is_adding():
    value = np.random.default_rng(1).normal(size=30)
    merged = feed(value[:12])
    merged.merge(feed(value[12:]))
    merged.merge(RunningMoments())
    expected = feed(value)
    assert merged.mean == pytest.approx(expected.mean, rel=1e-12)
    assert merged.square == pytest.approx(expected.square, rel=1e-12)


def test_a_constant_column_has_scale_one():
    assert feed([7.0, 7.0], [7.0]).scale == 1.0


def test_an_outlier_is_limited_before_it_counts():
    value = np.arange(50.0)
    found = feed(np.append(value, 1e300))
    assert found.high == 49.0
    assert found.n == 51
