"""The wrappers for AutoGluon and TabArena keep their rules. Both packages are stand-ins here; tests/cluster has the real ones."""

import importlib
import sys
import types

import numpy as np
import pandas as pd
import pytest

from cavity import GPClassifier, GPRegressor
from cavity.fitting import folds
from support import toy

QUICK = {"n_inducing": 6, "max_epochs": 4, "random_state": 0}
X, Y = toy(90, 3, seed=0)
FRAME, LABELS = pd.DataFrame(X, columns=["a", "b"]), pd.Series(np.array(["x", "y", "z"])[Y])


class AbstractModel:
    """What the wrapper uses of AutoGluon's base class."""

    def __init__(self, problem_type, hyperparameters):
        self.problem_type, self.params = problem_type, hyperparameters

    def preprocess(self, rows):
        return rows

    def _get_model_params(self):
        return dict(self.params)


class ExternalSystemModel:
    """What the wrapper uses of TabArena's base class."""


class SystemConfigGenerator:
    def __init__(self, **given):
        self.__dict__.update(given)


@pytest.fixture
def wrappers(monkeypatch):
    """The two modules, imported with the stand-ins."""
    fakes = {
        "autogluon.core.models": {"AbstractModel": AbstractModel},
        "tabarena.benchmark.exec_models": {"ExternalSystemModel": ExternalSystemModel},
        "tabarena.utils.config_utils": {"SystemConfigGenerator": SystemConfigGenerator},
    }
    for name, content in fakes.items():
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            module = types.ModuleType(".".join(parts[:i]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        sys.modules[name].__dict__.update(content)
    names = ("cavity.export.autogluon", "cavity.export.tabarena")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield [importlib.import_module(name) for name in names]
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def limits(monkeypatch):
    """The time limits of all fits, which are short."""
    found, fit = [], GPClassifier.fit

    def watched(self, *args, **more):
        found.append(more.get("time_limit"))
        return fit(self.set_params(max_epochs=2, n_inducing=6), *args, **more)

    monkeypatch.setattr(GPClassifier, "fit", watched)
    return found


@pytest.mark.filterwarnings("ignore")
def test_the_model_uses_the_given_validation_rows_and_makes_no_folds(wrappers, limits, monkeypatch):
    """It made folds of its own, took 80 % of the time for training and pooled with trees."""
    monkeypatch.setattr(folds, "fit_fold", pytest.fail)
    member = wrappers[0].CavityModel("multiclass", QUICK)
    other = pd.concat([LABELS[60:89], pd.Series(["unseen"])])
    member._fit(FRAME[:60], LABELS[:60], X_val=FRAME[60:], y_val=other, time_limit=100.0)
    assert member.model.calibration_ == "29 rows of eval_set" and limits == [95.0]
    assert member.model.ensemble_weights_.shape == (1,)
    assert "validation_nll" in member.model.history_[-1]
    expected = GPClassifier(**QUICK, ensemble=None, device="cpu")
    expected.fit(FRAME[:60], LABELS[:60], eval_set=(FRAME[60:89], LABELS[60:89]))
    np.testing.assert_allclose(member.model.predict_proba(FRAME), expected.predict_proba(FRAME), atol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_a_number_is_regressed_with_a_method_for_the_number_of_rows(wrappers):
    member = wrappers[0].CavityModel("regression", QUICK | {"kernel": "Matern52 + Linear"})
    member._fit(FRAME[:60], FRAME["a"][:60], X_val=FRAME[60:], y_val=FRAME["a"][60:])
    assert isinstance(member.model, GPRegressor) and member.model.method == "exact"
    assert "validation_nll" in member.model.history_[-1]


@pytest.mark.parametrize("problem_type", ["multiclass", "regression"])
def test_the_warm_up_needs_no_rows_and_knows_what_tabarena_tells_it(wrappers, problem_type):
    more = {"num_cpus": 1, "hyperparameters": {"kernel": "RBF"}}
    assert wrappers[0].CavityModel.warmup(problem_type=problem_type, num_gpus=0, **more) is None


@pytest.mark.usefixtures("few_trees")
@pytest.mark.filterwarnings("ignore")
def test_the_default_is_a_system_with_a_pool_of_its_own(wrappers, limits):
    made = wrappers[1].CavitySystem()
    system = made._fit_system(
        FRAME[:60], LABELS[:60], problem_type="multiclass", target_name="y", eval_metric=None,
        validation_metadata=None, num_cpus=1, num_gpus=0, memory_limit=None, time_limit=20, random_state=3,
    )  # fmt: skip
    assert system is made and limits == [19.0]
    assert made.estimator.effort == "balanced" and made.estimator.random_state == 3
    assert made.estimator.plan_.calibration.pools
    found = made._predict_proba(FRAME[60:])
    assert list(found.columns) == ["x", "y", "z"] and found.index.equals(FRAME[60:].index)
    assert wrappers[1].CavitySystem.config_generator().name == "Cavity"
