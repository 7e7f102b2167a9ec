"""Rows that leave a finished fit one by one: which rows stand for all of them."""

import numpy as np
import pytest
import torch

from cavity.engine.inference.posterior import Normal
from cavity.fitting.left_out import LeftOut, choose_sample, effective_share


def leave_out(y, C, complete=True, unit=None):
    """Marginals whose mean is the number of the row."""
    n = len(y)
    mean = torch.arange(float(n))[:, None].expand(n, C)
    f = Normal(mean, torch.ones(n, C))
    weight = 1.0 + np.arange(n)
    return LeftOut(f, np.asarray(y), weight, np.arange(n), complete, unit)


def test_the_temperature_of_many_classes_comes_from_some_rows():
    """As many as `scored` log-probabilities, and at least `least` rows."""
    found = leave_out(np.arange(200) % 31, C=31)
    some = found.sample(scored=31 * 50, least=1)
    assert len(some.y) == 50 and not some.complete
    for part in (some.rows, some.f.mean[:, 0], some.weight - 1):
        np.testing.assert_array_equal(part, some.rows)
    np.testing.assert_array_equal(some.y, some.rows % 31)
    assert len(found.sample(scored=1, least=60).y) == 60
    assert found.sample(scored=31 * 200, least=1) is found


def test_random_rows_are_distinct_and_ascending():
    assert choose_sample(50, 50) is None
    chosen = choose_sample(10**9, 4000)
    assert len(chosen) == 4000 and (np.diff(chosen) > 0).all()
    assert 0 <= chosen[0] and chosen[-1] < 10**9


def test_rows_that_are_alone_in_their_class_are_left_out():
    labels = [0, 0, 1, 2, 2, 2]
    assert leave_out(labels, 3).without_lone_rows().rows.tolist() == [0, 1, 3, 4, 5]
    partial = leave_out(labels, 3, complete=False)
    assert partial.without_lone_rows() is partial


def test_twins_are_one_case_of_their_class():
    """Rows 3 to 5 are one patient: its class has no other case."""
    unit = np.array([0, 1, 2, 3, 3, 3])
    found = leave_out([0, 0, 0, 2, 2, 2], 3, unit=unit).without_lone_rows()
    assert found.rows.tolist() == [0, 1, 2] and found.unit.tolist() == [0, 1, 2]


def test_the_share_scales_weights_to_the_number_of_effective_rows():
    """Σω / Σω², where twins are one row."""
    weight = np.array([1.0, 2.0, 3.0])
    assert effective_share(weight) == pytest.approx(6 / 14)
    assert effective_share(weight, np.array([0, 1, 1])) == pytest.approx(6 / 26)
    assert effective_share(np.full(7, 0.5)) == pytest.approx(2.0)
