"""Sanity of the robust oracles: P(f_y largest), its derivatives, and EP and SEP with it."""

from functools import partial

import numpy as np
import pytest
from scipy.special import log_ndtr

from . import kernels
from .brute_ep import binary_sep, binary_sparse_ep, predict_proba, sep, sparse_ep
from .gaussian import moments
from .probit import hazard
from .robust import (
    finite_differences,
    integrand_of,
    largest_probabilities,
    log_largest,
    rivals_of,
    robust_moments,
    step_derivatives,
)
from .robust_ep import (
    binary_robust_ep,
    binary_robust_predict_proba,
    binary_robust_sep,
    gather_points,
    own_cavities,
    robust_ep,
    robust_log_evidence,
    robust_predict_proba,
    robust_sep,
    tilt,
)
from .test_reference import assert_same_posterior, binary_problem, problem
from .tilted import bend


def wide(rng, C):
    """Means in ±50, variances in 1e-6…1e4."""
    return rng.uniform(-50, 50, C), 10 ** rng.uniform(-6, 4, C)


def everyday(rng, C):
    return rng.normal(size=C), 10 ** rng.uniform(-1.5, 0.5, C)


# --- P(f_y largest) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("adaptive, times", [(True, 5), (False, 80)])
def test_two_classes_are_the_closed_form_everywhere(adaptive, times):
    """S = Φ((m_y − m_k)/√(V_y + V_k)): log S from −3e9 to −1e-300, and its derivatives."""
    rng = np.random.default_rng(0)
    extremes = [
        ([-50, 50], [1e-6, 5e-7]),
        ([-40, 45], [1e-5, 10]),
        ([37, 0], [0.5, 0.5]),
        ([0, 9], [1e4, 1e-6]),
    ]
    for mean, var in [*extremes, *(wide(rng, 2) for _ in range(times))]:
        mean, var = np.array(mean, dtype=float), np.array(var)
        b = var.sum()
        alpha = (mean[0] - mean[1]) / np.sqrt(b)
        d1, d2 = hazard(alpha) / np.sqrt(b), -bend(alpha) / b
        got = robust_moments(0, mean, var, 0.0, adaptive)
        assert got.log_s == pytest.approx(log_ndtr(alpha), rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(got.d1, [d1, -d1], rtol=1e-11, atol=1e-12 / np.sqrt(var.max()))
        np.testing.assert_allclose(got.d2 * var, d2 * var, rtol=0, atol=1e-11)
        np.testing.assert_allclose(got.dv, 0.5 * (d2 + d1**2), rtol=1e-10, atol=1e-12 / var.min())


def test_equal_classes_are_equally_likely():
    for C in (2, 3, 50):
        assert np.exp(log_largest(1, np.full(C, 3.0), np.full(C, 0.2))) == pytest.approx(1 / C, rel=1e-12)


@pytest.mark.parametrize("C", [3, 10])
def test_probabilities_add_up_to_one(C):
    rng = np.random.default_rng(C)
    rows = [everyday(rng, C), wide(rng, C), (rng.normal(size=C), 10 ** rng.uniform(-6, 4, C))]
    p = largest_probabilities([m for m, _ in rows], [v for _, v in rows], adaptive=False)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-11)
    robust = largest_probabilities([rows[0][0]], [rows[0][1]], 0.2, adaptive=False)
    np.testing.assert_allclose(robust[0], 0.8 * p[0] + 0.2 / C, atol=1e-12)


@pytest.mark.parametrize("C", [3, 8])
def test_fixed_panels_are_as_good_as_adaptive_quadrature(C):
    rng = np.random.default_rng(C)
    for mean, var in (everyday(rng, C), wide(rng, C)):
        exact, fast = (robust_moments(0, mean, var, 0.01, adaptive) for adaptive in (True, False))
        assert fast.log_s == pytest.approx(exact.log_s, rel=1e-12)
        np.testing.assert_allclose(fast.d1, exact.d1, rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(fast.d2 * var, exact.d2 * var, atol=1e-11)
        np.testing.assert_allclose(fast.dv * var, exact.dv * var, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("C", [2, 3, 5])
def test_derivatives_are_finite_differences(C, epsilon):
    rng = np.random.default_rng(C)
    for y in (0, C - 1):
        mean, var = everyday(rng, C)
        got = robust_moments(y, mean, var, epsilon, adaptive=False)
        expected = finite_differences(y, mean, var, epsilon, adaptive=False)
        for a, b in zip((got.d1, got.d2, got.dv), expected[:3], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)
        if epsilon > 0:
            assert got.depsilon == pytest.approx(expected[3], rel=1e-8)


def test_derivatives_by_adaptive_quadrature_are_finite_differences():
    mean, var = np.array([0.2, 0.9, -0.4]), np.array([0.5, 0.05, 2.0])
    got, expected = robust_moments(0, mean, var, 0.02), finite_differences(0, mean, var, 0.02, adaptive=False)
    for a, b in zip((got.d1, got.d2, got.dv, got.depsilon), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


def test_derivatives_are_finite_differences_in_the_tail():
    mean, var = np.array([-20.0, 9.0, 14.0, -1.0]), np.array([0.5, 0.4, 0.7, 2.0])
    got = robust_moments(0, mean, var, 0.0, adaptive=False)
    assert got.log_s < -300
    d1, d2, dv, _ = finite_differences(0, mean, var, 0.0, adaptive=False)
    np.testing.assert_allclose(got.d1, d1, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(got.d2, d2, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got.dv, dv, rtol=1e-8, atol=1e-7)


def test_shifting_every_mean_changes_nothing():
    rng = np.random.default_rng(7)
    for C in (3, 8):
        got = robust_moments(1, *everyday(rng, C), 0.05, adaptive=False)
        assert got.d1.sum() == pytest.approx(0, abs=1e-12)


def test_both_forms_of_the_second_derivative_agree():
    """S''/S of METHOD 4 is the centred form plus s'²."""
    for mean, var in (everyday(np.random.default_rng(8), 4), ([-9, 3, 4, 0], [0.5, 0.4, 0.7, 2.0])):
        first, second, raw = step_derivatives(integrand_of(0, mean, var), 0, 4, adaptive=False)
        np.testing.assert_allclose(second + first**2, raw, rtol=1e-10, atol=1e-12)
        assert list(rivals_of(2, 4)) == [0, 1, 3]


# --- EP and SEP ------------------------------------------------------------------------------------------


def test_two_classes_without_epsilon_are_pairwise_ep():
    given = problem(C=2)
    fit = robust_ep(*given)
    assert_same_posterior(fit, sparse_ep(*given))
    assert_same_posterior(robust_sep(*given), sep(*given))
    X = given[0][:3]
    np.testing.assert_allclose(
        robust_predict_proba(fit, X, adaptive=False),
        predict_proba(sparse_ep(*given), X),
        atol=1e-9,
    )


def test_one_latent_without_epsilon_is_binary_ep():
    given = binary_problem()
    assert_same_posterior(binary_robust_ep(*given), binary_sparse_ep(*given))
    assert_same_posterior(binary_robust_sep(*given), binary_sep(*given))
    small = binary_robust_ep(*given, epsilon=1e-12)
    assert_same_posterior(small, binary_sparse_ep(*given), atol=1e-8)


def test_two_classes_with_a_silent_rival_are_one_latent():
    X, y, Z, k = binary_problem(N=6)
    silent = lambda A, B: 1e-12 * np.eye(len(A), len(B))
    one = binary_robust_ep(X, y, Z, k, 1.0, epsilon=0.1)
    two = robust_ep(X, (y > 0).astype(int), np.stack([Z, Z]), [silent, k], [0.4, 0.6], epsilon=0.1)
    assert two.log_z == pytest.approx(one.log_z, abs=1e-8)
    np.testing.assert_allclose(
        robust_predict_proba(two, X, adaptive=False)[:, 1], binary_robust_predict_proba(one, X), atol=1e-8
    )


def test_one_point_is_exact():
    """With one point the only factor is matched, and equal classes are equally likely."""
    X, _, Z, ks, _ = problem(N=1)
    same = robust_ep(X, [1], Z[[0, 0, 0]], [ks[0]] * 3, 0.2, epsilon=0.3)
    assert same.log_z == pytest.approx(np.log(1 / 3), abs=1e-10)
    assert_same_posterior(same, robust_sep(X, [1], Z[[0, 0, 0]], [ks[0]] * 3, 0.2, epsilon=0.3))


def test_equal_points_lose_nothing_by_tied_sites():
    X, _, Z, ks, noise = problem(N=1)
    X, y = np.repeat(X, 4, axis=0), np.full(4, 2)
    assert_same_posterior(
        robust_ep(X, y, Z, ks, noise, epsilon=0.05), robust_sep(X, y, Z, ks, noise, epsilon=0.05)
    )


def test_epsilon_one_learns_nothing():
    X, y, Z, ks, noise = problem(N=5)
    result = robust_ep(X, y, Z, ks, noise, epsilon=1 - 1e-10)
    assert result.log_z == pytest.approx(5 * np.log(1 / 3), abs=1e-8)
    np.testing.assert_allclose(result.cov, result.model.K, atol=1e-8)


def outliers():
    """Two far labels in each other's territory and strong kernels: sites with τ < 0."""
    X, y, Z, _, _ = problem(N=8, seed=3)
    ks = [partial(kernels.rbf, lengthscale=1.5, variance=9.0 + c) for c in range(3)]
    y = np.where(np.arange(8) % 5 == 1, (y + 1) % 3, y)
    return X, y, Z, ks, np.array([0.1, 0.2, 0.1])


def test_evidence_is_stationary_in_every_site_and_negative_sites_are_kept():
    X, y, Z, ks, noise = outliers()
    fit = robust_ep(X, y, Z, ks, noise, epsilon=0.02)
    assert fit.residual < 1e-10 and fit.tau.min() < 0
    points, rng = gather_points(fit.model, X, y, 0.02, False), np.random.default_rng(4)
    for _ in range(3):
        a, b, h = rng.normal(size=fit.tau.shape), rng.normal(size=fit.nu.shape), 1e-4
        up = robust_log_evidence(fit.model, points, fit.tau + h * a, fit.nu + h * b)
        down = robust_log_evidence(fit.model, points, fit.tau - h * a, fit.nu - h * b)
        assert (up - down) / (2 * h) == pytest.approx(0, abs=1e-5)


def test_slope_of_the_evidence_in_epsilon_is_that_of_the_factors():
    X, y, Z, ks, noise = problem(N=6)
    fit = robust_ep(X, y, Z, ks, noise, epsilon=0.05)
    points = gather_points(fit.model, X, y, 0.05, False)
    cavity = moments(*own_cavities(fit.model, points, fit.tau, fit.nu))
    mean = np.einsum("ncm,ncm->nc", points.upsilon, cavity[0])
    var = points.r + np.einsum("ncm,ncmk,nck->nc", points.upsilon, cavity[1], points.upsilon)
    slope = sum(robust_moments(*point, 0.05, False).depsilon for point in zip(y, mean, var, strict=True))
    up, down = (robust_ep(X, y, Z, ks, noise, epsilon=0.05 + h).log_z for h in (1e-4, -1e-4))
    assert (up - down) / 2e-4 == pytest.approx(slope, rel=1e-6)


def test_sites_by_adaptive_quadrature_are_the_same():
    X, y, Z, ks, noise = problem(N=4)
    fit = robust_ep(X, y, Z, ks, noise, epsilon=0.01)
    points = gather_points(fit.model, X, y, 0.01, True)
    _, tau, nu = tilt(points, moments(*own_cavities(fit.model, points, fit.tau, fit.nu)))
    np.testing.assert_allclose(tau, fit.tau, atol=1e-9)
    np.testing.assert_allclose(nu, fit.nu, atol=1e-9)


def test_sep_in_one_given_batch_is_a_batch_sweep_and_probabilities_are_near_ep():
    X, y, Z, ks, noise = problem(N=6)
    run = partial(robust_sep, X, y, Z, ks, noise, epsilon=0.01, max_sweeps=3, tol=0, accelerate=False)
    assert_same_posterior(run(), run(batches=[np.arange(6)]), atol=1e-12)
    tied, ep = (f(X, y, Z, ks, noise, epsilon=0.01) for f in (robust_sep, robust_ep))
    np.testing.assert_allclose(
        robust_predict_proba(tied, X[:1]), robust_predict_proba(ep, X[:1], adaptive=False), atol=0.15
    )


def test_first_batch_of_sep_is_a_first_sweep_of_ep_on_its_rows():
    X, y, Z, ks, noise = problem()
    once = {"epsilon": 0.01, "max_sweeps": 1, "tol": 0, "accelerate": False}
    first = robust_sep(X, y, Z, ks, noise, batches=[[0, 1, 2, 3]], **once)
    ep = robust_ep(X[:4], y[:4], Z, ks, noise, **once)
    np.testing.assert_allclose(first.mean, ep.mean, atol=1e-10)
    np.testing.assert_allclose(first.cov, ep.cov, atol=1e-10)
