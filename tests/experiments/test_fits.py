"""What a fit hands back: scores, curves and the toy's points."""

import numpy as np
import pytest

from cavity.experiments import fits, sets, toy_evidence
from cavity.experiments.jobs import Job
from cavity.experiments.provenance import Place
from cavity.experiments.scores import brier, scores

BATCH = {"batch_size": None, "max_epochs": 3, "tol": 0.0}


def test_scores_of_certain_and_right_predictions_are_zero() -> None:
    log_p = np.log(np.array([[1.0, 1e-300], [1e-300, 1.0]]))
    found = scores(log_p, np.array(["a", "b"]), np.array(["a", "b"]))
    assert found["nll"] == found["error"] == found["unseen"] == 0
    assert found["ece"] == pytest.approx(0, abs=1e-12) and found["brier"] == pytest.approx(0, abs=1e-12)


def test_a_class_that_training_never_saw_is_an_error_and_in_no_other_score() -> None:
    log_p = np.log(np.array([[0.9, 0.1], [0.5, 0.5]]))
    found = scores(log_p, np.array([0, 1]), np.array([0, 2]))
    assert found["nll"] == pytest.approx(-np.log(0.9)) and found["error"] == 0.5 and found["unseen"] == 1


def test_the_brier_score_is_the_squared_distance_from_the_truth() -> None:
    P, y = np.random.default_rng(0).dirichlet(np.ones(4), 50), np.arange(50) % 4
    assert brier(P, y) == pytest.approx(((P - np.eye(4)[y]) ** 2).sum(1).mean())


def test_splits_have_the_papers_sizes_and_no_common_rows() -> None:
    data = sets.split("digits", 3)
    assert (len(data.y), len(data.y_test)) == (1617, 180)
    again = sets.split("digits", 3)
    assert (data.X == again.X).all() and not (data.X == sets.split("digits", 4).X).all()


def test_a_share_of_labels_is_redrawn_and_the_test_rows_stay() -> None:
    data = sets.split("toy", 0)
    noisy = sets.flipped(data, 0.3, 0)
    assert (noisy.y_test == data.y_test).all() and 0.1 < (noisy.y != data.y).mean() < 0.3


def test_a_variational_curve_lies_below_its_log_probability() -> None:
    """Jensen: E log p ≤ log E p, at every moment; and the last row is the fit that `fit` returns."""
    job = Job("curve", "toy", 0, "vi", "6", options=BATCH | {"max_epochs": 6})
    rows = fits.run(job, Place())
    watched = rows[:-1]
    assert len(watched) >= 3 and [r["last"] for r in rows] == [0] * len(watched) + [1]
    assert all(r["expected_log_p"] <= -r["nll"] + 1e-9 for r in watched)
    seconds = [r["seconds"] for r in rows]
    assert seconds == sorted(seconds) and seconds[0] > 0


def test_the_history_of_a_schedule_is_a_row_an_update() -> None:
    rows = fits.run(Job("history", "toy", 0, "inner-exact", "4", options=BATCH), Place())
    assert [r["moment"] for r in rows] == [1, 2, 3] and rows[-1]["last"] == 1 and rows[-1]["nll"] > 0


def test_the_toy_keeps_its_points_and_regions_and_learns_nothing_else() -> None:
    options = BATCH | {"learn": ("inducing",), "noise": 0.01}
    (row,) = fits.run(Job("points", "toy", 0, "ep", "5", options=options), Place())
    Z = fits.unpack(row["points"], np.float32, 3, 5, 2)
    regions = fits.unpack(row["regions"], np.uint8, fits.GRID, fits.GRID)
    assert np.isfinite(Z).all() and set(np.unique(regions)) <= {0, 1, 2}
    near, far, out = toy_evidence.line(row | {"inducing": "5"})
    assert 0 <= near <= 1 and far >= 0 and 0 <= out <= 1


def test_coinciding_points_overlap_and_points_of_a_grid_do_not() -> None:
    grid = np.stack(np.meshgrid(np.arange(3.0), np.arange(3.0)), -1).reshape(1, 9, 2).astype(np.float32)
    assert toy_evidence.overlap(grid) == 0
    assert toy_evidence.overlap(np.concatenate([grid, grid], 1)) == 1


def test_the_distance_to_a_straight_boundary_is_that_of_the_coordinate() -> None:
    regions = (fits.plane()[:, 0] > 0).astype(np.uint8).reshape(fits.GRID, fits.GRID)
    Z = np.array([[[1.0, 0.3], [-1.0, -2.0], [1.0, 1.0]]], dtype=np.float32)
    assert toy_evidence.distance(Z, toy_evidence.boundary(regions)) == pytest.approx(1, abs=0.1)
