"""Laws of the one solver, with every factor, before anything is compared with it."""

import math
from functools import cache, partial

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from . import kernels
from .brute_ep import (
    full_multiclass_ep,
    full_multiclass_latent,
    full_multiclass_predict,
    gfitc,
    gfitc_inducing,
    gfitc_marginals,
    latent,
    power_ep,
    predict_proba,
    probit_factors,
    project,
    robust_ep,
    robust_factors,
    robust_sep,
    sep,
    site_totals,
    sparse_ep,
)
from .exact import (
    binary_log_evidence_dblquad,
    binary_log_evidence_orthant,
    exact_log_evidence_mc,
    gp_regression,
)
from .factors import PanelProbit
from .gaussian import moments, outer
from .problems import (
    KERNELS,
    NEW,
    assert_all_close,
    assert_same_posterior,
    binary_problem,
    kernel_matrices,
    outliers,
    problem,
    smooth_kernels,
)
from .robust import robust_moments
from .solver import log_evidence, new_sites, own_cavities, tilt
from .textbook import full_binary_ep, full_binary_predict

FITS = {
    "EP": partial(sparse_ep, *problem()),
    "EP with one latent": partial(sparse_ep, *binary_problem()),
    "EP with weights": partial(
        sparse_ep, *problem(), weights=np.linspace(0.3, 2.5, 10)
    ),
    "power EP": partial(power_ep, *problem(N=5), power=0.4),
    "robust EP": partial(robust_ep, *outliers(), epsilon=0.02),
    "GFITC": partial(gfitc, *problem(N=6)),
    "full EP": lambda: full_multiclass_ep(
        kernel_matrices(KERNELS[:3], problem(N=6)[0])[0], problem(N=6)[1], 0.2
    ),
}


@cache
def fitted(name):
    return FITS[name]()


@pytest.fixture(params=FITS)
def any_fit(request):
    return fitted(request.param)


@pytest.fixture
def ep():
    return fitted("EP")


def cavities(fit):
    """Mean and covariance of every cavity."""
    return moments(*own_cavities(fit.model, fit.factor, fit.tau, fit.nu))


# --- at the fixed point ----------------------------------------------------------------------------------
def test_sites_converge(any_fit):
    assert any_fit.residual < 1e-11


def test_negative_sites_are_kept_where_they_are_genuine(ep):
    assert np.all(ep.tau >= 0)
    assert fitted("robust EP").tau.min() < 0


def test_evidence_is_stationary_in_every_site(any_fit):
    fit, rng, h = any_fit, np.random.default_rng(4), 1e-4
    assert log_evidence(fit.model, fit.factor, fit.tau, fit.nu) == pytest.approx(
        fit.log_z, abs=1e-12
    )
    for _ in range(5):
        a, b = rng.normal(size=(2, *fit.tau.shape))
        up, down = (
            log_evidence(fit.model, fit.factor, fit.tau + s * a, fit.nu + s * b)
            for s in (h, -h)
        )
        assert (up - down) / (2 * h) == pytest.approx(
            0, abs=1e-5 if fit.factor.epsilon else 1e-6
        )


def test_evidence_equals_the_scalar_formula(any_fit):
    """Σ_c (−½ log|K Λ| + ½ hᵀμ) + Σ (1/p) [log Z + ½ log(v\\/v) + ½ m\\²/v\\ − ½ m²/v]."""
    fit, f = any_fit, any_fit.factor
    log_z, _, _, m_cav, v_cav = tilt(f, cavities(fit))
    m = np.einsum("fsm,fsm->fs", f.upsilon, fit.mean[f.classes])
    v = np.einsum("fsm,fsmk,fsk->fs", f.upsilon, fit.cov[f.classes], f.upsilon)
    g = -0.5 * np.linalg.slogdet(fit.model.K @ np.linalg.inv(fit.cov))[
        1
    ] + 0.5 * np.sum(fit.h * fit.mean, axis=1)
    scalar = 0.5 * np.log(v_cav / v) + 0.5 * m_cav**2 / v_cav - 0.5 * m**2 / v
    assert fit.log_z == pytest.approx(
        g.sum() + np.sum((log_z + scalar.sum(axis=1)) / f.removed), abs=1e-9
    )


def test_the_tilted_gaussian_over_its_cavity_is_the_rank_one_site(any_fit):
    """(V\\ + d₂ V\\υυᵀV\\)⁻¹ − V\\⁻¹ = pτ υυᵀ as matrices."""
    fit, f = any_fit, any_fit.factor
    cov = cavities(fit)[1]
    d2 = tilt(f, cavities(fit))[2]
    along = np.einsum("fsij,fsj->fsi", cov, f.upsilon)
    site = np.linalg.inv(cov + d2[..., None, None] * outer(along)) - np.linalg.inv(cov)
    expected = (f.removed[:, None] * fit.tau)[..., None, None] * outer(f.upsilon)
    np.testing.assert_allclose(site, expected, atol=1e-7)


def test_q_has_the_tilted_moments_of_every_factor_by_quadrature(ep):
    """⟨t⟩ and Var t of each side, the other side integrated out in closed form."""
    f = ep.factor
    _, _, _, m, v = tilt(f, cavities(ep))
    for i, classes in enumerate(f.classes):
        for side, sign in ((0, 1.0), (1, -1.0)):
            mean, far = m[i, side], m[i, 1 - side]
            sd, spread = np.sqrt(v[i, side]), np.sqrt(f.r[i].sum() + v[i, 1 - side])

            def g(t, order, mean=mean, sd=sd, far=far, sign=sign, spread=spread):
                gauss = math.exp(-0.5 * ((t - mean) / sd) ** 2) / (
                    sd * math.sqrt(2 * math.pi)
                )
                return t**order * gauss * ndtr(sign * (t - far) / spread)

            ends = mean - 10 * sd, mean + 10 * sd
            z, first, second = (
                quad(g, *ends, (order,), epsabs=1e-12, epsrel=1e-10, limit=200)[0]
                for order in range(3)
            )
            upsilon, c = f.upsilon[i, side], classes[side]
            assert upsilon @ ep.mean[c] == pytest.approx(first / z, abs=1e-8)
            assert upsilon @ ep.cov[c] @ upsilon == pytest.approx(
                second / z - (first / z) ** 2, abs=1e-8
            )


def test_site_totals_rebuild_the_precision(ep):
    T, U = site_totals(ep)
    upsilon, _ = project(ep.model.K, *ep.model.cross(problem()[0]))
    for c, K in enumerate(ep.model.K):
        precision = np.linalg.inv(K) + (upsilon[c].T * T[:, c]) @ upsilon[c]
        np.testing.assert_allclose(precision @ ep.cov[c], np.eye(len(K)), atol=1e-8)
        np.testing.assert_allclose(
            precision @ ep.mean[c], upsilon[c].T @ U[:, c], atol=1e-8
        )


@pytest.mark.parametrize(
    ("factors", "fit"),
    [
        (
            partial(robust_factors, epsilon=0.01, adaptive=True),
            partial(robust_ep, epsilon=0.01),
        ),
        (
            partial(probit_factors, power=0.3, kind=PanelProbit, adaptive=True),
            partial(power_ep, power=0.3),
        ),
    ],
    ids=["robust", "power"],
)
def test_sites_by_adaptive_quadrature_are_the_same(factors, fit):
    given = problem(N=4)
    found = fit(*given)
    precise = factors(found.model, *given[:2])
    assert_all_close(new_sites(precise, cavities(found)), (found.tau, found.nu), 1e-9)


# --- symmetries and known answers ------------------------------------------------------------------------
def test_one_factor_is_exact():
    """N = 1: EP matches the only factor.

    Two classes, or three equal ones: log Z is −log C whatever the kernels.
    """
    X, _, Z, ks, noise = problem(N=1)
    assert sparse_ep(X, [1], Z[:2], ks[:2], noise[:2]).log_z == pytest.approx(
        np.log(1 / 2), abs=1e-10
    )
    same = robust_ep(X, [1], Z[[0, 0, 0]], [ks[0]] * 3, 0.2, epsilon=0.3)
    assert same.log_z == pytest.approx(np.log(1 / 3), abs=1e-10)


def test_slope_of_the_evidence_in_epsilon_is_that_of_the_factors():
    given = problem(N=6)
    fit = robust_ep(*given, epsilon=0.05)
    _, _, _, mean, var = tilt(fit.factor, cavities(fit))
    points = zip(given[1], mean, var + fit.factor.r, strict=True)
    slope = sum(robust_moments(*point, 0.05, False).depsilon for point in points)
    up, down = (robust_ep(*given, epsilon=0.05 + h).log_z for h in (1e-4, -1e-4))
    assert (up - down) / 2e-4 == pytest.approx(slope, rel=1e-6)


# --- methods that agree ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "given", [problem(C=2), binary_problem()], ids=["two latents", "one latent"]
)
def test_robust_factors_of_two_classes_without_epsilon_are_probit_factors(given):
    fit, plain = robust_ep(*given), sparse_ep(*given)
    assert_same_posterior(fit, plain)
    assert_same_posterior(robust_sep(*given), sep(*given))
    np.testing.assert_allclose(
        predict_proba(fit, NEW), predict_proba(plain, NEW), atol=1e-9
    )


def test_two_classes_with_a_silent_rival_are_one_latent():
    """With a rival kernel of amplitude zero, C = 2 is the one-latent model with noise
    s₀ + s₁.
    """
    X, y, Z, k, _ = binary_problem(N=6)
    silent = lambda A, B: 1e-12 * np.eye(len(A), len(B))
    one = robust_ep(X, y, Z, k, 1.0, epsilon=0.1)
    two = robust_ep(
        X, (y > 0).astype(int), Z[[0, 0]], [silent, *k], [0.4, 0.6], epsilon=0.1
    )
    assert two.log_z == pytest.approx(one.log_z, abs=1e-8)
    np.testing.assert_allclose(predict_proba(two, X), predict_proba(one, X), atol=1e-8)


@pytest.mark.parametrize("power", [1.0, 0.5, 0.05])
@pytest.mark.parametrize(
    "given", [problem(N=5), binary_problem(6)], ids=["pairs", "one latent"]
)
def test_power_ep_is_the_same_by_both_quadratures_and_ep_at_power_one(given, power):
    assert_same_posterior(power_ep(*given, power=power), sparse_ep(*given, power=power))


def test_inducing_points_at_the_data_give_full_multiclass_ep():
    X, y, _, _, noise = problem(N=8)
    ks = smooth_kernels()
    K, cross, diag = kernel_matrices(ks, X)
    sparse, full = (
        sparse_ep(X, y, np.stack([X] * 3), ks, noise, jitter=0),
        full_multiclass_ep(K, y, noise),
    )
    assert_same_posterior(sparse, full)
    assert_all_close(
        latent(sparse, NEW), full_multiclass_latent(full, cross, diag), 1e-8
    )
    np.testing.assert_allclose(
        predict_proba(sparse, NEW),
        full_multiclass_predict(full, cross, diag),
        atol=1e-8,
    )


@pytest.mark.parametrize("method", [sparse_ep, gfitc])
def test_one_latent_with_inducing_points_at_the_data_is_textbook_ep(method):
    X, y, *_ = binary_problem(N=12)
    k = partial(kernels.matern52, lengthscale=0.8, variance=2.0)
    fit, full = method(X, y, X[None], [k], jitter=0), full_binary_ep(k(X, X), y)
    assert fit.log_z == pytest.approx(full.log_z, abs=1e-9)
    if method is sparse_ep:
        assert_all_close((fit.mean[0], fit.cov[0]), (full.mean, full.cov), 1e-9)
        np.testing.assert_allclose(fit.tau[:, 0], full.tau, atol=1e-8)
    expected = full_binary_predict(full, k(X, X), k(NEW, X), np.diag(k(NEW, NEW)))
    np.testing.assert_allclose(
        predict_proba(fit, NEW), np.stack([1 - expected, expected], 1), atol=1e-9
    )


# --- GFITC -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("C", [2, 4])
def test_gfitc_with_inducing_points_at_the_data_is_full_ep_with_the_noise_in_the_prior(
    C,
):
    X, y, _, _, _ = problem(N=8, C=C)
    ks, noise = smooth_kernels(C), 0.1 + 0.1 * np.arange(C)
    sparse = gfitc(X, y, np.stack([X] * C), ks, noise, jitter=0)
    full = full_multiclass_ep(
        [k(X, X) + s * np.eye(8) for k, s in zip(ks, noise, strict=True)], y, 0.0
    )
    assert_same_posterior(sparse, full)
    np.testing.assert_allclose(sparse.tau, full.tau, atol=1e-8)
    np.testing.assert_allclose(
        predict_proba(sparse, NEW[:1], adaptive=True).sum(), 1, atol=1e-10
    )


def test_gfitc_of_two_classes_with_inducing_points_at_the_data_is_full_ep():
    """For C = 2 it does not matter whether the noise is in the prior or in the factor."""
    X, y, _, _, noise = problem(N=8, C=2)
    ks = smooth_kernels(2)
    K, *new = kernel_matrices(ks, X)
    sparse, full = (
        gfitc(X, y, np.stack([X] * 2), ks, noise, jitter=0),
        full_multiclass_ep(K, y, noise),
    )
    assert sparse.log_z == pytest.approx(full.log_z, abs=1e-9)
    np.testing.assert_allclose(
        predict_proba(sparse, NEW), full_multiclass_predict(full, *new), atol=1e-8
    )


def test_gfitc_of_three_classes_obeys_the_eliminated_form():
    """P, h from τ' = τ/(1+rτ), ν' = ν/(1+rτ); f-marginals from those of t; G_c as
    METHOD 4 has it.
    """
    given = problem()
    g = gfitc(*given)
    inducing = g.model.inducing
    mean, cov = gfitc_inducing(g)
    marginal_mean, marginal_var = gfitc_marginals(g)
    upsilon, r = project(inducing.K, *inducing.cross(given[0]))
    for c, (T, U) in enumerate(
        zip(*(total.T for total in site_totals(g)), strict=True)
    ):
        shrink = 1 / (1 + r[c] * T)
        precision = (
            np.linalg.inv(inducing.K[c]) + (upsilon[c].T * T * shrink) @ upsilon[c]
        )
        np.testing.assert_allclose(precision @ cov[c], np.eye(4), atol=1e-8)
        np.testing.assert_allclose(
            precision @ mean[c], upsilon[c].T @ (U * shrink), atol=1e-8
        )
        m_t, v_t = upsilon[c] @ mean[c], np.diag(upsilon[c] @ cov[c] @ upsilon[c].T)
        np.testing.assert_allclose(
            marginal_mean[:, c], (m_t + r[c] * U) * shrink, atol=1e-9
        )
        np.testing.assert_allclose(
            marginal_var[:, c], r[c] * shrink + v_t * shrink**2, atol=1e-9
        )
    assert abs(g.log_z - sparse_ep(*given).log_z) > 0.1  # C = 3: another approximation
    assert g.log_z == pytest.approx(
        robust_ep(*given).log_z, abs=0.1
    )  # of the same model


# --- near the truth --------------------------------------------------------------------------------------
@pytest.mark.parametrize("y", [[1, 1], [1, -1]])
def test_binary_ep_is_near_the_exact_evidence(y):
    K = np.array([[2.0, 1.1], [1.1, 1.5]])
    exact = binary_log_evidence_dblquad(K, np.array(y))
    rho = y[0] * y[1] * K[0, 1] / np.sqrt((1 + K[0, 0]) * (1 + K[1, 1]))
    assert exact == pytest.approx(np.log(0.25 + np.arcsin(rho) / (2 * np.pi)), abs=1e-8)
    assert exact == pytest.approx(binary_log_evidence_orthant(K, y), abs=1e-6)
    assert full_binary_ep(K, y).log_z == pytest.approx(exact, abs=5e-3)


def test_binary_ep_is_near_the_orthant_probability_for_six_points():
    X, y, _, (k,), _ = binary_problem(N=6)
    exact = binary_log_evidence_orthant(k(X, X), y)
    assert full_binary_ep(k(X, X), y).log_z == pytest.approx(exact, abs=3e-2)


def test_multiclass_ep_is_near_monte_carlo():
    X, y, _, ks, noise = problem(N=4)
    K = kernel_matrices(ks, X)[0]
    exact, error = exact_log_evidence_mc(K, y, noise)
    assert error < 0.02
    assert full_multiclass_ep(K, y, noise).log_z == pytest.approx(exact, abs=0.15)


def test_regression_is_the_conditional_of_the_joint_gaussian():
    X, Xs = (
        np.random.default_rng(7).normal(size=(7, 2)),
        np.random.default_rng(8).normal(size=(3, 2)),
    )
    y, k = np.sin(X[:, 0]), KERNELS[0]
    got = gp_regression(k(X, X), y, 0.2, k(Xs, X), np.diag(k(Xs, Xs)))
    joint = np.linalg.inv(
        k(np.vstack([X, Xs]), np.vstack([X, Xs])) + np.diag([0.2] * 7 + [0.0] * 3)
    )
    cov = np.linalg.inv(joint[7:, 7:])
    assert_all_close(
        (got.mean, got.var), (-cov @ joint[7:, :7] @ y, np.diag(cov)), 1e-9
    )
    exact = multivariate_normal(np.zeros(7), k(X, X) + 0.2 * np.eye(7)).logpdf(y)
    assert got.log_evidence == pytest.approx(exact)


# --- weights ---------------------------------------------------------------------------------------------
# --- SEP -------------------------------------------------------------------------------------------------
TIED = {
    "probit": (sparse_ep, sep),
    "robust": (partial(robust_ep, epsilon=0.05), partial(robust_sep, epsilon=0.05)),
}
tied_and_own = pytest.mark.parametrize(("own", "tied"), TIED.values(), ids=TIED)


@tied_and_own
def test_sep_with_one_factor_is_ep(own, tied):
    given = problem(N=1, C=2) if own is sparse_ep else problem(N=1)
    for X, _, *rest in (given, binary_problem(N=1)):
        assert_same_posterior(tied(X, [1], *rest), own(X, [1], *rest))


@tied_and_own
def test_sep_with_equal_factors_is_ep(own, tied):
    """Identical rows, and exchangeable rivals of pairs: every site of a class is the
    same, so tying loses nothing.
    """
    X, _, Z, ks, _ = problem(N=1)
    X, ones, rivals = (
        np.repeat(X, 5, axis=0),
        np.ones(5, dtype=int),
        [1, 0, 1] if own is sparse_ep else [0, 1, 2],
    )
    assert_same_posterior(
        *(
            method(X, ones, Z[rivals], [ks[c] for c in rivals], 0.2)
            for method in (own, tied)
        )
    )
    assert_same_posterior(*(method(X, ones, Z[:1], ks[:1]) for method in (own, tied)))
