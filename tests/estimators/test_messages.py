"""Errors of wrong input say what is wrong and what to try; right input does not warn."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import BaggingClassifier, GradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from cavity import Costs, GPClassifier
from cavity.errors import BadInput, BadOption

X = np.random.default_rng(0).normal(size=(60, 3))
LABELS = np.where(X[:, 0] > 0, "a", "b")
TABLE = pd.DataFrame(X, columns=["p", "q", "r"])
SOME = np.arange(60) % 10 == 0


def fit(rows=TABLE, y=LABELS, **options):
    given = {"n_inducing": 5, "max_epochs": 2, "effort": "fast", "random_state": 0}
    return GPClassifier(**(given | options)).fit(rows, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.where(SOME, np.nan, X[:, 0] > 0), "in 6 rows: drop them"),
        (pd.Series(X[:, 0] > 0, dtype="Int64").mask(SOME), "in 6 rows: drop them"),
        (X[:, 0], r"Unknown label type: continuous.*GPRegressor"),
        ("label", r"give the labels, such as table\['label'\]"),
    ],
    ids=["NaN", "NA", "numbers", "name"],
)
def test_wrong_labels_are_refused_without_a_warning(y, message):
    with warnings.catch_warnings(), pytest.raises(BadInput, match=message):
        warnings.simplefilter("error")
        fit(y=y)


def test_a_frame_without_columns_or_rows_is_named():
    with pytest.raises(BadInput, match="no columns"):
        fit(TABLE[[]])


def test_labels_of_a_frame_are_not_named_by_target():
    with pytest.raises(BadOption, match=r"fit\(X\.drop\(columns='label'\), X\['label"):
        GPClassifier().fit(TABLE.assign(y=LABELS), target="y")


def test_a_wrong_seed_is_refused_by_name():
    with pytest.raises(BadOption, match="random_state='x' must be a whole number"):
        fit(random_state="x")


@pytest.mark.parametrize("errors", [{("a", "b"): 1}, [1, 2], 3.0])
def test_costs_of_another_form_are_refused_when_they_are_made(errors):
    with pytest.raises(BadOption, match="must map each true class"):
        Costs(errors)


@pytest.mark.parametrize(
    "other",
    [
        LogisticRegression(),
        GradientBoostingClassifier(),
        BaggingClassifier(max_features=0.5),
    ],
)
def test_a_classifier_that_cannot_be_stored_is_refused_before_it_trains(other):
    with pytest.raises(BadOption, match="cannot be stored as arrays: use one of Hist"):
        fit(None, None, ensemble=[other])


def test_huge_numbers_are_no_reason_to_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = fit(X * 1e200)
    assert model.score(X * 1e200, LABELS) > 0.7
