"""Peers are fitted as their documentation says, and every method of the comparison writes the same columns."""

import numpy as np
import pytest

from experiments import early_stopping, fits, sets, targets, wide
from experiments.jobs import Context, Job
from experiments.methods import METHODS, PEERS
from experiments.peers import FITS


def test_validation_holds_out_a_fraction_of_every_class_and_leaves_at_least_one_row() -> None:
    data = sets.Split(
        np.arange(24.0)[:, None], np.repeat([0, 1, 2], [20, 2, 2]), np.zeros((1, 1)), np.zeros(1)
    )
    train, held = early_stopping.hold_out(data, 0)
    assert sorted(np.concatenate([train.X, held.X])[:, 0]) == list(range(24))
    assert set(train.y) == set(held.y) == {0, 1, 2} and (held.y == 0).sum() == 2


def test_every_method_of_the_comparison_is_ours_or_a_peer() -> None:
    assert set(FITS) == set(PEERS)
    assert {job.method for job in targets.wide()} == {*targets.WIDE_OURS, *PEERS} <= {*METHODS, *PEERS}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few digits 0, 1 and 2."""
    whole = sets.split("digits", 0)
    train, test = (y < 3 for y in (whole.y, whole.y_test))
    some = sets.Split(
        whole.X[train][:90], whole.y[train][:90], whole.X_test[test][:30], whole.y_test[test][:30]
    )
    monkeypatch.setattr(sets, "split", lambda *arguments: some)
    monkeypatch.setattr(early_stopping, "MOST_STEPS", 10)


@pytest.mark.parametrize(
    "method",
    ["auto", "logistic", "hist_boosting", "lightgbm", "gpflow"],
)
def test_a_fit_is_measured(small: None, method: str) -> None:
    for package in {"lightgbm": ["lightgbm"], "gpflow": ["gpflow"]}.get(method, []):
        pytest.importorskip(package)
    options = {"max_epochs": 3} if method == "auto" else {}
    (row,) = fits.run_job(Job("compared", "digits", 0, method, "", options=options), Context())
    assert 0 < row["nll"] < 3 and 0 <= row["error"] < 1 and row["seconds"] > 0


class Walk:
    """A model whose validation NLL follows a given list; its only weight is the number of steps."""

    M = 1

    def __init__(self, nll: list[float]) -> None:
        self.nll, self.steps = nll, 0

    def step(self) -> None:
        self.steps += 1

    def log_proba(self, X: np.ndarray) -> np.ndarray:
        return np.full((len(X), 2), -self.nll[self.steps - 1])

    def weights(self) -> list[int]:
        return [self.steps]

    def load(self, weights: list[int]) -> None:
        (self.steps,) = weights


def test_early_stopping_returns_the_best_state_and_waits_for_its_patience() -> None:
    held = sets.Split(np.zeros((4, 1)), np.array([0, 0, 1, 1]), np.zeros((0, 1)), np.zeros(0))
    model = Walk([3.0, 2.0, 1.0] + [1.5] * 100)
    best = early_stopping.train(model, 0.1, held, np.array([0, 1]), 1)
    assert (best.steps, model.steps, best.validation_nll) == (3, 3, 1.0)
    assert len(best.curve) == 3 + early_stopping.PATIENCE
    other = early_stopping.train(Walk([0.5] * 1000), 0.01, held, np.array([0, 1]), 10)
    fitted = early_stopping.choose_best([best, other], np.array([0, 1]))
    assert fitted.model is other.model and fitted.note.startswith("rate 0.01 ")


def test_ranks_count_lower_losses_and_share_ties() -> None:
    methods = ["balanced", "catboost", "logistic"]
    values = {"balanced": 0.1, "catboost": 0.2, "logistic": 0.2}
    zeros = dict.fromkeys(("error", "ece", "seconds"), 0.0)
    rows = [
        {"dataset": d, "split": s, "method": m, "nll": values[m] + s} | zeros
        for d in targets.WIDE_SETS
        for s in range(targets.WIDE_SPLITS)
        for m in methods
    ]
    assert wide.mean_ranks(wide.means(rows, "nll"), methods) == {
        "balanced": 1.0,
        "catboost": 2.5,
        "logistic": 2.5,
    }
    assert wide.complete_methods(rows[:-1]) == ["balanced", "catboost"]


def test_folds_of_a_shuffle_are_disjoint_and_cover_the_rows() -> None:
    X, y = np.arange(40.0)[:, None], np.repeat([0, 1], 20)
    folds = [sets._fold(X, y, number) for number in range(10, 20)]
    assert sorted(np.concatenate([f.X_test[:, 0] for f in folds])) == list(range(40))
    assert all((f.y_test == 0).sum() == 2 and len(f.y) == 36 for f in folds)
    assert (sets._fold(X, y, 0).X_test != folds[0].X_test).any()


def test_training_stops_after_the_steps_that_are_allowed() -> None:
    held = sets.Split(np.zeros((4, 1)), np.array([0, 0, 1, 1]), np.zeros((0, 1)), np.zeros(0))
    falling = Walk(list(np.linspace(3, 1, 100)))
    assert early_stopping.train(falling, 0.1, held, np.array([0, 1]), 1, most_steps=7).steps == 7
