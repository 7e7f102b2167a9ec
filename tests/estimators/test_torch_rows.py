"""Rows, labels and weights may be torch tensors, of any device and number type; results are NumPy arrays."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from cavity import GPClassifier, GPRegressor

X, y = load_iris(return_X_y=True)
WEIGHT = np.linspace(0.5, 1.5, 150)
KINDS = {
    "float64": lambda a: torch.tensor(a),
    "with a gradient": lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f"),
    "bfloat16": lambda a: torch.tensor(a).bfloat16() if a.dtype.kind == "f" else torch.tensor(a),
    "cuda": lambda a: torch.tensor(a).cuda(),
}


def fit(kind, convert):
    X_, target, weight = (convert(a) for a in (X, y if kind is GPClassifier else X[:, 0] + X[:, 3], WEIGHT))
    options = {"effort": "fast"} if kind is GPClassifier else {}
    gp = kind(n_inducing=10, max_epochs=3, random_state=0, **options)
    held = X_[::3], target[::3]
    return gp.fit(X_, target, weight, eval_set=held), X_, target, weight


@pytest.mark.parametrize("kind", [GPClassifier, GPRegressor])
@pytest.mark.parametrize("name", KINDS)
def test_tensors_give_what_their_numbers_give(kind, name):
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")

    def as_numbers(a):
        return KINDS[name](a).detach().cpu().double().numpy() if a.dtype.kind == "f" else a

    (gp, *rows), (plain, *numbers) = fit(kind, KINDS[name]), fit(kind, as_numbers)
    ask = "predict_proba" if kind is GPClassifier else "predict"
    found = getattr(gp, ask)(rows[0])
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, getattr(plain, ask)(numbers[0]))
    np.testing.assert_array_equal(gp.predict_novelty(rows[0]), plain.predict_novelty(numbers[0]))
    if kind is GPClassifier:  # a regressor's score is scikit-learn's, which takes plain tensors only
        assert gp.score(*rows) == plain.score(*numbers)
    few, less = (tuple(a[:20] for a in given) for given in (rows, numbers))
    np.testing.assert_array_equal(gp.explain(*few).importance, plain.explain(*less).importance)
