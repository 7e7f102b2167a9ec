"""Peers are fitted as they should be, and every method of the comparison answers in the same terms."""

import numpy as np
import pytest

from cavity.experiments import compare, fits, peers, sets
from cavity.experiments.jobs import Job
from cavity.experiments.methods import METHODS
from cavity.experiments.provenance import Place


def test_validation_takes_a_share_of_every_class_and_leaves_one_row_at_least() -> None:
    data = sets.Split(
        np.arange(24.0)[:, None], np.repeat([0, 1, 2], [20, 2, 2]), np.zeros((1, 1)), np.zeros(1)
    )
    train, held = peers.validation(data, 0)
    assert sorted(np.concatenate([train.X, held.X])[:, 0]) == list(range(24))
    assert set(train.y) == set(held.y) == {0, 1, 2} and (held.y == 0).sum() == 2


def test_every_method_of_the_comparison_is_ours_or_a_peer() -> None:
    jobs = compare.jobs()
    assert {job.method for job in jobs} == {*compare.OURS, *peers.PEERS}
    assert set(compare.OURS) <= set(METHODS)
    assert not [j for j in jobs if j.method == "sklearn_gp" and j.dataset == "mnist"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digits 0, 1 and 2 alone, few of them."""
    whole = sets.split("digits", 0)
    train, test = (y < 3 for y in (whole.y, whole.y_test))
    some = sets.Split(
        whole.X[train][:90], whole.y[train][:90], whole.X_test[test][:30], whole.y_test[test][:30]
    )
    monkeypatch.setattr(sets, "split", lambda *arguments: some)
    monkeypatch.setattr(compare, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(peers, "MOST_STEPS", 10)


@pytest.mark.parametrize(
    "method", ["auto", "logistic", "hist_boosting", "lightgbm", "sklearn_gp", "gpytorch", "gpflow"]
)
def test_a_fit_is_measured(small: None, method: str) -> None:
    for package in {"lightgbm": ["lightgbm"], "gpytorch": ["gpytorch"], "gpflow": ["gpflow"]}.get(method, []):
        pytest.importorskip(package)
    options = {"max_epochs": 3} if method == "auto" else {}
    (row,) = fits.run(Job("compared", "digits", 0, method, "", options=options), Place())
    assert 0 < row["nll"] < 3 and 0 <= row["error"] < 1 and row["seconds"] > 0
    assert row["predict_rows_per_second"] > 0 and row["model_kb"] > 0
    assert bool(row["curve"]) == (method in ("auto", "gpytorch", "gpflow"))
