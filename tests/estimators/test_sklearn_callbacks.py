"""Callbacks of scikit-learn 1.9 follow a fit, alone and within a pipeline or a grid search."""

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier, GPRegressor
from cavity.callbacks import Callback
from cavity.estimators import optional_methods

callback = pytest.importorskip("sklearn.callback", reason="callbacks came with scikit-learn 1.9")
X, y = load_iris(return_X_y=True)


class Log:
    """Keep what is told; stop after some epochs, if asked to."""

    def __init__(self, last=None):
        self.last, self.told = last, []

    def setup(self, estimator, context):
        self.told.append("setup")

    def teardown(self, estimator, context):
        self.told.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.told.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context):
        self.told.append(f"end {context.task_name}")
        return context.task_name == "epoch" and context.task_id + 1 == self.last


class Everywhere(Log):
    """Follow the steps of a pipeline, too."""

    max_propagation_depth = None


class Fails(Callback):
    def epoch(self, run, row):
        return 1 / 0


def make(kind=GPClassifier, **options):
    more = {"calibration": None} if kind is GPClassifier else {}
    return kind(n_inducing=10, max_epochs=4, random_state=0, **more, **options)


@pytest.mark.parametrize("kind", [GPClassifier, GPRegressor])
def test_every_epoch_is_a_task_of_the_fit_and_a_callback_can_stop_it(kind):
    log = Log()
    clf = make(kind).set_callbacks(log).fit(X, y)
    epochs = ["begin epoch", "end epoch"] * clf.n_epochs_
    assert log.told[: 2 + len(epochs)] == ["setup", "begin fit", *epochs]
    assert log.told[-2:] == ["end fit", "teardown"] and log.told.count("begin epoch") == log.told.count(
        "end epoch"
    )
    assert make(kind).set_callbacks(Log(last=2)).fit(X, y).n_epochs_ == 2


@pytest.mark.parametrize(
    "batches", [{}, {"method": "sep", "batch_size": 50}, {"method": "ep", "batch_size": 50}]
)
def test_a_scoring_monitor_sees_each_epoch_and_changes_nothing(batches):
    monitor = callback.ScoringMonitor(scoring="neg_log_loss")
    clf, plain = make(**batches).set_callbacks(monitor).fit(X, y), make(**batches).fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(X), plain.predict_proba(X))
    assert clf.log_marginal_likelihood_ == plain.log_marginal_likelihood_
    log = monitor.get_logs().data_as_pandas
    scores = log.set_index("task_id_path")["neg_log_loss"]
    assert scores[(0,)] == -log_loss(y, plain.predict_proba(X)) and len(scores) == 1 + clf.n_epochs_
    assert scores.nunique() == len(scores) and (scores > -log_loss(y, np.full((150, 3), 1 / 3))).all()


def test_callbacks_of_a_pipeline_reach_the_model_and_a_failing_fit_tears_them_down():
    log = Everywhere()
    pipeline = make_pipeline(StandardScaler(), make()).set_callbacks(log).fit(X, y)
    assert log.told.count("end epoch") == pipeline[-1].n_epochs_ and log.told.count("setup") == 1
    log = Log()
    with pytest.raises(ZeroDivisionError):
        make(callbacks=[Fails()]).set_callbacks(log).fit(X, y)
    assert log.told[-1] == "teardown" and "end fit" not in log.told


def test_an_older_scikit_learn_has_no_callbacks_to_set(monkeypatch):
    monkeypatch.setattr(optional_methods, "find_spec", lambda name: None)
    assert not hasattr(make(), "set_callbacks")
