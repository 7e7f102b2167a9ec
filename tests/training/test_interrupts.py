"""Ctrl-C during `fit`: the model so far is kept, a warning says so, and the interrupt
goes on up.
"""

import numpy as np
import pytest

import cavity
from cavity import GPClassifier, GPRegressor
from cavity.callbacks import Callback
from cavity.engine.inference import Engine
from cavity.engine.training import lbfgs
from cavity.engine.training.guard import Guard
from cavity.fitting import folds
from cavity.fitting.left_out import LEAST_ROWS
from cavity.fitting.options import nest
from cavity.pool import members
from support import toy

X, Y = toy(60, 3, seed=0)
SMALL = {"n_inducing": 6, "random_state": 0, "device": "cpu"}


class Interrupt(Callback):
    """Interrupts after an epoch."""

    def __init__(self, epoch):
        self.after = epoch

    def epoch(self, run, row):
        if row["epoch"] == self.after:
            raise KeyboardInterrupt
        return False


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


def fit_interrupted(model, y=Y, X=X):
    with (
        pytest.warns(UserWarning, match="interrupted"),
        pytest.raises(KeyboardInterrupt),
    ):
        model.fit(X, y)
    assert any("interrupted" in text for text in model.fit_warnings_)
    return model


def check_valid(clf, folder):
    """The model predicts probabilities, better than guessing, and so does its file."""
    P = clf.predict_proba(X)
    assert np.isfinite(P).all() and np.allclose(P.sum(1), 1)
    assert clf.score(X, Y) > 0.5
    clf.save(folder / "m.cavity")
    np.testing.assert_array_equal(cavity.load(folder / "m.cavity").predict_proba(X), P)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 20},
        {"batch_size": None},
        {"optimizer": "lbfgs"},
        {"method": "vi"},
    ],
)
def test_the_model_of_the_epochs_so_far_is_kept(options, tmp_path):
    clf = fit_interrupted(
        GPClassifier(**nest(**SMALL, **options, callbacks=[Interrupt(3)]))
    )
    assert clf.n_epochs_ == 3 and clf.calibration_ == (
        "none" if clf.method == "vi" else "leave-one-out"
    )
    check_valid(clf, tmp_path)


def test_a_regressor_keeps_the_model_of_the_epochs_so_far():
    gp = fit_interrupted(GPRegressor("vi", **SMALL, callbacks=[Interrupt(3)]), X[:, 0])
    assert gp.n_epochs_ == 3 and gp.score(X, X[:, 0]) > 0


@pytest.mark.parametrize("stage", ["folds", "trees"])
def test_a_trained_model_whose_folds_or_trees_are_interrupted_is_calibrated_by_leave_one_out(
    stage, tmp_path, monkeypatch
):
    if stage == "folds":
        monkeypatch.setattr(folds, "fit_fold", interrupt)
    else:
        monkeypatch.setattr(members.Frequencies, "fit", interrupt)
    clf = fit_interrupted(GPClassifier(**SMALL, max_epochs=5, ensemble="trees"))
    assert clf.calibration_ == "leave-one-out" and clf.ensemble_weights_.shape == (1,)
    check_valid(clf, tmp_path)


def test_lbfgs_keeps_the_best_point_of_its_first_line_search(monkeypatch, tmp_path):
    """It was the start, because an iteration had not ended."""
    evaluate, calls = lbfgs.evaluate, []

    def interrupted(run, theta):
        calls.append(1)
        if len(calls) == 2:  # after the first point, which is evaluated elsewhere
            raise KeyboardInterrupt
        return evaluate(run, theta)

    monkeypatch.setattr(lbfgs, "evaluate", interrupted)
    clf = fit_interrupted(GPClassifier(**nest(**SMALL, optimizer="lbfgs")))
    check_valid(clf, tmp_path)


def test_nothing_learnt_leaves_the_older_model_as_it_was(monkeypatch):
    clf = GPClassifier(**SMALL, max_epochs=3, batch_size=20, effort="fast").fit(X, Y)
    before = clf.predict_proba(X)
    with pytest.raises(KeyboardInterrupt), monkeypatch.context() as patch:
        patch.setattr(Guard, "advance", interrupt)
        clf.fit(X, 10 + Y)
    np.testing.assert_array_equal(clf.predict_proba(X), before)


@pytest.mark.parametrize("epochs", [0, 2])
def test_after_an_interrupt_no_long_pass_over_the_rows_is_made(epochs, monkeypatch):
    """A pass for the evidence and one for leave-one-out took minutes on a long table
    under load.
    """

    class Slow(Callback):
        def step(self, run):
            if len(run.history) == epochs:
                run.pace = 1.0  # seconds per row
                monkeypatch.setattr(Engine, "step", pytest.fail)
                raise KeyboardInterrupt

    rows, labels = toy(LEAST_ROWS + 200, 3)
    clf = fit_interrupted(
        GPClassifier(**nest(**SMALL, batch_size=400, callbacks=[Slow()])), labels, rows
    )
    assert (
        clf.calibration_ == f"leave-one-out of {LEAST_ROWS} rows"
        and clf.n_epochs_ == epochs
    )
    last = clf.history_[-1]["log_evidence"] if epochs else np.nan
    np.testing.assert_equal(clf.log_marginal_likelihood_, last)
