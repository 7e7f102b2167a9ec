"""Trees of large tables: those that grow in a thread while the Gaussian process trains, and those without a limit of leaves."""

import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier

from cavity import GPClassifier
from cavity.fitting import members
from cavity.fitting.classification_job import ClassifierFits
from cavity.rows.tables import Table
from cavity.training.callbacks import Callback

R = np.random.default_rng(3)
X = R.normal(size=(200, 4))
Y = (np.hypot(X[:, 0], X[:, 1]) > 1.1).astype(int) + (X[:, 2] > 1)
NEW = R.normal(size=(20, 4))


def fit(beside, monkeypatch, **options):
    """Fit a small model; `beside`: whether its trees grow in a thread."""
    planned, folds = ClassifierFits.plan_calibration, options.pop("folds", False)
    limit = options.pop("time_limit", None)
    monkeypatch.setattr(
        ClassifierFits, "plan_calibration", lambda *a: replace(planned(*a), beside=beside, threads=1 + beside)
    )
    clf = GPClassifier(n_inducing=10, max_epochs=4, ensemble="trees", random_state=0, **options)
    held = {} if folds else {"eval_set": (X[150:], Y[150:])}
    try:
        return clf.fit(X[:150], Y[:150], **held, time_limit=limit)
    finally:
        monkeypatch.undo()


@pytest.mark.parametrize("folds", [False, True])
def test_trees_grown_beside_training_are_those_grown_afterwards(folds, monkeypatch):
    filters = list(warnings.filters)
    one, other = (fit(beside, monkeypatch, folds=folds) for beside in (False, True))
    assert one.ensemble_weights_.shape == (3,) and one.fit_warnings_ == other.fit_warnings_
    np.testing.assert_array_equal(one.predict_proba(NEW), other.predict_proba(NEW))
    assert warnings.filters == filters


def test_a_time_limit_leaves_out_the_trees_that_are_not_ready(monkeypatch):
    grown = threading.Event()
    monkeypatch.setattr(members, "choose_columns", lambda *_: grown.wait(60))
    with pytest.warns(UserWarning, match="no time for HistGradientBoostingClassifier and ExtraTrees"):
        clf = fit(True, monkeypatch, time_limit=1.0)
    grown.set()
    assert clf.ensemble_weights_.shape == (1,)


def test_an_interrupt_stops_the_trees_and_keeps_the_model(monkeypatch):
    class Interrupt(Callback):
        def epoch(self, run, row):
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="training was interrupted"), pytest.raises(KeyboardInterrupt):
        fit(True, monkeypatch, callbacks=[Interrupt()])
    (thread,) = [t for t in threading.enumerate() if t.name == "cavity-trees"] or [None]
    if thread is not None:
        thread.join(10)
        assert not thread.is_alive()


def test_an_error_of_a_member_is_raised(monkeypatch):
    def fail(*_):
        raise RuntimeError("no trees today")

    monkeypatch.setattr(members, "choose_columns", fail)
    with pytest.raises(RuntimeError, match="no trees today"):
        fit(True, monkeypatch)


@pytest.mark.parametrize(("noise", "deep"), [(0.0, True), (0.4, False)])
def test_forests_are_limited_unless_held_out_rows_ask_for_deep_trees(noise, deep):
    rng = np.random.default_rng(0)
    rows = rng.random((3000, 2))
    y = (np.floor(12 * rows).sum(1) % 2).astype(int)  # a chessboard
    y = np.where(rng.random(3000) < noise, 1 - y, y)
    table, held = (
        Table(rows[part], y[part], np.ones(len(y[part])), 2) for part in (slice(2000), slice(2000, None))
    )
    forest = ExtraTreesClassifier(100, max_leaf_nodes=60, random_state=0)
    (found,) = members.deepen([forest], table, np.arange(2), held)
    assert (found.max_leaf_nodes is None) == deep
