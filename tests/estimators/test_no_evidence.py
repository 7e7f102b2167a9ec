"""A value above 0 is not the log probability of labels, and is not shown as one."""

import json
import math

import numpy as np
import pytest

import cavity
from cavity import GPClassifier, GPRegressor
from cavity.engine.training.loop import Run
from cavity.fitting.options import nest
from cavity.report.sections import describe_model
from cli.running import run
from support import toy

FIT = {"n_inducing": 6, "max_epochs": 3, "random_state": 0, "tol": 1.0}


@pytest.fixture
def above_zero(monkeypatch):
    """A run that stopped with sites far from their fixed point, as with 100 classes and
    max_seconds=15.
    """
    monkeypatch.setattr(Run, "evidence", lambda self: 2149.69)


def test_an_evidence_above_zero_is_not_presented(above_zero, tmp_path):
    X, y = toy(40, 3)
    with pytest.warns(RuntimeWarning, match="log_marginal_likelihood_"):
        clf = GPClassifier("ep", **nest(**FIT)).fit(X, y)
    assert math.isnan(clf.log_marginal_likelihood_)
    assert any("not an evidence" in text for text in clf.fit_warnings_)
    clf.save(tmp_path / "m")
    again = cavity.load(tmp_path / "m")
    assert math.isnan(again.log_marginal_likelihood_)
    np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
    assert "not available" in run("info", tmp_path / "m").output
    said = run("info", tmp_path / "m", "--json").output.strip().splitlines()[0]
    assert json.loads(said)["log_marginal_likelihood"] is None and "NaN" not in said
    assert "not available" in dict(describe_model(clf))["Log Z_q"]


def test_densities_may_be_above_zero(above_zero):
    X, _ = toy(40, 3)
    assert (
        GPRegressor("fitc", **nest(normalize_y=False, **FIT))
        .fit(X, X[:, 0])
        .log_marginal_likelihood_
        == 2149.69
    )
