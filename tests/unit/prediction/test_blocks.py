"""Blocks of rows that threads predict."""

import threading

import numpy as np
import pytest
from sklearn.datasets import load_iris

from cavity import GPClassifier
from cavity.prediction.blocks import predict_blocks
from support import with_few_trees

ROWS = 2500


@pytest.fixture(scope="module")
def fitted():
    with with_few_trees():
        model = GPClassifier(effort="fast", n_inducing=10, max_epochs=3, device="cpu")
        return model.fit(*load_iris(return_X_y=True))


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    return load_iris().data[draw.integers(0, 150, ROWS)] + draw.normal(size=(ROWS, 4))


def test_the_number_of_threads_does_not_change_a_bit(fitted, rows, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = fitted.predict_proba(rows)
    monkeypatch.delenv("OMP_NUM_THREADS")
    np.testing.assert_array_equal(fitted.predict_proba(rows), alone)
    few = np.concatenate([fitted.predict_proba(part) for part in np.split(rows, 100)])
    np.testing.assert_allclose(few, alone, rtol=1e-11)


def test_rows_keep_their_order_and_threads_end(fitted, rows):
    before = threading.active_count()
    found = predict_blocks(
        fitted._fitted, fitted._features(), rows, lambda model, part: (part[:, 0],)
    )
    np.testing.assert_array_equal(found[0], rows[:, 0])
    assert threading.active_count() == before


def test_an_exception_of_a_thread_reaches_the_caller(fitted, rows):
    def fail(model, part):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        predict_blocks(fitted._fitted, fitted._features(), rows, fail)
