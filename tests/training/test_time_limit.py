"""`max_seconds` ends a fit in time, however many classes there are and wherever the
time goes.
"""

import itertools
import time
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import log_loss

from cavity import GPClassifier
from cavity.fitting.options import nest
from cavity.pool.boosting import Boosting
from cavity.pool.member_rows import MemberRows, MemberTask
from cavity.pool.members import Forests
from cavity.pool.sklearn_trees import choose_columns
from cavity.tables.inducing_points import _draw
from support import SlowRows, without_warnings


def fit_within(seconds, n_classes, **options):
    rng = np.random.default_rng(0)
    y = np.arange(2 * n_classes) % n_classes
    X = rng.normal(size=(len(y), 3))
    begun = time.perf_counter()
    with without_warnings():
        clf = GPClassifier(
            **nest(max_seconds=seconds, random_state=0, device="cpu", **options)
        ).fit(X, y)
    return clf, time.perf_counter() - begun


@pytest.mark.parametrize("method", ["auto", "ep", "sep"])
def test_the_last_sweep_is_left_out_if_time_is_up_and_it_would_take_long(
    method,
):
    """B10: the sweep after the last epoch took as long as all rows take, whatever the
    limit.
    """
    slow = {"batch_size": 10, "callbacks": [SlowRows()]}
    clf, _ = fit_within(1e-3, 20, method=method, n_inducing=5, **slow)
    assert clf.n_epochs_ == 1 and clf.history_[-1]["settling_sweeps"] == 0
    assert (
        np.isfinite(clf.log_marginal_likelihood_)
        and clf.log_marginal_likelihood_ == clf.history_[-1]["log_evidence"]
    )
    assert np.isfinite(clf.predict_proba(np.zeros((2, 3)))).all()
    assert "raise max_epochs= or Training(max_seconds=...)" in clf.fit_warnings_[0]


def test_the_start_up_counts(monkeypatch):
    """B10: the clock began after the inducing points were chosen."""
    from cavity.tables import inducing_points as inducing

    choose = inducing.choose

    def slow(*arguments):
        time.sleep(0.3)
        return choose(*arguments)

    monkeypatch.setattr(inducing, "choose", slow)
    clf, _ = fit_within(0.2, 5, method="sep", n_inducing=5, batch_size=2)
    assert clf.n_epochs_ == 1 and clf.history_[0]["seconds"] > 0.3


def test_points_are_drawn_as_if_all_rows_were_sorted():
    rng = np.random.default_rng(0)
    for trial in range(500):
        n = int(rng.integers(1, 40))
        weight, M = (
            rng.choice([0.0, 0.0, 1.0, 2.0, 0.5], n),
            int(rng.integers(0, n + 3)),
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            key = np.log(np.random.default_rng(trial).random(n)) / (
                weight / weight.max()
            )
        expected = np.argsort(-key, kind="stable")[:M]
        np.testing.assert_array_equal(
            _draw(weight, M, np.random.default_rng(trial)), expected
        )


def smooth(n, seed):
    """Three classes with smooth borders."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    f = np.column_stack(
        [np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2], np.cos(X[:, 0] + X[:, 1])]
    )
    return X, (f + 0.2 * rng.normal(size=f.shape)).argmax(1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("rows", "options"),
    [(240, {}), (1200, {"method": "sep", "max_epochs": 40})],
    ids=["auto", "mini-batches"],
)
def test_more_time_never_makes_predictions_worse(rows, options, monkeypatch):
    """A clock that advances by 0.1 seconds whenever it is read makes the limits, and so
    the test, deterministic.
    """
    train, (X, y), losses = smooth(rows, 0), smooth(3000, 1), []
    for limit in (1, 3, 10, 30, 100):
        ticks = itertools.count()
        monkeypatch.setattr(time, "perf_counter", lambda ticks=ticks: 0.1 * next(ticks))
        clf = GPClassifier(
            **nest(n_inducing=20, random_state=0, device="cpu", **options)
        ).fit(*train, time_limit=limit)
        losses.append(log_loss(y, clf.predict_proba(X)))
    assert all(later < 1.01 * sooner for sooner, later in pairwise(losses))
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.slow
def test_ten_thousand_classes_end_in_time():
    """B10: `max_seconds=20` took more than eight minutes to begin.

    One step of all classes cannot be cut.
    """
    clf, seconds = fit_within(20, 10_000, n_inducing=50)
    assert seconds < 120 and clf.n_epochs_ == 1


def test_a_limit_that_passes_while_folds_judge_leaves_a_pool_with_its_estimate(
    monkeypatch,
):
    """Its members were not there, and the fit raised a ValueError."""
    monkeypatch.setattr("cavity.fitting.clock.Clock.has", lambda self, seconds: False)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=60) > 0).astype(int)
    with pytest.warns(UserWarning, match="1 of 3 folds"):
        clf = GPClassifier(effort="fast", random_state=0, device="cpu").fit(
            X, y, time_limit=600
        )
    assert "1 of 3 folds" in clf.estimate_.how
    assert len(clf.ensemble_weights_) == 1 + len(clf._fitted.pool.members) > 1


def test_a_table_without_time_for_all_rows_is_sampled_and_no_member_starts_late(
    monkeypatch,
):
    """2 million rows took twice their limit: they were merged and split as a whole, and
    boosting began after it with all rows.
    """
    fitted = []
    start = Boosting._start

    def record(self, rows, rounds):
        fitted.append((clock.seconds, len(rows.y)))
        return start(self, rows, rounds)

    class Clock:  # a million rows that are merged take ten seconds
        seconds = 0.0

        def read(self):
            self.seconds += 0.1
            return self.seconds

    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock.read)
    monkeypatch.setattr(Boosting, "_start", record)
    X, y = smooth(90_000, 0)
    with pytest.warns(UserWarning, match="time_limit=3"):
        clf = GPClassifier(random_state=0, device="cpu").fit(X, y, time_limit=3)
    assert 20_000 <= clf.plan_.training.rows < 80_000
    assert any("90,000" in said for said in clf.fit_warnings_)
    assert fitted
    assert all(rows <= 20_100 for seconds, rows in fitted if seconds > 3)
    assert clf.predict_proba(X[:5]).shape == (5, 3)


def test_boosting_draws_rows_if_there_is_no_time_for_all():
    X, y = smooth(50_000, 0)
    rows = MemberRows(X, y, None, 3)
    held = MemberRows(*smooth(500, 1), None, 3)
    columns = choose_columns(X, [])
    seconds = iter(np.linspace(1, 0, 4))
    task = MemberTask(rows, columns, held)
    in_time = task._replace(left=lambda: next(seconds, -1.0))
    _, chosen = Boosting(0.1, 0).fit(in_time)
    assert chosen.most_rows == 20_000
    again, _ = chosen.fit(task._replace(held=None))
    assert again.log_proba(X[:3]).shape == (3, 3)
    _, usual = Boosting(0.1, 0).fit(task)
    assert usual.most_rows is None


def test_a_forest_grows_the_trees_that_it_has_time_for():
    X, y = smooth(300, 0)
    rows = MemberRows(X, y, None, 3)
    columns = choose_columns(X, [])
    trees = {}
    for limit in (10.0, 3.0, np.inf):
        seconds = itertools.count()
        left = lambda s=seconds, limit=limit: limit - next(s)
        _, recipe = Forests(100, 0, 0).fit(MemberTask(rows, columns, None, left))
        trees[limit] = recipe.trees
    assert trees[3.0] < trees[10.0] < trees[np.inf] == 100
