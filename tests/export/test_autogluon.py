"""The model class keeps AutoGluon's rules. The base class is a stand-in; with the extra
`autogluon` installed, the last test asks AutoGluon itself.
"""

import importlib
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import torch

import engines
from cavity import GPClassifier, GPRegressor
from cavity.errors import MissingExtra
from support import toy

MODULE = "cavity.export.autogluon"
QUICK = {"n_inducing": 6, "max_epochs": 4, "random_state": 0}
X, Y = toy(90, 3, seed=0)
FRAME = pd.DataFrame(X, columns=["a", "b"])
LABELS = pd.Series(Y)


class AbstractModel:
    """What a subclass uses of AutoGluon's class: parameters that it may change, and rows
    that are prepared for training first.
    """

    def __init__(self, problem_type, hyperparameters):
        self.problem_type = problem_type
        self.params = hyperparameters
        self.first = None

    def preprocess(self, rows):
        self.first = rows.index[0] if self.first is None else self.first
        return rows[["b", "a"]]

    def _get_model_params(self):
        return self.params.copy()


@pytest.fixture
def kind(monkeypatch):
    """The model class, made with the stand-in."""
    names = {"AbstractModel": AbstractModel}
    engines.install({"autogluon.core.models": names}, monkeypatch.setitem)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield importlib.import_module(MODULE).CavityModel
    sys.modules.pop(MODULE, None)


@pytest.fixture
def limits(monkeypatch):
    """The time limits, and numbers of threads, of all fits."""
    found = []
    fit = GPClassifier.fit

    def watched(self, *args, **more):
        found.append((more["time_limit"], torch.get_num_threads()))
        return fit(self, *args, **more)

    monkeypatch.setattr(GPClassifier, "fit", watched)
    return found


def test_the_member_is_the_estimator_with_the_rows_and_limits_that_it_was_given(
    kind, limits
):
    member = kind("multiclass", QUICK)
    threads = torch.get_num_threads()
    other = LABELS[60:].copy()
    other.iloc[-1] = 7  # a class that no training row has
    given = {"X_val": FRAME[60:], "y_val": other, "time_limit": 100.0}
    member._fit(FRAME[:60], LABELS[:60], **given, num_cpus=2, num_gpus=0, verbosity=0)
    assert limits == [(95.0, 2)] and torch.get_num_threads() == threads
    assert member.first == 0 and member.params == QUICK
    assert member.model.ensemble_weights_.shape == (1,)

    rows = FRAME[["b", "a"]]
    expected = GPClassifier(**QUICK, ensemble=None, device="cpu")
    expected.fit(
        rows[:60], LABELS[:60], eval_set=(rows[60:89], LABELS[60:89]), time_limit=95
    )
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(member.model)).predict_proba(rows),
        expected.predict_proba(rows),
    )


def test_weights_count_and_validation_rows_are_optional(kind):
    weight = np.where(np.arange(90) < 60, 1.0, 0.0)
    member = kind("multiclass", QUICK)
    member._fit(FRAME, LABELS, sample_weight=weight)
    alone = kind("multiclass", QUICK)
    alone._fit(FRAME[:60], LABELS[:60])
    rows = FRAME[["b", "a"]]
    np.testing.assert_allclose(
        member.model.predict_proba(rows), alone.model.predict_proba(rows), rtol=1e-6
    )


def test_a_number_is_regressed_and_training_arguments_are_known(kind):
    member = kind("regression", QUICK | {"tol": 1e-2})
    y = FRAME["a"] + np.random.default_rng(0).normal(size=90)
    member._fit(FRAME[:60], y[:60], X_val=FRAME[60:], y_val=y[60:], num_cpus="auto")
    assert isinstance(member.model, GPRegressor) and member.model.training.tol == 1e-2
    assert "validation_nll" in member.model.history_[-1]


def test_an_argument_that_no_estimator_has_is_named(kind):
    with pytest.raises(TypeError, match="no_such_argument"):
        kind("binary", {"no_such_argument": 1})._fit(FRAME, LABELS > 0)


def test_without_autogluon_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "autogluon", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(MissingExtra, match=r"\[autogluon\]"):
        importlib.import_module(MODULE)


def test_autogluon_s_own_check_of_a_model_passes():
    testing = pytest.importorskip("autogluon.tabular.testing")
    member = importlib.import_module(MODULE).CavityModel
    testing.FitHelper.verify_model(member, model_hyperparameters=QUICK)
