"""Training works within `torch.inference_mode` and `torch.no_grad`, which callers set
for predictions.
"""

import pickle
from functools import cache

import numpy as np
import pytest
import torch

from cavity import GPClassifier, GPRegressor
from support import slow, toy, without_warnings

X, Y = toy(40, 3)
QUICK = dict(n_inducing=4, max_epochs=3, random_state=0, device="cpu")
pytestmark = pytest.mark.filterwarnings("ignore")


@cache
def fit_outside(method):
    return GPClassifier(method, **QUICK).fit(X, Y)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize(
    "method", ["auto", "vi", slow("ep"), slow("laplace"), slow("gfitc")]
)
def test_a_classifier_is_fitted_in_any_mode(mode, method):
    """B10: a raw RuntimeError, "Inference tensors cannot be saved for backward"."""
    outside = fit_outside(method)
    with mode():
        inside = GPClassifier(method, **QUICK).fit(X, Y)
        np.testing.assert_array_equal(inside.predict_proba(X), outside.predict_proba(X))
    np.testing.assert_array_equal(inside.predict_proba(X), outside.predict_proba(X))


@pytest.mark.parametrize("method", ["vi", "cg"])
def test_a_regressor_is_fitted_in_inference_mode(method):
    with torch.inference_mode():
        gp = GPRegressor(method, **QUICK).fit(X, X[:, 0])
    np.testing.assert_array_equal(
        gp.predict(X), GPRegressor(method, **QUICK).fit(X, X[:, 0]).predict(X)
    )


def test_an_unpickled_model_goes_on_learning_in_inference_mode():
    clf = GPClassifier("sep", **QUICK).fit(X, Y)
    loaded = pickle.loads(pickle.dumps(clf))
    with torch.inference_mode():
        loaded.partial_fit(X, Y)
    loaded.partial_fit(X, Y)
    with without_warnings():
        clf.partial_fit(X, Y).partial_fit(X, Y)
    np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))
