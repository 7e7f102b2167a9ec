"""Sanity of the oracle itself: laws it must obey before anything is compared with it."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr
from scipy.stats import multivariate_normal, norm

from . import kernels
from .brute_ep import (
    binary_log_evidence_dblquad,
    binary_log_evidence_orthant,
    binary_predict_proba,
    binary_sep,
    binary_sparse_ep,
    class_probabilities,
    exact_log_evidence_mc,
    full_binary_ep,
    full_binary_predict,
    full_multiclass_ep,
    full_multiclass_latent,
    full_multiclass_predict,
    gp_regression,
    latent,
    log_evidence,
    predict_proba,
    sep,
    site_totals,
    sparse_ep,
)
from .gaussian import moments, outer
from .probit import power_derivatives, probit_derivatives
from .sparse import build_state, tilt

KERNELS = [
    partial(kernels.rbf, lengthscale=np.array([0.9, 1.3]), variance=1.5),
    partial(kernels.matern32, lengthscale=1.1, variance=0.8),
    partial(kernels.matern52, lengthscale=0.8, variance=2.0),
    partial(kernels.rational_quadratic, lengthscale=1.0, variance=1.2, alpha=0.7),
]


def problem(N=10, M=4, C=3, seed=0):
    """X (N, 2), y (N,) with overlapping classes, Z (C, M, 2), kernels, noise (C,)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    score = X @ rng.normal(size=(2, C)) + 0.3 * rng.normal(size=(N, C))
    return (
        X,
        score.argmax(axis=1),
        rng.normal(size=(C, M, 2)),
        KERNELS[:C],
        np.array([0.1, 0.3, 0.2, 0.15])[:C],
    )


def binary_problem(N=10, M=4, seed=0):
    """X (N, 2), y = ±1, Z (M, 2), one kernel."""
    X, y, Z, ks, _ = problem(N, M, 2, seed)
    return X, 2 * y - 1, Z[0], ks[0]


def sites(result):
    """τ, ν as (F, S)."""
    return result.tau.reshape(result.factors.r.shape), result.nu.reshape(result.factors.r.shape)


def assert_same_posterior(a, b, atol=1e-9):
    assert a.log_z == pytest.approx(b.log_z, abs=atol)
    np.testing.assert_allclose(a.mean, b.mean, atol=atol)
    np.testing.assert_allclose(a.cov, b.cov, atol=atol)


# --- kernels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rbf", "matern12", "matern32", "matern52", "rational_quadratic", "linear"])
def test_kernel_is_a_symmetric_positive_semidefinite_function(name):
    X = np.random.default_rng(1).normal(size=(12, 3))
    K = getattr(kernels, name)(X, X, variance=1.7)
    np.testing.assert_allclose(K, K.T, atol=1e-14)
    assert np.linalg.eigvalsh(K).min() > -1e-10
    if name != "linear":
        np.testing.assert_allclose(np.diag(K), 1.7)


def test_rational_quadratic_with_large_alpha_is_rbf():
    X = np.random.default_rng(2).normal(size=(6, 2))
    close = kernels.rational_quadratic(X, X, 0.7, 2.0, alpha=1e7)
    np.testing.assert_allclose(close, kernels.rbf(X, X, 0.7, 2.0), atol=1e-6)


def test_matern12_with_one_scale_per_column_by_hand():
    k = kernels.matern12(np.array([[0.0, 0.0]]), np.array([[3.0, 8.0]]), np.array([1.0, 2.0]), 2.0)
    assert k[0, 0] == pytest.approx(2 * np.exp(-5))


# --- one factor ------------------------------------------------------------------------------------------

CASES = [
    (0.3, 1.2, 0.5),
    (-4.0, 0.7, 0.2),
    (6.0, 2.0, 0.1),
    (-1.0, 1e-3, 2.0),
    (0.5, 3.0, 1e-5),
    (-9.0, 1.0, 1e-3),
]


def tilted_by_quad(mean, var, r, power):
    """log Z, ⟨d⟩, Var d of Φ(d/√r)^p N(d; m, v), by adaptive quadrature around the tilted mode."""
    d = mean + np.sqrt(var) * np.linspace(-12, max(-mean / np.sqrt(var), 0) + 12, 100_001)
    log_g = power * log_ndtr(d / np.sqrt(r)) + norm.logpdf(d, mean, np.sqrt(var))
    mode, top = d[np.argmax(log_g)], log_g.max()
    width = np.sqrt(1 / (1 / var + min(1 / r, 1e3)))

    def raw(order):
        def g(x):
            log_gauss = -0.5 * (x - mean) ** 2 / var - 0.5 * math.log(2 * math.pi * var)
            return (x - mode) ** order * math.exp(power * log_ndtr(x / math.sqrt(r)) + log_gauss - top)

        points = np.unique(
            [
                d[0],
                *np.clip(mode + width * np.array([-8, -4, -2, -1, 0, 1, 2, 4, 8]), d[0], d[-1]),
                0.0,
                d[-1],
            ]
        )
        return sum(quad(g, a, b, epsabs=1e-14, epsrel=1e-12, limit=200)[0] for a, b in pairwise(points))

    z, first, second = raw(0), raw(1), raw(2)
    return top + np.log(z), mode + first / z, second / z - (first / z) ** 2


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("power", [0.25, 0.6, 1.0])
def test_power_derivatives_give_the_tilted_moments(case, power):
    mean, var, r = case
    log_z, d1, d2 = (
        float(x[0]) for x in power_derivatives(*(np.array([x]) for x in case), np.array([power]))
    )
    exact_log_z, exact_mean, exact_var = tilted_by_quad(mean, var, r, power)
    assert log_z == pytest.approx(exact_log_z, abs=1e-9)
    assert mean + var * d1 == pytest.approx(exact_mean, abs=1e-8)
    assert var + var**2 * d2 == pytest.approx(exact_var, abs=1e-8)


def test_power_one_is_the_closed_form():
    columns = np.array(CASES).T
    for a, b in zip(
        power_derivatives(*columns, np.ones(len(CASES))), probit_derivatives(*columns), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_class_probabilities_sum_to_one_and_have_the_closed_form_for_two_classes():
    rng = np.random.default_rng(3)
    mean, var = rng.normal(size=(6, 4)), 10 ** rng.uniform(-4, 2, size=(6, 4))
    np.testing.assert_allclose(class_probabilities(mean, var).sum(axis=1), 1, atol=1e-9)
    two = class_probabilities(mean[:, :2], var[:, :2])[:, 0]
    np.testing.assert_allclose(
        two, ndtr((mean[:, 0] - mean[:, 1]) / np.sqrt(var[:, 0] + var[:, 1])), atol=1e-10
    )


# --- EP at its fixed point -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fit():
    return sparse_ep(*problem())


def test_sites_converge(fit):
    assert fit.residual < 1e-11
    assert np.all(fit.tau >= 0)


def test_plain_sweeps_reach_the_same_fixed_point(fit):
    plain = sparse_ep(*problem(), accelerate=False)
    assert plain.residual < 1e-11 and plain.sweeps > fit.sweeps
    assert_same_posterior(plain, fit, atol=1e-10)
    assert_same_posterior(sep(*problem(), accelerate=False), sep(*problem()), atol=1e-10)


def test_one_plain_sweep_starts_from_the_prior():
    """First sites: cavity N(0, K), so ν = ρ d₁/(1 + v d₂) with v = υᵀKυ."""
    X, y, Z, k = binary_problem()
    one = binary_sparse_ep(X, y, Z, k, damping=0.3, max_sweeps=1, tol=0, accelerate=False)
    upsilon, r = one.factors.upsilon[:, 0], one.factors.r[:, 0]
    v = np.einsum("nm,mk,nk->n", upsilon, one.model.K[0], upsilon)
    _, d1, d2 = probit_derivatives(0 * v, v, r)
    np.testing.assert_allclose(one.nu, 0.3 * y * d1 / (1 + v * d2), rtol=1e-9)
    np.testing.assert_allclose(one.tau, -0.3 * d2 / (1 + v * d2), rtol=1e-9)


def test_q_has_the_tilted_moments_of_every_factor_by_quadrature(fit):
    """⟨t⟩ and Var t of each side, the other side integrated out in closed form."""
    state = build_state(fit.model, fit.factors, *sites(fit))
    _, _, _, m, v = tilt(fit.factors, moments(state.cavity_precision, state.cavity_h))
    for i, classes in enumerate(fit.factors.classes):
        for side, sign in ((0, 1.0), (1, -1.0)):
            other, r = 1 - side, fit.factors.r[i].sum()
            sd, spread = np.sqrt(v[i, side]), np.sqrt(r + v[i, other])

            def raw(order, m=m[i, side], sd=sd, far=m[i, other], sign=sign, spread=spread):
                def g(t):
                    gauss = math.exp(-0.5 * ((t - m) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
                    return t**order * gauss * ndtr(sign * (t - far) / spread)

                return quad(g, m - 10 * sd, m + 10 * sd, epsabs=1e-12, epsrel=1e-10, limit=200)[0]

            z, first, second = raw(0), raw(1), raw(2)
            mean, var = first / z, second / z - (first / z) ** 2
            upsilon, c = fit.factors.upsilon[i, side], classes[side]
            assert upsilon @ fit.mean[c] == pytest.approx(mean, abs=1e-8)
            assert upsilon @ fit.cov[c] @ upsilon == pytest.approx(var, abs=1e-8)


def test_the_tilted_gaussian_over_its_cavity_is_the_rank_one_site(fit):
    """(V\\ + d₂ V\\υυᵀV\\)⁻¹ − Λ\\ = τ υυᵀ as M×M matrices."""
    state = build_state(fit.model, fit.factors, *sites(fit))
    _, _, d2, _, _ = tilt(fit.factors, moments(state.cavity_precision, state.cavity_h))
    cov = moments(state.cavity_precision, state.cavity_h)[1]
    along = np.einsum("fsij,fsj->fsi", cov, fit.factors.upsilon)
    site = np.linalg.inv(cov + d2[..., None, None] * outer(along)) - state.cavity_precision
    np.testing.assert_allclose(site, sites(fit)[0][..., None, None] * outer(fit.factors.upsilon), atol=1e-7)


def test_log_z_is_stationary_in_every_site(fit):
    tau, nu = sites(fit)
    rng = np.random.default_rng(4)
    for _ in range(5):
        a, b, h = rng.normal(size=tau.shape), rng.normal(size=nu.shape), 1e-4
        up = log_evidence(fit.model, fit.factors, tau + h * a, nu + h * b)
        down = log_evidence(fit.model, fit.factors, tau - h * a, nu - h * b)
        assert (up - down) / (2 * h) == pytest.approx(0, abs=1e-6)


def test_log_z_equals_the_scalar_formula(fit):
    """Σ_c (−½ log|K Λ| + ½ hᵀμ) + Σ log Z + ½ log(v\\/v) + ½ m\\²/v\\ − ½ m²/v."""
    state = build_state(fit.model, fit.factors, *sites(fit))
    log_z, _, _, m_cav, v_cav = tilt(fit.factors, moments(state.cavity_precision, state.cavity_h))
    f = fit.factors
    m = np.einsum("fsm,fsm->fs", f.upsilon, fit.mean[f.classes])
    v = np.einsum("fsm,fsmk,fsk->fs", f.upsilon, fit.cov[f.classes], f.upsilon)
    g = -0.5 * np.linalg.slogdet(fit.model.K @ state.precision)[1] + 0.5 * np.sum(state.h * fit.mean, axis=1)
    scalar = 0.5 * np.log(v_cav / v) + 0.5 * m_cav**2 / v_cav - 0.5 * m**2 / v
    assert fit.log_z == pytest.approx(g.sum() + log_z.sum() + scalar.sum(), abs=1e-9)


def test_site_totals_rebuild_the_precision(fit):
    T, U = site_totals(fit)
    X = problem()[0]
    for c, k in enumerate(fit.model.kernels):
        upsilon = np.linalg.solve(fit.model.K[c], k(fit.model.Z[c], X))
        precision = np.linalg.inv(fit.model.K[c]) + (upsilon * T[:, c]) @ upsilon.T
        np.testing.assert_allclose(precision @ fit.cov[c], np.eye(len(precision)), atol=1e-8)
        np.testing.assert_allclose(precision @ fit.mean[c], upsilon @ U[:, c], atol=1e-8)


def test_one_factor_is_exact():
    """N = 1, C = 2: EP matches the only factor, so log Z is log Φ(0) whatever the kernels."""
    X, _, Z, ks, noise = problem(N=1, C=2)
    assert sparse_ep(X, np.array([1]), Z, ks, noise).log_z == pytest.approx(np.log(0.5), abs=1e-10)


def test_one_scale_for_all_amplitudes_and_noises_changes_nothing(fit):
    X, y, Z, ks, noise = problem()
    scaled = [lambda a, b, k=k: 7 * k(a, b) for k in ks]
    assert sparse_ep(X, y, Z, scaled, 7 * noise).log_z == pytest.approx(fit.log_z, abs=1e-9)


def test_relabelling_classes_permutes_the_probabilities(fit):
    X, y, Z, ks, noise = problem()
    order = np.array([2, 0, 1])
    moved = sparse_ep(X, np.argsort(order)[y], Z[order], [ks[c] for c in order], noise[order])
    assert moved.log_z == pytest.approx(fit.log_z, abs=1e-9)
    np.testing.assert_allclose(predict_proba(moved, X[:3]), predict_proba(fit, X[:3])[:, order], atol=1e-9)


# --- without sparsity ------------------------------------------------------------------------------------


def test_inducing_points_at_the_data_give_full_multiclass_ep():
    X, y, _, ks, noise = problem(N=8)
    ks = [partial(kernels.matern32, lengthscale=1 + 0.2 * c, variance=1 + c) for c in range(3)]
    sparse = sparse_ep(X, y, np.stack([X] * 3), ks, noise, jitter=0)
    full = full_multiclass_ep([k(X, X) for k in ks], y, noise)
    assert_same_posterior(sparse, full)
    Xs = np.random.default_rng(5).normal(size=(3, 2))
    cross, diag = [k(Xs, X) for k in ks], [np.diag(k(Xs, Xs)) for k in ks]
    for a, b in zip(latent(sparse, Xs), full_multiclass_latent(full, cross, diag), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    np.testing.assert_allclose(
        predict_proba(sparse, Xs), full_multiclass_predict(full, cross, diag), atol=1e-8
    )


def test_inducing_points_at_the_data_give_textbook_binary_ep():
    X, y, _, _ = binary_problem(N=12)
    k = partial(kernels.matern52, lengthscale=0.8, variance=2.0)
    sparse, full = binary_sparse_ep(X, y, X, k, noise=1.0, jitter=0), full_binary_ep(k(X, X), y)
    assert sparse.log_z == pytest.approx(full.log_z, abs=1e-9)
    np.testing.assert_allclose(sparse.mean[0], full.mean, atol=1e-9)
    np.testing.assert_allclose(sparse.cov[0], full.cov, atol=1e-9)
    np.testing.assert_allclose(sparse.tau, full.tau, atol=1e-8)
    Xs = np.random.default_rng(6).normal(size=(4, 2))
    expected = full_binary_predict(full, k(X, X), k(Xs, X), np.diag(k(Xs, Xs)))
    np.testing.assert_allclose(binary_predict_proba(sparse, Xs), expected, atol=1e-9)


def test_two_classes_with_a_silent_rival_are_one_latent():
    """With a zero-amplitude rival kernel, C = 2 is the one-latent model with noise s₀ + s₁."""
    X, y, _, _ = binary_problem(N=8)
    k = partial(kernels.matern52, lengthscale=0.8, variance=2.0)
    K = k(X, X)
    two = full_multiclass_ep([1e-14 * np.eye(8), K], (y > 0).astype(int), np.array([0.4, 0.6]))
    assert two.log_z == pytest.approx(full_binary_ep(K, y).log_z, abs=1e-6)


@pytest.mark.parametrize("y", [[1, 1], [1, -1]])
def test_binary_ep_is_near_the_exact_evidence(y):
    K = np.array([[2.0, 1.1], [1.1, 1.5]])
    exact = binary_log_evidence_dblquad(K, np.array(y))
    rho = y[0] * y[1] * K[0, 1] / np.sqrt((1 + K[0, 0]) * (1 + K[1, 1]))
    assert exact == pytest.approx(np.log(0.25 + np.arcsin(rho) / (2 * np.pi)), abs=1e-8)
    assert exact == pytest.approx(binary_log_evidence_orthant(K, y), abs=1e-6)
    assert full_binary_ep(K, y).log_z == pytest.approx(exact, abs=5e-3)


def test_binary_ep_is_near_the_orthant_probability_for_six_points():
    X, y, _, k = binary_problem(N=6)
    assert full_binary_ep(k(X, X), y).log_z == pytest.approx(
        binary_log_evidence_orthant(k(X, X), y), abs=3e-2
    )


def test_multiclass_ep_is_near_monte_carlo():
    X, y, _, ks, noise = problem(N=4)
    K = [k(X, X) for k in ks]
    exact, error = exact_log_evidence_mc(K, y, noise)
    assert error < 0.02
    assert full_multiclass_ep(K, y, noise).log_z == pytest.approx(exact, abs=0.15)


def test_regression_is_the_conditional_of_the_joint_gaussian():
    X, Xs = np.random.default_rng(7).normal(size=(7, 2)), np.random.default_rng(8).normal(size=(3, 2))
    y, k = np.sin(X[:, 0]), KERNELS[0]
    got = gp_regression(k(X, X), y, 0.2, k(Xs, X), np.diag(k(Xs, Xs)))
    joint = np.linalg.inv(k(np.vstack([X, Xs]), np.vstack([X, Xs])) + np.diag([0.2] * 7 + [0.0] * 3))
    cov = np.linalg.inv(joint[7:, 7:])
    np.testing.assert_allclose(got.mean, -cov @ joint[7:, :7] @ y, atol=1e-9)
    np.testing.assert_allclose(got.var, np.diag(cov), atol=1e-9)
    assert got.log_evidence == pytest.approx(
        multivariate_normal(np.zeros(7), k(X, X) + 0.2 * np.eye(7)).logpdf(y)
    )


# --- weights and powers ----------------------------------------------------------------------------------


def test_integer_weights_are_duplicated_rows_and_zero_is_deletion():
    X, y, Z, ks, noise = problem()
    weights = np.array([2, 1, 3, 0, 1, 2, 1, 0, 1, 1])
    weighted = sparse_ep(X, y, Z, ks, noise, weights=weights)
    assert_same_posterior(
        weighted, sparse_ep(np.repeat(X, weights, axis=0), np.repeat(y, weights), Z, ks, noise)
    )
    assert np.all(weighted.tau[weights == 0] == 0)


def test_binary_integer_weights_are_duplicated_rows():
    X, y, Z, k = binary_problem()
    weights = np.array([2, 1, 3, 0, 1, 2, 1, 0, 1, 1])
    weighted = binary_sparse_ep(X, y, Z, k, weights=weights)
    assert_same_posterior(
        weighted, binary_sparse_ep(np.repeat(X, weights, axis=0), np.repeat(y, weights), Z, k)
    )


def test_two_rows_of_weight_one_half_are_one_row_at_power_one_half():
    X, y, Z, ks, noise = problem(N=6)
    halves = sparse_ep(np.repeat(X, 2, axis=0), np.repeat(y, 2), Z, ks, noise, weights=np.full(12, 0.5))
    assert_same_posterior(halves, sparse_ep(X, y, Z, ks, noise, power=0.5), atol=1e-8)
    assert halves.log_z == pytest.approx(sparse_ep(X, y, Z, ks, noise).log_z, abs=0.1)


def test_weights_are_continuous_at_one_and_at_zero():
    X, y, Z, ks, noise = problem(N=6)
    plain = sparse_ep(X, y, Z, ks, noise)
    below = sparse_ep(X, y, Z, ks, noise, weights=np.full(6, 1 - 1e-9))
    assert_same_posterior(plain, below, atol=1e-6)
    nothing = sparse_ep(X, y, Z, ks, noise, weights=np.full(6, 1e-9))
    assert nothing.log_z == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(nothing.cov, nothing.model.K, atol=1e-6)


# --- SEP -------------------------------------------------------------------------------------------------


def test_sep_with_one_factor_is_ep():
    X, _, Z, ks, noise = problem(N=1, C=2)
    assert_same_posterior(sep(X, np.array([0]), Z, ks, noise), sparse_ep(X, np.array([0]), Z, ks, noise))
    X, _, Z, k = binary_problem(N=1)
    assert_same_posterior(binary_sep(X, [-1], Z, k), binary_sparse_ep(X, [-1], Z, k))


def test_sep_with_equal_factors_is_ep():
    """Identical rows and exchangeable rivals: every site of a class is the same, so tying loses nothing."""
    X, _, Z, ks, _ = problem(N=1)
    X, y, Z, ks = np.repeat(X, 5, axis=0), np.zeros(5, dtype=int), Z[[0, 1, 1]], [ks[0], ks[1], ks[1]]
    assert_same_posterior(sep(X, y, Z, ks, 0.2), sparse_ep(X, y, Z, ks, 0.2))
    k = KERNELS[0]
    assert_same_posterior(binary_sep(X, np.ones(5), Z[0], k), binary_sparse_ep(X, np.ones(5), Z[0], k))


def test_sep_counts_and_nearness_to_ep():
    X, y, Z, ks, noise = problem(N=40)
    tied, ep = sep(X, y, Z, ks, noise), sparse_ep(X, y, Z, ks, noise)
    own = np.bincount(y, minlength=3)
    np.testing.assert_array_equal(tied.counts, (40 - own) + 2 * own)
    assert tied.residual < 1e-11
    np.testing.assert_allclose(predict_proba(tied, X[:5]), predict_proba(ep, X[:5]), atol=0.1)


def test_sep_in_one_given_batch_is_a_batch_sweep():
    X, y, Z, ks, noise = problem()
    once = sep(X, y, Z, ks, noise, max_sweeps=3, tol=0, accelerate=False)
    assert_same_posterior(
        once,
        sep(X, y, Z, ks, noise, max_sweeps=3, tol=0, accelerate=False, batches=[np.arange(10)]),
        atol=1e-12,
    )


def test_first_batch_of_sep_is_a_first_sweep_of_ep_on_its_rows():
    """From empty sums the cavity is the prior for both."""
    X, y, Z, ks, noise = problem()
    first = sep(X, y, Z, ks, noise, max_sweeps=1, tol=0, accelerate=False, batches=[[0, 1, 2, 3]])
    ep = sparse_ep(X[:4], y[:4], Z, ks, noise, max_sweeps=1, tol=0, accelerate=False)
    np.testing.assert_allclose(first.mean, ep.mean, atol=1e-10)
    np.testing.assert_allclose(first.cov, ep.cov, atol=1e-10)


def test_mini_batch_sep_tends_to_batch_sep_in_proportion_to_damping():
    X, y, Z, ks, noise = problem(N=6)
    target = sep(X, y, Z, ks, noise).mean

    def distance(damping):
        parts = sep(X, y, Z, ks, noise, batches=[[0, 1, 2], [3, 4, 5]], damping=damping, tol=1e-9)
        return np.abs(parts.mean - target).max()

    assert distance(0.1) < 0.05
    assert distance(0.05) == pytest.approx(distance(0.1) / 2, rel=0.1)
