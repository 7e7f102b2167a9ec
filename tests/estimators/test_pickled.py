"""What pickle and skops store of a fitted estimator, and that both bring it back."""

import pickle

import numpy as np
import pandas as pd
import pytest

from cavity import GPClassifier, GPRegressor

NUMBERS = np.random.default_rng(0).normal(size=(60, 2))
FRAME = pd.DataFrame(NUMBERS, columns=["a", "b"]).assign(
    kind=pd.Categorical(np.where(NUMBERS[:, 0] > 0, "u", "v"))
)
OPTIONS = {"n_inducing": 5, "max_epochs": 2, "random_state": 0}
PLAIN = (np.ndarray, str, int, float, bool, list, type(None))


@pytest.fixture(
    scope="module",
    params=[GPClassifier(**OPTIONS), GPRegressor(**OPTIONS)],
    ids=["classifier", "regressor"],
)
def fitted(request):
    target = NUMBERS.sum(1)
    if isinstance(request.param, GPClassifier):
        target = np.where(target > 0, "yes", "no")
    return request.param.fit(FRAME, target)


def restore_as_skops(model):
    """Take the way of skops: `__reduce__` if it calls the object's class."""
    state = dict(model.__getstate__())
    inner = state.pop("_result")
    assert all(isinstance(value, (*PLAIN, tuple)) for value in state.values())
    build, given = inner.__reduce__()
    assert build is type(inner)
    assert all(isinstance(value, bytes) for value in given)
    restored = type(model).__new__(type(model))
    restored.__setstate__(state | {"_result": build(*given)})
    return restored


def restore_by_pickle(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("restore", [restore_as_skops, restore_by_pickle])
def test_a_restored_estimator_predicts_the_same_and_has_the_same_attributes(
    fitted, restore
):
    again = restore(fitted)
    np.testing.assert_array_equal(again.predict(FRAME), fitted.predict(FRAME))
    assert set(vars(again)) == set(vars(fitted))
    assert again.fit_warnings_ == fitted.fit_warnings_
    assert str(again.estimate_) == str(fitted.estimate_)
