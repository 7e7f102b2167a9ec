"""A warning stands at the user's line, once per call."""

import warnings

import numpy as np
import pandas as pd
import pytest

from cavity import GPClassifier


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=30), "c": ["p", "q", "r"] * 10})
    clf = GPClassifier("vi", n_inducing=4, max_epochs=1, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clf.fit(frame, np.arange(30) % 2), frame


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "score"])
def test_cells_that_are_newly_missing_are_one_warning_per_call(fitted, ask):
    clf, frame = fitted
    odd = frame.assign(x=np.nan, c="new")
    arguments = (odd, np.arange(30) % 2) if ask == "score" else (odd,)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(clf, ask)(*arguments)
    (warning,) = caught
    assert warning.filename == __file__
