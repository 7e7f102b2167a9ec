"""A named method ends where ten times as many steps gain nothing that counts.

That is 1e-3 nats per hundred rows. It warns only if its epochs ran out before that, and
a regressor does not warn without cause.
"""

import warnings
from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from cavity import GPClassifier, GPRegressor
from cavity.engine.training.convergence import PROMISED_TOL
from cavity.fitting.options import papers
from support import change_training, toy

METHODS = ("ep", "pep", "rep", "gfitc", "vi", "laplace")
IRIS = load_iris(return_X_y=True)
WINE = load_wine(return_X_y=True)
TABLES = {
    "two classes": toy(40, 2),
    "three classes": toy(60, 3),
    "four classes": toy(60, 4),
    "iris": (IRIS[0][::3], IRIS[1][::3]),
    "wine": (WINE[0][::3], WINE[1][::3]),
}
QUICK = {("ep", "two classes")}
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in product(METHODS, TABLES)
]


def fit(estimator, X, y, **more):
    """Return the fitted estimator, and whether it warned that it did not converge."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        estimator.fit(X, y, **more)
    warned = [w for w in found if issubclass(w.category, ConvergenceWarning)]
    return estimator, bool(warned)


@pytest.mark.parametrize(("method", "table"), CASES)
def test_ten_times_as_many_steps_gain_nothing_that_counts(monkeypatch, method, table):
    X, y = TABLES[table]
    make = {"n_inducing": 5, "random_state": 0, "device": "cpu"}
    usual, warned = fit(GPClassifier(method, **make), X, y)
    if warned:  # points drift along a valley for thousands of epochs, and it says so
        assert (method, table) not in QUICK
        assert usual.n_epochs_ == papers.LBFGS_EPOCHS
        return
    change_training(monkeypatch, tol=0.0, max_epochs=10 * usual.n_epochs_)
    longer, _ = fit(GPClassifier(method, **make), X, y)
    gain = longer.history_[-1]["objective"] - usual.history_[-1]["objective"]
    assert longer.n_epochs_ >= usual.n_epochs_
    assert gain < PROMISED_TOL * len(y)


def test_a_named_method_says_in_one_line_that_it_did_not_end(monkeypatch):
    change_training(monkeypatch, max_epochs=3)
    model = GPClassifier("ep", n_inducing=5, random_state=0, device="cpu")
    with pytest.warns(ConvergenceWarning, match="raise max_epochs=") as found:
        model.fit(*TABLES["two classes"])
    assert model.n_epochs_ == 3
    (text,) = (
        str(w.message) for w in found if issubclass(w.category, ConvergenceWarning)
    )
    assert "--" not in text
    assert "\n" not in text


def regression(case):
    """A sum of sines, or a plane, in one to three columns, with noise of four sizes."""
    rng = np.random.default_rng(case)
    n = (20, 30, 45, 60)[case % 4]
    columns = 1 + case % 3
    noise = (0.0, 0.01, 0.1, 0.5)[case // 4 % 4]
    X = rng.uniform(-3, 3, (n, columns))
    f = np.sin(X).sum(1)
    if case % 5 == 4:
        f = X @ np.arange(1, columns + 1)
    return X, f + noise * rng.normal(size=n)


# without noise rounding ends the line search: 0 and 3 warned
SAMPLE = (0, 3)
REGRESSIONS = [
    pytest.param(case, marks=() if case in SAMPLE else pytest.mark.slow)
    for case in range(40)
]


@pytest.mark.parametrize("case", REGRESSIONS)
def test_a_default_regressor_ends_without_a_warning(case):
    model, warned = fit(GPRegressor(random_state=0, device="cpu"), *regression(case))
    assert not warned
    assert np.isfinite(model.log_marginal_likelihood_)


def test_a_regressor_of_a_sine_ends_without_a_warning():
    """It said "stopped after 18 epochs", though the last of them differed by 1e-13."""
    X = np.linspace(0, 6, 30)[:, None]
    y = np.sin(X[:, 0])
    _, warned = fit(GPRegressor(random_state=0), X, y, eval_set=(X, y))
    assert not warned
