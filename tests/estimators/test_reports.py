"""Warm starts, history, warnings, the progress bar, the log, the time of the import."""

import logging
import re
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from cavity import GPClassifier
from cavity.fitting.options import nest
from support import slow


def model(method="ep", **options):
    return GPClassifier(
        method,
        **nest(**{"n_inducing": 8, "max_epochs": 5, "random_state": 0} | options),
    )


# ---------------------------------------------------------------- warm start
def test_a_warm_start_on_another_table_is_a_fit(make_table, method):
    """What does not fit any more (rows, classes, columns) is left behind."""
    fitted = model(method, warm_start=True).fit(*make_table(3)[:2])
    for shape in ({"rows": 80}, {"classes": 4}, {"columns": 2}, {"classes": 2}):
        X, y, new = make_table(**{"classes": 3} | shape)
        assert fitted.fit(X, y).predict_proba(new).shape == (
            len(new),
            len(np.unique(y)),
        )
        assert fitted.score(X, y) > 0.4


# ---------------------------------------------------------------- reports
def test_history_has_a_row_an_epoch(table, method):
    X, y, _ = table
    for options in ({}, {"batch_size": 20}, {"learn": ()}):
        fitted = model(method, tol=0, **options).fit(X, y)
        assert len(fitted.history_) == fitted.n_epochs_ == fitted.max_epochs
        assert [row["epoch"] for row in fitted.history_] == list(
            range(1, fitted.n_epochs_ + 1)
        )
        seconds = [row["seconds"] for row in fitted.history_]
        assert seconds == sorted(seconds) and seconds[0] > 0
        for row in fitted.history_:
            assert np.isfinite(row["objective"]) and row["repairs"] == 0
            assert (row["learning_rate"] > 0) == (fitted.training.learn != ())
            assert all(isinstance(value, int | float) for value in row.values())


@pytest.mark.parametrize(
    "limit", [{"max_epochs": 2}, {"max_seconds": 1e-3, "max_epochs": None}], ids=str
)
@pytest.mark.parametrize(
    "options", [{}, {"learn": (), "tol": 0}, {"batch_size": 20}], ids=str
)
def test_a_limit_before_tol_is_a_convergence_warning(table, method, limit, options):
    X, y, _ = table
    with pytest.warns(ConvergenceWarning, match="max_epochs="):
        fitted = model(method, **options | limit).fit(X, y)
    assert fitted.n_epochs_ <= 2 and np.isfinite(fitted.log_marginal_likelihood_)


@pytest.mark.parametrize("method", ["ep", slow("sep")])
def test_a_fit_that_settles_does_not_warn(make_table, method):
    X, y, _ = make_table(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fixed = model(method, learn=(), max_epochs=None).fit(X, y)
        learnt = model(method, max_epochs=None, tol=0.02).fit(X, y)
        model(method, max_epochs=None, batch_size=30, tol=0.02).fit(X, y)
    change = [row["objective"] for row in fixed.history_[-2:]]
    assert abs(change[1] - change[0]) < 1e-4 * len(y)
    best = [row["objective"] for row in learnt.history_]
    assert max(best[-10:]) - max(best[:-10]) < 0.02 * len(y)


def test_verbose_shows_a_bar_with_objective_rate_and_time_left(table, capsys):
    X, y, _ = table
    model().fit(X, y)
    quiet = capsys.readouterr()
    assert quiet.out == quiet.err == ""
    model(verbose=1).fit(X, y)
    shown = capsys.readouterr().err
    assert re.search(r"\d+/5 \[\d\d:\d\d<", shown), shown
    assert "objective=" in shown and "rate=0.01" in shown


def test_messages_go_to_the_logger(table, caplog):
    X, y, _ = table
    with caplog.at_level(logging.DEBUG):
        model().fit(X, y)
    ours = [
        record for record in caplog.records if record.name.split(".")[0] == "cavity"
    ]
    assert (
        len(ours) >= 5
        and "Plan" in ours[0].getMessage()
        and "objective" in ours[-1].getMessage()
    )
