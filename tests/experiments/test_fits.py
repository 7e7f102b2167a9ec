"""The rows of a fit: scores, curves, and the points of the toy problem."""

import numpy as np
import pytest

from experiments import fits, sets, toy
from experiments.jobs import Context, Job
from experiments.paper_tables import load
from experiments.scores import score_predictions

BATCH = {"batch_size": None, "max_epochs": 3, "tol": 0.0}


def test_scores_of_certain_and_right_predictions_are_zero() -> None:
    log_p = np.log(np.array([[1.0, 1e-300], [1e-300, 1.0]]))
    found = score_predictions(log_p, np.array(["a", "b"]), np.array(["a", "b"]))
    assert found["nll"] == found["error"] == found["unseen"] == 0
    assert found["ece"] == pytest.approx(0, abs=1e-12) and found[
        "brier"
    ] == pytest.approx(0, abs=1e-12)


def test_a_class_that_training_never_saw_is_an_error_and_in_no_other_score() -> None:
    log_p = np.log(np.array([[0.9, 0.1], [0.5, 0.5]]))
    found = score_predictions(log_p, np.array([0, 1]), np.array([0, 2]))
    assert (
        found["nll"] == pytest.approx(-np.log(0.9))
        and found["error"] == 0.5
        and found["unseen"] == 1
    )


def test_the_brier_score_is_the_squared_distance_from_the_truth() -> None:
    P, y = np.random.default_rng(0).dirichlet(np.ones(4), 50), np.arange(50) % 4
    assert score_predictions(np.log(P), np.arange(4), y)["brier"] == pytest.approx(
        ((P - np.eye(4)[y]) ** 2).sum(1).mean()
    )


def test_splits_have_the_papers_sizes_and_no_common_rows() -> None:
    data = sets.split("digits", 3)
    assert (len(data.y), len(data.y_test)) == (1617, 180)
    again = sets.split("digits", 3)
    assert (data.X == again.X).all() and not (data.X == sets.split("digits", 4).X).all()


def test_a_share_of_labels_is_redrawn_and_the_test_rows_stay() -> None:
    data = sets.split("toy", 0)
    noisy = sets.redraw_labels(data, 0.3, 0)
    assert (noisy.y_test == data.y_test).all() and 0.1 < (
        noisy.y != data.y
    ).mean() < 0.3


def test_a_variational_curve_lies_below_its_log_probability() -> None:
    """Jensen: E log p ≤ log E p, at every moment; and the last row is the model that
    `fit` returns.
    """
    job = Job("curve", "toy", 0, "vi", "6", options=BATCH | {"max_epochs": 6})
    rows = fits.run_job(job, Context())
    recorded = rows[:-1]
    assert len(recorded) >= 3 and [r["last"] for r in rows] == [0] * len(recorded) + [1]
    assert all(r["expected_log_p"] <= -r["nll"] + 1e-9 for r in recorded)
    seconds = [r["seconds"] for r in rows]
    assert seconds == sorted(seconds) and seconds[0] > 0


def test_the_toy_keeps_its_points_and_regions_and_learns_nothing_else() -> None:
    options = BATCH | {"learn": ("inducing",), "noise": 0.01}
    (row,) = fits.run_job(
        Job("points", "toy", 0, "ep", "5", options=options), Context()
    )
    Z = toy.unpack(row["points"], np.float32, 3, 5, 2)
    regions = toy.unpack(row["regions"], np.uint8, toy.GRID, toy.GRID)
    assert np.isfinite(Z).all() and set(np.unique(regions)) <= {0, 1, 2}
    near, far, out = toy.measure_points(row | {"inducing": "5"})
    assert 0 <= near <= 1 and far >= 0 and 0 <= out <= 1


def test_points_that_coincide_overlap_and_a_straight_boundary_is_as_far_as_the_coordinate() -> (
    None
):
    grid = (
        np.stack(np.meshgrid(np.arange(3.0), np.arange(3.0)), -1)
        .reshape(1, 9, 2)
        .astype(np.float32)
    )
    assert toy.overlap(grid) == 0
    assert toy.overlap(np.concatenate([grid, grid], 1)) == 1
    regions = (toy.make_grid()[:, 0] > 0).astype(np.uint8).reshape(toy.GRID, toy.GRID)
    Z = np.array([[[1.0, 0.3], [-1.0, -2.0], [1.0, 1.0]]], dtype=np.float32)
    assert toy.boundary_distance(Z, toy.find_boundary(regions)) == pytest.approx(
        1, abs=0.1
    )


def test_folds_of_a_shuffle_are_disjoint_and_cover_the_rows() -> None:
    X, y = np.arange(40.0)[:, None], np.repeat([0, 1], 20)
    folds = [sets._fold(X, y, number) for number in range(10, 20)]
    assert sorted(np.concatenate([f.X_test[:, 0] for f in folds])) == list(range(40))
    assert all((f.y_test == 0).sum() == 2 and len(f.y) == 36 for f in folds)
    assert (sets._fold(X, y, 0).X_test != folds[0].X_test).any()


def test_a_table_of_scikit_learn_needs_no_file(monkeypatch, tmp_path) -> None:
    """Its rows are those of UCI's file, in the same order."""
    monkeypatch.delenv("CAVITY_DATA", raising=False)
    X, y = load("wine")
    assert X.shape == (178, 13) and X[0, :3].tolist() == [14.23, 1.71, 2.43]
    assert [(y == label).sum() for label in "123"] == [59, 71, 48]
    assert load("iris").X.shape == (150, 4)
