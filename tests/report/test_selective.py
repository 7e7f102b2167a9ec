"""Rejection curves and conformal sets: what they promise."""

import numpy as np
import pytest

from cavity import BadInput, BadOption, report

RNG = np.random.default_rng(0)


def predictions(n: int, C: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities: labels are drawn from them."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(C, 0.5), n)
    return P, (rng.random((n, 1)) > P.cumsum(1)).sum(1).clip(0, C - 1)


def test_nothing_rejected_is_the_error_and_the_shares_are_exact() -> None:
    P = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
    curve = report.rejection(P, [0, 1, 1, 0])
    np.testing.assert_allclose(curve.rejected, [0, 0.25, 0.5, 0.75])
    np.testing.assert_allclose(curve.error, [0.5, 1 / 3, 0.5, 0.0])
    np.testing.assert_allclose(curve.threshold, [0.6, 0.7, 0.8, 0.9])
    assert curve.area == pytest.approx((0.5 + 1 / 3 + 0.5) / 4)


def test_rows_of_equal_certainty_go_together() -> None:
    P = np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6]])
    for y in ([0, 1, 1], [1, 0, 1]):
        curve = report.rejection(P, y)
        np.testing.assert_allclose(curve.rejected, [0, 1 / 3])
        np.testing.assert_allclose(curve.error, [1 / 3, 0.5])


def test_calibrated_certainty_beats_chance() -> None:
    P, y = predictions(3000, 4, 1)
    curve, chance = report.rejection(P, y), report.rejection(P, y, RNG.random(3000))
    assert curve.error[0] == chance.error[0] == (P.argmax(1) != y).mean()
    assert curve.area < 0.6 * chance.area


@pytest.mark.parametrize("certainty", [[1.0], [np.nan, 1.0], [[1.0], [2.0]]])
def test_certainty_is_one_number_a_row(certainty) -> None:
    with pytest.raises(BadInput, match="certainty"):
        report.rejection([[0.5, 0.5], [0.1, 0.9]], [0, 1], certainty)


@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_conformal_sets_cover_each_class_as_promised(coverage) -> None:
    # the law is for the average over calibration sets: coverage ≤ P(y in set) ≤
    # coverage + 1/(n + 1)
    C, repeats, found = 3, 300, []
    for seed in range(repeats):
        P, y = predictions(240, C, seed)
        sets = report.conformal(P[:120], y[:120], coverage).sets(P[120:])
        right, new = sets[np.arange(120), y[120:]], y[120:]
        found.append([right[new == c].mean() for c in range(C)])
    mean, error = np.mean(found, 0), np.std(found, 0) / np.sqrt(repeats)
    assert (mean > coverage - 3 * error).all()
    assert (mean < coverage + 1 / 25 + 3 * error).all()


def test_a_class_with_too_few_rows_is_in_every_set() -> None:
    P, y = predictions(100, 3, 0)
    y[y == 2] = 0
    sets = report.conformal(P, y, 0.9).sets(P)
    assert sets[:, 2].all() and not sets[:, :2].all()


@pytest.mark.parametrize("coverage", [0, 1, 1.5])
def test_coverage_is_a_share(coverage) -> None:
    with pytest.raises(BadOption, match="coverage"):
        report.conformal([[0.5, 0.5]], [0], coverage)


def test_sets_are_for_the_same_classes() -> None:
    P, y = predictions(50, 3, 0)
    with pytest.raises(BadInput, match="3 classes"):
        report.conformal(P, y).sets(P[:, :2])
