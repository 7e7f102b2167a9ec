"""The draws of the thesis: their laws, row by row."""

import numpy as np
import pytest

from experiments import draws, fits, review
from experiments.jobs import Context


@pytest.fixture(scope="module")
def rows():
    found = []
    for job in review.draws():
        found += fits.run_job(job, Context())
    return found


def k(a, b):
    return np.exp(-0.5 * (a - b.T) ** 2)


def test_the_posterior_is_the_conditional_by_explicit_matrices(rows) -> None:
    _, f, mean, sd = draws.read_draws(rows, "posterior")
    seen = draws.X[draws.SEEN]
    gain = np.linalg.solve(k(seen, seen), k(seen, draws.X)).T
    var = 1 - (gain * k(draws.X, seen)).sum(1)
    np.testing.assert_allclose(mean, gain @ draws.Y, atol=1e-6)
    np.testing.assert_allclose(sd**2, var, atol=1e-6)
    for draw in f.T:
        np.testing.assert_allclose(draw[draws.SEEN], draws.Y, atol=draws.ROUNDING)


def test_draws_lie_in_four_standard_deviations_and_differ(rows) -> None:
    for method in draws.PROCESSES:
        _, f, mean, sd = draws.read_draws(rows, method)
        assert f.shape == (len(draws.X), draws.N_DRAWS)
        assert (np.abs(f - mean[:, None]) <= 4 * sd[:, None] + draws.ROUNDING).all()
        assert np.ptp(f, axis=1).max() > 0.5
        assert np.abs(np.diff(f, n=2, axis=0)).max() < 0.1  # smooth: lengthscale 1


def test_only_the_last_row_of_a_process_has_its_origin(rows) -> None:
    ends = [row for row in rows if row["last"] == 1]
    assert [row["method"] for row in ends] == ["prior", "posterior"]
    assert sum("commit" in row for row in rows) == len(ends)
