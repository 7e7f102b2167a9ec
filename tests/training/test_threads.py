"""Small fits take one thread, and the user's setting is restored."""

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info, threadpool_limits

from cavity import GPClassifier, Training
from cavity.callbacks import Callback
from cavity.common import blas_threads
from cavity.engine.training import threads
from support import toy


class Count(Callback):
    """Records the number of threads of each epoch."""

    def __init__(self):
        self.seen = []

    def epoch(self, run, row):
        self.seen.append(torch.get_num_threads())
        return False


class Fail(Callback):
    def epoch(self, run, row):
        raise RuntimeError("stop here")


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("rows", "M", "expected"), [(30, 5, 1), (1250, 300, 3)])
def test_a_small_fit_takes_one_thread_and_a_large_one_the_users(
    three_threads, rows, M, expected
):
    assert (rows * M**2 > threads.ONE_THREAD_WORK) == (expected == 3)
    count = Count()
    GPClassifier(
        "ep",
        n_inducing=M,
        batch_size=None,
        max_epochs=1,
        training=Training(tol=1.0),
        device="cpu",
        callbacks=[count],
    ).fit(*toy(rows, 2))
    assert set(count.seen) == {expected}
    assert torch.get_num_threads() == 3


def test_a_fit_that_fails_restores_the_users_threads(three_threads):
    with pytest.raises(RuntimeError, match="stop here"):
        GPClassifier(
            "ep", n_inducing=5, max_epochs=2, device="cpu", callbacks=[Fail()]
        ).fit(*toy(30, 2))
    assert torch.get_num_threads() == 3


class Denormals(Callback):
    """Records whether denormal numbers are rounded to 0 in each epoch."""

    def __init__(self):
        self.seen = []

    def epoch(self, run, row):
        self.seen.append(threads.flushes_denormals())
        return False


@pytest.mark.parametrize(("dtype", "expected"), [("float32", True), ("float64", False)])
def test_only_float32_fits_flush_denormals_and_the_users_setting_is_restored(
    dtype, expected
):
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush denormal numbers")
    seen = Denormals()
    GPClassifier(
        "ep",
        n_inducing=5,
        max_epochs=2,
        training=Training(tol=1.0, dtype=dtype),
        device="cpu",
        callbacks=[seen],
    ).fit(*toy(30, 2))
    assert set(seen.seen) == {expected}
    assert not threads.flushes_denormals()


class Pool:
    """A process-wide number of threads, as NumPy's BLAS has one, with the interface of
    threadpoolctl.
    """

    threads = 2

    def __init__(self, limits, user_api):
        self.before = Pool.threads
        if user_api == "blas":
            Pool.threads = limits

    def restore_original_limits(self):
        Pool.threads = self.before


def test_fits_in_four_threads_that_overlap_restore_every_setting(
    three_threads, monkeypatch
):
    # thread k enters after k − 1 has, and leaves after k − 1 has: the last to leave
    # must not restore what it found
    found = SimpleNamespace(limit=Pool)
    monkeypatch.setattr(blas_threads, "find_libraries", lambda: found)
    entered, left = ([threading.Event() for _ in range(4)] for _ in range(2))
    seen, after = [], []

    def fit(k):
        if k:
            entered[k - 1].wait(10)
        with threads.limit_threads(1):
            entered[k].set()
            entered[3].wait(10)
            if k:
                left[k - 1].wait(10)
            seen.append((torch.get_num_threads(), Pool.threads))
        left[k].set()
        left[3].wait(10)
        after.append(torch.get_num_threads())

    run_in_threads(*(partial(fit, k) for k in range(4)))
    assert seen == [(1, 1)] * 4 and Pool.threads == 2
    run_in_threads(lambda: after.append(torch.get_num_threads()))
    assert after == [3] * 5 and torch.get_num_threads() == 3


def run_in_threads(*tasks):
    workers = [threading.Thread(target=task) for task in tasks]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def test_members_of_a_small_pool_take_one_thread_of_openmp():
    """Two default fits at a time took six times as long: threads of boosting waited for
    each other.
    """
    seen = []

    class Tree(DecisionTreeClassifier):
        def fit(self, X, y, sample_weight=None):
            seen.append(count_openmp())
            return super().fit(X, y, sample_weight)

    def count_openmp():
        return {
            found["num_threads"]
            for found in threadpool_info()
            if found["user_api"] == "openmp"
        }

    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    with threadpool_limits(2, "openmp"):
        GPClassifier(ensemble=[Tree(max_depth=2)], n_inducing=5, max_epochs=1).fit(
            X, X[:, 0] > 0
        )
        assert count_openmp() == {2}
    assert seen and all(threads == {1} for threads in seen)
