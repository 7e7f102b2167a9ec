"""Every split keeps equal rows and groups together, has its share of each class, and
leaves each class to fit to.
"""

import numpy as np
import pytest

from cavity.tables.splitting import choose_folds, hold_out


def make_rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, 2)), rng.integers(0, 2, n)
    y[0] = 2  # a class of one row
    return X, y, rng


def test_parts_are_of_one_size_and_a_class_of_one_row_is_never_held_out():
    X, y, _ = make_rows()
    for stratified in (False, True):
        fold = choose_folds(X, y, 3, 5, stratified=stratified)
        assert fold[0] == -1 and np.ptp(np.bincount(fold[1:], minlength=3)) <= 1
    held = hold_out(X, y, 0.25, 5)
    assert not held[0]
    for label in (0, 1):
        assert np.ptp(np.bincount(fold[y == label], minlength=3)) <= 1
        assert held[y == label].sum() == round(0.25 * (y == label).sum())


def test_folds_do_not_tell_the_class_frequencies_of_new_rows():
    """The more frequent of two classes of random labels has half of the new rows;
    stratified folds said .59.
    """
    found = []
    for seed in range(300):
        X, y = make_rows(20, seed)[:2]
        y %= 2
        fold = choose_folds(X, y, 5, seed)
        for i in range(5):
            usual = np.bincount(y[fold != i]).argmax()
            found += list(usual == y[fold == i])
    assert abs(np.mean(found) - 0.5) < 0.03


def test_splits_depend_neither_on_order_nor_on_repetition():
    X, y, rng = make_rows()
    order = rng.permutation(60).repeat(2)
    for split in (lambda *a: choose_folds(*a, 3, 5), lambda *a: hold_out(*a, 0.3, 5)):
        np.testing.assert_array_equal(split(X[order], y[order]), split(X, y)[order])


@pytest.mark.parametrize("seed", range(20))
def test_every_class_keeps_a_row_even_if_it_equals_rows_of_another_class(seed):
    X, y, _ = make_rows(seed=seed)
    X = np.r_[X[1:], X[1:3], X[5:6]]
    y = np.r_[y[1:], 2, 2, 3]  # classes 2 and 3 have no row of their own
    fold, held = choose_folds(X, y, 2, seed), hold_out(X, y, 0.9, seed)
    for rest in (fold != 0, fold != 1, ~held):
        assert set(y[rest]) == {0, 1, 2, 3}
    assert held.any()


@pytest.mark.parametrize("seed", range(20))
def test_every_class_keeps_a_row_of_a_table_with_fewer_rows_than_folds(seed):
    X = np.arange(4.0)[:, None]
    for y in ([0, 1], [0, 1, 1], [0, 0, 1, 2]):
        fold = choose_folds(X[: len(y)], np.array(y), 5, seed)
        for i in range(5):
            assert set(np.array(y)[fold != i]) == set(y)
