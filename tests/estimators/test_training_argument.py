"""`training=Training(...)`: grid searches, clones and files treat its arguments as they
treat those of the estimator.
"""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone

from cavity import BadOption, GPClassifier, GPRegressor, Training, load
from cavity.fitting.options import flatten, nest
from support import toy

X, y = toy(40, 2)
FEW = {"n_inducing": 4, "max_epochs": 2, "random_state": 0, "device": "cpu"}
OTHER = {
    "tol": 0.5,
    "learn": ["kernel"],
    "noise": np.array([0.2]),
    "dtype": "float32",
    "share": None,
}


@pytest.mark.parametrize("kind", [GPClassifier, GPRegressor])
def test_none_stands_for_the_defaults(kind) -> None:
    gp = kind()
    assert gp.training is None
    assert gp.set_params(training__tol=0.5, training__learn=()).training == Training(
        tol=0.5, learn=()
    )
    assert (
        gp.get_params()["training__tol"] == 0.5
        and gp.get_params()["training__patience"] == 10
    )
    assert flatten(kind().get_params(deep=False)) == flatten(
        kind(training=Training()).get_params(deep=False)
    )


def test_a_clone_has_its_own_training() -> None:
    gp = GPClassifier(training=Training(**OTHER))
    twin = clone(gp)
    assert twin.training == gp.training and twin.training is not gp.training
    twin.set_params(training__tol=0.1)
    assert gp.training.tol == 0.5 and twin.training != gp.training
    assert pickle.loads(pickle.dumps(gp)).training == gp.training


@pytest.mark.parametrize("kind", [GPClassifier, GPRegressor])
def test_flat_and_nested_arguments_are_the_same(kind) -> None:
    given = kind(training=Training(**OTHER)).get_params(deep=False)
    assert nest(**flatten(given)) == given
    assert nest(**flatten(kind().get_params(deep=False))) == kind().get_params(
        deep=False
    )
    assert nest(training=Training(tol=0.5), damping=0.3)["training"] == Training(
        tol=0.5, damping=0.3
    )
    assert not {*inspect.signature(kind).parameters} & {*Training.parameter_names()}


def test_files_keep_training_except_where_it_writes(tmp_path) -> None:
    training = Training(**OTHER, checkpoint=tmp_path / "run", resume=True)
    clf = GPClassifier("ep", training=training, **FEW).fit(X, y)
    clf.save(tmp_path / "model")
    assert load(tmp_path / "model").training == Training(**OTHER)
    clf.set_params(training=None).fit(X, y).save(tmp_path / "model")
    assert load(tmp_path / "model").training is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: GPClassifier(training={"tol": 1.0}).fit(X, y),
            r"training=.* is not a cavity.Training",
        ),
        (lambda: GPClassifier(training=Training(tol=-1)).fit(X, y), "tol=-1"),
        (lambda: GPClassifier().set_params(training__toll=1.0), "no parameter 'toll'"),
        (
            lambda: GPClassifier(training=3).set_params(training__tol=1.0),
            r"training=cavity.Training\(\)",
        ),
        (
            lambda: GPRegressor(training=Training(schedule="outer")).fit(X, X[:, 0]),
            "schedule=, which only",
        ),
    ],
)
def test_wrong_values_raise_bad_option(make, words) -> None:
    with pytest.raises(BadOption, match=words):
        make()
