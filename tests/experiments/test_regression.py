"""The regression curves of the review, on few rows."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

from experiments import fits, regression, sets
from experiments.jobs import Context, Job
from experiments.targets import TARGETS
from support import without_warnings

REVIEW = [target for name, target in TARGETS.items() if name.startswith("review-")]


def curve(method: str, seconds: float) -> list[dict[str, float]]:
    job = Job(
        "regression", "diabetes", 0, method, "5", options={"max_seconds": seconds}
    )
    return fits.run_job(job, Context())


@pytest.mark.parametrize("method", regression.METHODS)
def test_a_curve_moves_on_and_ends_once(method) -> None:
    rows = curve(method, 0.1)
    assert [row["moment"] for row in rows] == list(range(len(rows)))
    assert [row["last"] for row in rows] == [0] * (len(rows) - 1) + [1]
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert all(np.isfinite(row["r2"]) and row["r2"] <= 1 for row in rows)


def test_both_optimizers_of_the_collapsed_bound_end_at_the_same_r2() -> None:
    """Epochs limit these fits, so a slow machine changes nothing."""
    X, y, X_test, y_test = sets.split("diabetes", 0)
    two = [2, 8]
    found = []
    for method in ("means-PN", "vi-means"):
        gp = regression.make_regressor(method, 5, max_epochs=60, random_state=0)
        with without_warnings():
            gp.fit(X[:, two], y)
        found.append((gp.elbo_ / len(y), r2_score(y_test, gp.predict(X_test[:, two]))))
    np.testing.assert_allclose(*found, atol=1e-3)


def test_the_last_r2_is_that_of_the_fitted_model() -> None:
    data = sets.split("diabetes", 0)
    end = regression.Evaluation(data.X_test, data.y_test, 0.2)
    with without_warnings():
        gp = regression.make_regressor("vi-means", 5, random_state=0, callbacks=[end])
        gp.fit(data.X, data.y)
    expected = r2_score(data.y_test, gp.predict(data.X_test))
    assert end.recorder.points[-1][1] == pytest.approx(expected, abs=1e-9)


def test_a_draw_has_the_covariance_of_its_kernel() -> None:
    X = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.5]])
    f = sets.draw_functions(X, 20_000, np.random.default_rng(0))
    gap = np.linalg.norm(X[:, None] - X[None], axis=-1)
    np.testing.assert_allclose(np.cov(f), np.exp(-0.5 * gap**2), atol=0.05)


def test_seconds_count_until_r2_stays_within_a_hundredth() -> None:
    values = [(1.0, 0.1), (2.0, 0.5), (3.0, 0.3), (4.0, 0.505), (5.0, 0.5)]
    rows = [{"seconds": s, "r2": r2} for s, r2 in values]
    assert regression.seconds_to_end(rows) == 4.0
    assert regression.seconds_to_end(rows[-1:]) == 5.0


def test_figures_share_the_fits_that_they_have_in_common() -> None:
    jobs = {target.name: set(target.jobs()) for target in REVIEW}
    assert len({target.file for target in REVIEW}) == 1
    assert jobs["review-svi"] & jobs["review-collapsed"]
    assert jobs["review-big"] & jobs["review-newton"]
