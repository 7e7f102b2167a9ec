"""Test scores during a run."""

import numpy as np
import pytest

from cavity import GPClassifier, Training
from experiments import curves
from experiments.sets import Split


@pytest.fixture
def data() -> Split:
    X = np.random.default_rng(0).standard_normal((120, 2))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    return Split(X[:90], y[:90], X[90:], y[90:])


def record(data: Split, batch: int | None, epochs: int) -> curves.ScoreCurve:
    curve = curves.ScoreCurve(data, {"batch_size": batch, "max_epochs": epochs}, 5)
    size = {
        "n_inducing": 5,
        "batch_size": batch,
        "max_epochs": epochs,
        "training": Training(tol=0),
    }
    GPClassifier("sep", random_state=0, device="cpu", callbacks=[curve], **size).fit(
        data.X, data.y
    )
    return curve


def test_moments_are_updates_and_passes_follow(data: Split) -> None:
    """90 rows in batches of 30: three updates per pass."""
    curve = record(data, 30, 8)
    moments = [row["moment"] for row in curve.rows]
    assert moments == sorted(set(np.geomspace(5, 24, 5).round().astype(int).tolist()))
    assert [row["passes"] for row in curve.rows] == pytest.approx(
        [m / 3 for m in moments]
    )
    assert [row["seconds"] for row in curve.rows] == sorted(
        row["seconds"] for row in curve.rows
    )
