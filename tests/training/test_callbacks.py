"""Callbacks see every epoch and may stop a fit; an interrupt loses nothing."""

import numpy as np
import pytest
import torch

import cavity
from cavity import BadInput, BadOption, GPClassifier, callbacks
from cavity.callbacks import Callback
from cavity.common.ranks import Local
from cavity.engine import processes
from cavity.engine.inference import Engine
from cavity.fitting.options import nest
from cavity.methods import VI
from support import ALONE, toy, without_warnings

X, Y = toy(120, 3, seed=5)
OPTIONS = dict(n_inducing=8, max_epochs=12, tol=0.0, random_state=0, **ALONE)


def fit(X=X, Y=Y, eval_set=None, **options):
    with without_warnings():
        return GPClassifier(**nest(**{**OPTIONS, **options})).fit(
            X, Y, eval_set=eval_set
        )


class Count(callbacks.Callback):
    def __init__(self, stop=10**9):
        self.calls = []
        self.stop = stop

    def start(self, run):
        self.calls.append("start")

    def step(self, run):
        self.calls.append("step")

    def epoch(self, run, row):
        self.calls.append("epoch")
        return self.calls.count("epoch") >= self.stop

    def end(self, run):
        self.calls.append("end")


@pytest.mark.parametrize(
    "options", [dict(batch_size=None), dict(batch_size=40), dict(method="gfitc")]
)
def test_a_callback_is_called_in_order_and_may_stop_the_run(options):
    counter = Count(stop=3)
    clf = fit(callbacks=[counter], **options)
    assert clf.n_epochs_ == 3
    assert counter.calls[0] == "start" and counter.calls[-1] == "end"
    assert counter.calls.count("epoch") == 3
    if options.get("batch_size") == 40:
        assert counter.calls.count("step") == 9


def test_a_callback_changes_nothing():
    plain = fit(batch_size=40)
    followed = fit(batch_size=40, callbacks=[Count()])
    np.testing.assert_array_equal(plain.predict_proba(X), followed.predict_proba(X))


@pytest.fixture
def passes(monkeypatch):
    """Whether each step of the engine was a sweep over all rows."""
    seen = []
    step = Engine.step

    def counted(self, state, batch, reduce, optimiser, full, **known):
        seen.append(full)
        return step(self, state, batch, reduce, optimiser, full, **known)

    monkeypatch.setattr(Engine, "step", counted)
    return seen


@pytest.mark.parametrize("method", ["ep", "sep", "rep"])
def test_when_the_time_is_up_one_more_pass_is_made_over_the_rows(method, passes):
    """One final sweep of the sites, which also gives log Z_q."""
    options = dict(method=method, batch_size=40, tol=1e-9)
    clf = fit(max_seconds=1e-9, **options)
    assert passes == [False, True]
    assert clf.n_epochs_ == 1 and clf.history_[0]["settling_sweeps"] == 1
    assert clf.history_[0]["settling_seconds"] > 0
    assert np.isfinite(clf.log_marginal_likelihood_)
    assert (
        fit(max_seconds=600, max_epochs=1, **options).history_[0]["settling_sweeps"]
        == 6
    )


@pytest.mark.parametrize(
    "options", [dict(schedule="outer"), dict(method="gfitc"), dict(learn=())]
)
def test_full_batches_too_end_when_the_time_is_up(options, passes):
    assert fit(batch_size=None, max_seconds=1e-9, **options).n_epochs_ == 1
    assert len(passes) <= 3


@pytest.mark.parametrize(
    "method", ["ep", "sep", "rep", VI("robust-max")], ids=["ep", "sep", "rep", "vi"]
)
@pytest.mark.parametrize("batch_size", [None, 40])
def test_a_validation_share_is_held_out_and_its_best_state_kept(method, batch_size):
    clf = fit(
        method=method, batch_size=batch_size, validation_fraction=0.25, patience=3
    )
    nll = [row["validation_nll"] for row in clf.history_]
    assert np.isfinite(nll).all()
    least = 1e-4  # what counts as better
    assert clf.n_epochs_ == 12 or min(nll[:-3]) - min(nll) <= 3 * least


def test_the_best_state_of_a_run_that_gets_worse_is_the_one_kept():
    """Judged by labels that contradict the training rows, the first epochs are the best
    ones.
    """
    wrong = (Y + 1) % 3
    plain = {"calibration": None}
    clf = fit(eval_set=(X, wrong), patience=2, max_epochs=30, **plain)
    nll = [row["validation_nll"] for row in clf.history_]
    best = int(np.argmin(nll))
    assert clf.n_epochs_ < 30 and best < len(nll) - 1
    again = fit(max_epochs=best + 1, **plain)
    log_p = again.predict_log_proba(X)
    kept = -clf.predict_log_proba(X)[np.arange(len(X)), wrong].mean()
    assert kept == pytest.approx(-log_p[np.arange(len(X)), wrong].mean(), abs=0.05)


@pytest.mark.parametrize(
    "options, words",
    [
        (
            dict(validation_fraction=0.0),
            "validation_fraction=0.0 must be a number above 0",
        ),
        (dict(validation_fraction=2), "validation_fraction=2 must be"),
        (dict(patience=0), "patience=0 must be an integer of at least 1"),
        (dict(callbacks=[print]), "not a cavity.callbacks.Callback"),
        (dict(checkpoint_every=-1), "checkpoint_every=-1 must be"),
    ],
)
def test_bad_arguments_raise_clear_errors(options, words):
    with pytest.raises(BadOption, match=words):
        fit(**options)


def test_few_rows_and_several_ranks_are_refused(monkeypatch):
    class Two(Local):
        world = 2

    monkeypatch.setattr(processes, "current", Two)
    with pytest.raises(BadOption, match="schedule='inner-approx'"):
        fit(schedule="inner-exact")
    with pytest.raises(BadInput, match="leaves none to validate on"):
        fit(X[:9], np.arange(9) % 3, validation_fraction=0.01)


def test_an_interrupt_goes_back_to_the_best_state_of_a_validated_run():
    class Worse(callbacks.Callback):
        """Spoils the state after the second epoch, then interrupts."""

        def epoch(self, run, row):
            if row["epoch"] == 2:
                self.best = row["validation_nll"]
                run.state = run.state._replace(
                    sums=type(run.state.sums)(*(0 * t for t in run.state.sums))
                )
            if row["epoch"] == 3:
                raise KeyboardInterrupt
            return False

    held = X[:30], Y[:30]
    options = {**OPTIONS, "batch_size": 40, "calibration": None}
    clf = GPClassifier(**nest(**options, callbacks=[Worse()]))
    with (
        pytest.warns(UserWarning, match="interrupted"),
        pytest.raises(KeyboardInterrupt),
    ):
        clf.fit(X, Y, eval_set=held)
    nll = -clf.predict_log_proba(held[0])[np.arange(30), held[1]].mean()
    np.testing.assert_allclose(
        nll, min(row["validation_nll"] for row in clf.history_), rtol=1e-9
    )
    assert clf.history_[-1]["validation_nll"] > nll


class Adds(Callback):
    def __init__(self, value, name="added"):
        self.value = value
        self.name = name

    def epoch(self, run, row):
        row[self.name] = self.value
        return False


@pytest.mark.filterwarnings("ignore")
def test_what_a_callback_adds_to_the_history_survives_a_model_file(tmp_path):
    X, y = toy(30, 3)
    values = ["warm", None, True, 3, np.float32(0.5), np.int64(2), torch.tensor(0.25)]
    added = [Adds(value, f"added {i}") for i, value in enumerate(values)]
    options = dict(
        n_inducing=4, max_epochs=2, checkpoint=tmp_path / "run", callbacks=added
    )
    GPClassifier(**nest(**options)).fit(X, y).save(tmp_path / "model")
    for row in cavity.load(tmp_path / "model").history_:
        for i, value in enumerate(values):
            assert row[f"added {i}"] == (
                value.item() if hasattr(value, "item") else value
            )


def test_what_no_file_can_hold_is_refused_by_name():
    X, y = toy(30, 3)
    with pytest.raises(BadInput, match="'added'"):
        GPClassifier(n_inducing=4, max_epochs=2, callbacks=[Adds([1])]).fit(X, y)
