"""Habits of other libraries: `fit(eval_set=...)`, `fit(time_limit=...)`, grids over the
default kernel, repr in notebooks.
"""

import time
import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_classification
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import log_loss

from cavity import GPClassifier, GPRegressor, Training
from cavity.errors import BadInput, BadOption
from cavity.fitting.options import nest
from support import slow


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(
        220, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=0
    )
    return X[:110], y[:110], X[110:], y[110:]


def model(**options):
    return GPClassifier(
        **nest(
            **{"n_inducing": 8, "max_epochs": 15, "random_state": 0, "device": "cpu"}
            | options
        )
    )


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("effort", ["fast", slow("balanced")])
def test_the_temperature_comes_from_eval_set(table, effort):
    X, y, X_val, y_val = table
    y_val = np.where(
        np.arange(110) % 3, y_val, (y_val + 1) % 3
    )  # the model is too sure of these
    alone = model(effort=effort, ensemble=None).fit(X, y, eval_set=(X_val, y_val))
    assert alone.temperature_ > 1
    assert alone.loo_log_proba_.shape == (110, 3)  # every row of X was trained on
    fitted = model(effort=effort).fit(X, y, eval_set=(X_val, y_val))
    assert (
        fitted.ensemble_weights_[0] < 1
        and fitted.calibration_ == "110 rows of eval_set"
    )
    assert fitted.estimate_.rows == 110
    # each row is scored with weights that the others chose
    loss = log_loss(y_val, fitted.predict_proba(X_val))
    assert loss < fitted.estimate_.log_loss < loss + fitted.estimate_.standard_error
    assert not fitted.held_out_.of_table
    same = model(effort=effort).fit(X, y, eval_set=[(X_val, y_val)])
    np.testing.assert_array_equal(
        same.predict_proba(X_val), fitted.predict_proba(X_val)
    )


def test_eval_set_may_be_a_frame_with_categories(table):
    X, y, X_val, y_val = table
    frames = [
        pd.DataFrame({"a": F[:, 0], "b": np.where(F[:, 1] > 0, "high", "low")})
        for F in (X, X_val)
    ]
    fitted = model().fit(frames[0], y, eval_set=(frames[1], y_val))
    expected = -np.log(
        fitted.predict_proba(frames[1])[np.arange(len(y_val)), y_val]
    ).mean()
    assert fitted.estimate_.log_loss == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("method", ["exact", "fitc", "vi", "nystrom", "bcm"])
def test_a_regressor_keeps_its_best_state_on_eval_set(method):
    X, y = load_diabetes(return_X_y=True)
    made = GPRegressor(method, n_inducing=15, max_epochs=8, random_state=0)
    fitted = made.fit(X[:150], y[:150], eval_set=(X[150:300], y[150:300]))
    losses = [row["validation_nll"] for row in fitted.history_]
    mean, std = fitted.predict(X[150:300], return_std=True)
    found = np.mean(
        0.5 * ((y[150:300] - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2 * np.pi)
    )
    assert found == pytest.approx(min(losses), abs=1e-6)


@pytest.mark.parametrize("kind", [GPClassifier, GPRegressor])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (5, "eval_set is a int: give one pair"),
        ((1, 2, 3), "eval_set has 3 parts"),
        ([(1, 2), (3, 4)], "eval_set has 2 pairs"),
        ((np.ones((2, 9)), [0, 1]), "eval_set: X has 9 features"),
        ((np.ones((2, 5)), [0]), "eval_set: .*2 rows"),
        ((np.full((2, 5), np.nan), [0, 1]), "eval_set: Input X contains NaN"),
    ],
)
def test_a_wrong_eval_set_is_an_error_that_names_it(table, kind, wrong, text):
    X, y, _, _ = table
    with pytest.raises((BadInput, BadOption), match=text):
        kind(n_inducing=5, max_epochs=1).fit(X, y, eval_set=wrong)


def test_two_validation_sets_are_refused(table):
    X, y, X_val, y_val = table
    with pytest.raises(BadOption, match="validation_fraction"):
        model(validation_fraction=0.2).fit(X, y, eval_set=(X_val, y_val))
    with pytest.raises(BadInput, match=r"eval_set.*7"):
        model().fit(X, y, eval_set=(X_val, y_val + 7))


@pytest.mark.parametrize("limit", [0, -1, "long", np.nan])
@pytest.mark.parametrize("kind", [GPClassifier, GPRegressor])
def test_a_wrong_time_limit_is_refused_before_rows_are_read(kind, limit):
    with pytest.raises(BadOption, match="time_limit"):
        kind().fit(None, None, time_limit=limit)


@pytest.mark.usefixtures("few_trees")
def test_a_long_time_limit_changes_nothing(table):
    X, y, X_val, _ = table
    plain = model(max_epochs=4).fit(X, y)
    limited = model(max_epochs=4).fit(X, y, time_limit=600)
    np.testing.assert_array_equal(
        plain.predict_proba(X_val), limited.predict_proba(X_val)
    )
    assert not any(text.startswith("time_limit") for text in limited.fit_warnings_)


def test_a_short_time_limit_leaves_stages_out_and_says_so(table):
    X, y, X_val, _ = table
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = model(max_epochs=None).fit(X, y, time_limit=1e-3)
    texts = " ".join(fitted.fit_warnings_)
    assert (
        "time_limit=0.001 left no time for" in texts
        and "extra trees in the pool" in texts
    )
    assert fitted.calibration_.endswith("rows held out") and fitted.estimate_.rows < 40
    assert "raise max_epochs= or time_limit=" in texts
    assert {str(w.message) for w in caught} >= set(fitted.fit_warnings_)
    assert np.isfinite(fitted.predict_proba(X_val)).all()


def test_no_temperature_is_fitted_if_only_a_pool_was_asked_for_and_no_member_counts(
    table, monkeypatch
):
    alone = lambda parts, **_: np.eye(len(parts))[0]
    monkeypatch.setattr("cavity.fitting.verdict.fit_weights", alone)
    X, y, X_val, y_val = table
    for more in ({}, {"eval_set": (X_val, y_val)}):
        fitted = model(calibration=None, ensemble="trees").fit(
            X, y, time_limit=1e-3, **more
        )
        assert (fitted.temperature_, fitted.calibration_) == (1.0, "none")


def test_the_whole_fit_keeps_the_limit():
    """Training alone would take the limit several times over; so would the folds, and
    the trees.

    CPU time, which other work on the machine does not lengthen.
    """
    X, y = make_classification(1500, 12, n_informative=8, n_classes=4, random_state=0)
    limit = 1.0
    begun = time.process_time()
    fitted = GPClassifier(random_state=0, device="cpu").fit(X, y, time_limit=limit)
    assert time.process_time() - begun < 1.2 * limit + 2.0
    assert any("time_limit=" in text for text in fitted.fit_warnings_)


class Slow(ExtraTreesClassifier):
    """A classifier that takes a second to fit, and counts its fits."""

    sizes: ClassVar[list[int]] = []

    def fit(self, *rows, **more):
        self.sizes.append(len(rows[0]))
        time.sleep(1.0)
        return super().fit(*rows, **more)


def test_no_member_starts_to_learn_after_the_limit():
    """Folds take the limit; the member of the last fold stays in the pool."""
    X, y = make_classification(200, 6, n_informative=4, random_state=0)
    del Slow.sizes[:]
    fitted = GPClassifier(
        ensemble=[Slow(5, min_samples_leaf=3)],
        n_inducing=5,
        max_epochs=2,
        random_state=0,
    ).fit(X, y, time_limit=3)
    assert len(Slow.sizes) == len(np.unique(fitted.held_out_.fold))
    assert max(Slow.sizes) < len(X)  # not again to all rows
    assert fitted.ensemble_weights_[1] > 0
    assert any("learnt without 1 of" in text for text in fitted.fit_warnings_)
    assert fitted.score(X, y) > 0.7


def test_a_regressor_keeps_the_limit():
    X, y = load_diabetes(return_X_y=True)
    begun = time.process_time()
    fitted = GPRegressor(
        "exact", random_state=0, max_epochs=10_000, training=Training(tol=0)
    ).fit(X, y, time_limit=1.0)
    assert time.process_time() - begun < 1.2 + 2.0
    assert any(
        "raise max_epochs= or time_limit=" in text for text in fitted.fit_warnings_
    )


@pytest.mark.parametrize("estimator", [GPClassifier(), GPRegressor()])
def test_arguments_of_the_default_kernel_are_those_of_an_rbf(estimator):
    made = clone(estimator).set_params(kernel__lengthscale=2.0)
    assert type(made.kernel).__name__ == "RBF" and made.kernel.lengthscale == 2.0
    assert estimator.kernel is None
