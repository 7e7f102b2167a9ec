"""Sanity of the oracles for GFITC, power EP, the variational bounds and the true evidence."""

from functools import partial

import numpy as np
import pytest

from . import kernels
from .brute_ep import (
    binary_predict_proba,
    binary_sparse_ep,
    full_binary_ep,
    full_multiclass_ep,
    full_multiclass_predict,
    sparse_ep,
)
from .evidence_mc import (
    Proposal,
    log_evidence_is,
    pairwise_log_likelihood,
    robust_max_log_likelihood,
    softmax_log_likelihood,
)
from .gfitc import (
    Steps,
    binary_gfitc,
    binary_gfitc_predict_proba,
    fitc_prior,
    gfitc,
    gfitc_inducing,
    gfitc_latent,
    gfitc_log_evidence,
    gfitc_predict_proba,
)
from .power import binary_power_ep, posterior_naturals, power_ep, power_moments, tilt_factor
from .probit import probit_derivatives
from .robust import log_robust
from .robust_ep import robust_ep, robust_predict_proba
from .sparse import build_model, latent, project
from .test_reference import assert_same_posterior, binary_problem, problem, tilted_by_quad
from .variational import (
    Whitened,
    bound,
    expected_pairwise,
    expected_robust_max,
    expected_softmax,
    marginals,
    maximise,
    negative_bound,
    pairwise_bound,
    robust_max_bound,
    robust_max_bound_mc,
    softmax_bound,
    softmax_bound_mc,
    to_inducing,
    to_whitened,
    unpack,
    whiten,
)
from .variational_binary import (
    binary_expected_logistic,
    binary_expected_probit,
    binary_expected_robust_max,
)

NEW = np.random.default_rng(5).normal(size=(3, 2))


# --- GFITC -----------------------------------------------------------------------------------------------


def smooth_kernels(C=3):
    return [partial(kernels.matern32, lengthscale=1 + 0.2 * c, variance=1 + c) for c in range(C)]


@pytest.mark.parametrize("C", [2, 4])
def test_gfitc_with_inducing_points_at_the_data_is_full_ep_with_the_noise_in_the_prior(C):
    X, y, _, _, _ = problem(N=8, C=C)
    ks, noise = smooth_kernels(C), 0.1 + 0.1 * np.arange(C)
    sparse = gfitc(X, y, np.stack([X] * C), ks, noise, jitter=0)
    full = full_multiclass_ep([k(X, X) + s * np.eye(8) for k, s in zip(ks, noise, strict=True)], y, 0.0)
    assert_same_posterior(sparse, full)
    np.testing.assert_allclose(sparse.tau, full.tau, atol=1e-8)
    np.testing.assert_allclose(gfitc_predict_proba(sparse, NEW[:1]).sum(), 1, atol=1e-10)


def test_gfitc_of_two_classes_with_inducing_points_at_the_data_is_full_ep():
    """For C = 2 it does not matter whether the noise is in the prior or in the factor."""
    X, y, _, _, noise = problem(N=8, C=2)
    ks = smooth_kernels(2)
    sparse = gfitc(X, y, np.stack([X] * 2), ks, noise, jitter=0)
    full = full_multiclass_ep([k(X, X) for k in ks], y, noise)
    assert sparse.log_z == pytest.approx(full.log_z, abs=1e-9)
    cross, diag = [k(NEW, X) for k in ks], [np.diag(k(NEW, NEW)) for k in ks]
    exact = full_multiclass_predict(full, cross, diag)
    np.testing.assert_allclose(gfitc_predict_proba(sparse, NEW, adaptive=False), exact, atol=1e-8)


def test_gfitc_of_two_classes_is_ep():
    """Equal log Z_q, q and probabilities.   [METHOD 4]"""
    given = problem(C=2)
    g, ep = gfitc(*given), sparse_ep(*given)
    mean, cov = gfitc_inducing(g)
    assert g.log_z == pytest.approx(ep.log_z, abs=1e-9)
    np.testing.assert_allclose(mean, ep.mean, atol=1e-9)
    np.testing.assert_allclose(cov, ep.cov, atol=1e-9)
    for a, b in zip(gfitc_latent(g, NEW), latent(ep, NEW), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_gfitc_with_one_latent_is_ep_and_at_the_data_textbook_ep():
    X, y, Z, k = binary_problem()
    g, ep = binary_gfitc(X, y, Z, k), binary_sparse_ep(X, y, Z, k)
    assert g.log_z == pytest.approx(ep.log_z, abs=1e-9)
    np.testing.assert_allclose(binary_gfitc_predict_proba(g, NEW), binary_predict_proba(ep, NEW), atol=1e-9)
    k = smooth_kernels(1)[0]
    textbook = full_binary_ep(k(X, X), y)
    assert binary_gfitc(X, y, X, k, jitter=0).log_z == pytest.approx(textbook.log_z, abs=1e-9)


def test_gfitc_of_three_classes_obeys_the_eliminated_form():
    """P, h from τ' = τ/(1+rτ), ν' = ν/(1+rτ); f-marginals from those of t; G_c as METHOD 4 has it."""
    X, y, Z, ks, noise = problem()
    g = gfitc(X, y, Z, ks, noise)
    mean, cov = gfitc_inducing(g)
    upsilon, r = project(g.model, X)
    T, U = np.zeros((3, 10)), np.zeros((3, 10))
    for n in range(10):
        for j, k in enumerate(c for c in range(3) if c != y[n]):
            for s, c in enumerate((y[n], k)):
                T[c, n] += g.tau[n, j, s]
                U[c, n] += g.nu[n, j, s]
    for c in range(3):
        shrink = 1 / (1 + r[c] * T[c])
        precision = np.linalg.inv(g.model.K[c]) + (upsilon[c].T * T[c] * shrink) @ upsilon[c]
        np.testing.assert_allclose(precision @ cov[c], np.eye(4), atol=1e-8)
        np.testing.assert_allclose(precision @ mean[c], upsilon[c].T @ (U[c] * shrink), atol=1e-8)
        m_t, v_t = upsilon[c] @ mean[c], np.diag(upsilon[c] @ cov[c] @ upsilon[c].T)
        np.testing.assert_allclose(g.marginal_mean[:, c], (m_t + r[c] * U[c]) * shrink, atol=1e-9)
        np.testing.assert_allclose(g.marginal_var[:, c], r[c] * shrink + v_t * shrink**2, atol=1e-9)
    assert abs(g.log_z - sparse_ep(X, y, Z, ks, noise).log_z) > 0.1  # C = 3: another approximation
    assert g.log_z == pytest.approx(robust_ep(X, y, Z, ks, noise).log_z, abs=0.1)  # of the same model


def test_gfitc_evidence_is_stationary_in_every_site():
    X, y, Z, ks, noise = problem(N=6)
    g, rng = gfitc(X, y, Z, ks, noise), np.random.default_rng(4)
    pairs = np.array([(n, y[n], k) for n in range(6) for k in range(3) if k != y[n]])
    steps = Steps(pairs[:, 0], pairs[:, 1:], np.tile([1.0, -1.0], (12, 1)))
    tau, nu, prior = g.tau.reshape(12, 2), g.nu.reshape(12, 2), fitc_prior(g.model, X)
    assert gfitc_log_evidence(prior, steps, tau, nu) == pytest.approx(g.log_z, abs=1e-12)
    for _ in range(3):
        a, b, h = rng.normal(size=tau.shape), rng.normal(size=nu.shape), 1e-4
        up = gfitc_log_evidence(prior, steps, tau + h * a, nu + h * b)
        down = gfitc_log_evidence(prior, steps, tau - h * a, nu - h * b)
        assert (up - down) / (2 * h) == pytest.approx(0, abs=1e-6)


# --- power EP --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mean, var, r", [(0.3, 1.2, 0.5), (-4.0, 0.7, 0.2), (6.0, 2.0, 0.1), (-9.0, 1.0, 1e-3)]
)
def test_power_moments(mean, var, r):
    exact = [float(x[0]) for x in probit_derivatives(*(np.array([x]) for x in (mean, var, r)))]
    np.testing.assert_allclose(power_moments(mean, var, r, 1.0), exact, rtol=1e-9)
    log_z, tilted_mean, tilted_var = tilted_by_quad(mean, var, r, 0.4)
    expected = log_z, (tilted_mean - mean) / var, tilted_var / var**2 - 1 / var
    np.testing.assert_allclose(power_moments(mean, var, r, 0.4), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        power_moments(mean, var, r, 0.4), power_moments(mean, var, r, 0.4, adaptive=False), rtol=1e-10
    )


def test_power_one_is_ep():
    given = problem(N=5)
    assert_same_posterior(power_ep(*given, 1.0), sparse_ep(*given))
    assert_same_posterior(binary_power_ep(*binary_problem()), binary_sparse_ep(*binary_problem()))


@pytest.mark.parametrize("power", [0.5, 0.05])
def test_power_ep_is_that_of_the_other_oracle(power):
    given = problem(N=5)
    assert_same_posterior(power_ep(*given, power), sparse_ep(*given, power=power))
    assert_same_posterior(
        binary_power_ep(*binary_problem(6), power=power), binary_sparse_ep(*binary_problem(6), power=power)
    )


def test_power_sites_by_adaptive_quadrature_are_the_same():
    fit = binary_power_ep(*binary_problem(), power=0.3)
    tau, nu = fit.tau[:, None], fit.nu[:, None]
    precision, h = posterior_naturals(fit.model, fit.factors, tau, nu)
    for i in (0, 4, 7):
        z, _, v = tilt_factor(fit.factors, i, precision, h, tau, nu, 0.3, adaptive=True)
        np.testing.assert_allclose(-z.d2 / (0.3 * (1 + v * z.d2)), tau[i], atol=1e-9)


# --- variational bounds ----------------------------------------------------------------------------------

EPSILON = 1e-3
ROBUST = partial(expected_robust_max, epsilon=EPSILON)
LIKELIHOODS = {
    "robust": (ROBUST, partial(robust_max_log_likelihood, epsilon=EPSILON)),
    "pairwise": (expected_pairwise, pairwise_log_likelihood),
    "softmax": (expected_softmax, softmax_log_likelihood),
}
BINARY = [
    partial(binary_expected_robust_max, epsilon=EPSILON),
    binary_expected_probit,
    binary_expected_logistic,
]


def setting(N=6, M=3):
    """A model and its whitened rows, C = 3."""
    X, y, Z, ks, noise = problem(N, M)
    model = build_model(Z, ks, noise, 1e-6)
    return model, whiten(model, X, y)


def some_q(data, seed=0):
    """A vector of parameters and its (mean, cov)."""
    C, M = data.a.shape[1:]
    x = 0.4 * np.random.default_rng(seed).normal(size=C * M + C * M * (M + 1) // 2)
    mean, lower = unpack(x, C, M)
    return x, mean, lower @ np.swapaxes(lower, 1, 2)


def binary_data(N=8):
    X, y, Z, k = binary_problem(N)
    return whiten(build_model(Z[None], [k], 1.0, 1e-6), X, y)


def assert_gradient(data, expected, atol=1e-7):
    x, h = some_q(data)[0], 1e-5
    values = [[negative_bound(x + s * h * e, data, expected)[0] for s in (1, -1)] for e in np.eye(len(x))]
    numerical = [(up - down) / (2 * h) for up, down in values]
    np.testing.assert_allclose(negative_bound(x, data, expected)[1], numerical, atol=atol)


def test_whitened_projection_is_that_of_u_space():
    model, data = setting()
    X = problem(6, 3)[0]
    upsilon, r = project(model, X)
    _, mean, cov = some_q(data)
    m, v = marginals(data, mean, cov)
    u_mean, u_cov = to_inducing(model, mean, cov)
    np.testing.assert_allclose(data.r, r.T, atol=1e-9)
    np.testing.assert_allclose(m, np.einsum("cnm,cm->nc", upsilon, u_mean), atol=1e-9)
    np.testing.assert_allclose(v, np.einsum("cnm,cmk,cnk->nc", upsilon, u_cov, upsilon), atol=1e-9)
    for a, b in zip(to_whitened(model, u_mean, u_cov), (mean, cov), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)


def test_bounds_agree_with_monte_carlo_and_with_each_other():
    data = setting()[1]
    _, mean, cov = some_q(data)
    exact = robust_max_bound(data, mean, cov, EPSILON)
    sampled = robust_max_bound_mc(data, mean, cov, EPSILON)
    assert abs(exact - sampled.value) < 4 * sampled.error < 0.3
    assert bound(data, mean, cov, ROBUST) == pytest.approx(exact, abs=1e-10)
    assert bound(data, mean, cov, expected_pairwise) == pytest.approx(
        pairwise_bound(data, mean, cov), abs=1e-10
    )
    hermite, sampled = softmax_bound(data, mean, cov), softmax_bound_mc(data, mean, cov)
    assert abs(hermite - sampled.value) < 4 * sampled.error < 0.1
    assert softmax_bound(data, mean, cov, nodes=24) == pytest.approx(hermite, abs=1e-6)


def test_softmax_of_two_classes_is_the_logistic_of_the_difference():
    """r = 0, one rival that is known to be zero: E log softmax = E log σ."""
    one = binary_data()
    two = Whitened(
        np.stack([0 * one.a[:, 0], one.a[:, 0]], axis=1), np.zeros((8, 2)), (one.y > 0).astype(int)
    )
    one = one._replace(r=0 * one.r)
    _, mean, cov = some_q(one)
    m, v = marginals(one, mean, cov)
    both = expected_softmax(two, np.hstack([0 * m, m]), np.hstack([0 * v + 1e-30, v]), nodes=60)
    single = binary_expected_logistic(one, m, v)
    assert both.value == pytest.approx(single.value, abs=1e-8)
    np.testing.assert_allclose(both.dm[:, 1:], single.dm, atol=1e-8)
    np.testing.assert_allclose(both.dv[:, 1:], single.dv, atol=1e-7)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradients_of_the_bounds_are_finite_differences(name):
    assert_gradient(setting(N=3, M=2)[1], LIKELIHOODS[name][0])


@pytest.mark.parametrize("expected", BINARY)
def test_gradients_of_the_binary_bounds_are_finite_differences(expected):
    assert_gradient(binary_data(), expected)
    assert maximise(binary_data(), expected).gradient < 1e-6


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_maxima_are_stationary_and_below_the_true_evidence(name):
    expected, log_likelihood = LIKELIHOODS[name]
    data = setting()[1]
    found = maximise(data, expected)
    assert found.gradient < 1e-6
    prior = log_evidence_is(data, log_likelihood, samples=5_000)
    better = log_evidence_is(data, log_likelihood, found, samples=5_000, seed=1)
    assert max(prior.error, better.error) < 0.1
    assert abs(prior.value - better.value) < 4 * np.hypot(prior.error, better.error)
    assert found.bound < better.value + 3 * better.error
    again = maximise(data, expected, start=some_q(data, seed=1)[0])
    assert again.bound == pytest.approx(found.bound, abs=1e-8)


def test_a_maximum_obeys_the_site_equations():
    """Σ⁻¹ = I − 2Σ_n ∂E/∂v aaᵀ and Σ⁻¹μ = Σ_n (∂E/∂m − 2∂E/∂v m) a.   [METHOD 4, VI]"""
    data = setting()[1]
    found = maximise(data, ROBUST)
    m, v = marginals(data, found.mean, found.cov)
    e = ROBUST(data, m, v)
    for c in range(3):
        a, tau = data.a[:, c], -2 * e.dv[:, c]
        precision = np.eye(3) + (a.T * tau) @ a
        np.testing.assert_allclose(precision @ found.cov[c], np.eye(3), atol=1e-6)
        np.testing.assert_allclose(precision @ found.mean[c], a.T @ (e.dm[:, c] + tau * m[:, c]), atol=1e-6)


def test_pairwise_maximum_is_the_limit_of_power_ep():
    X, y, Z, ks, noise = problem(6, 3)
    model, data = setting()
    found = maximise(data, expected_pairwise)
    u_mean, u_cov = to_inducing(model, found.mean, found.cov)
    coarse, fine = (sparse_ep(X, y, Z, ks, noise, power=p) for p in (0.02, 0.01))
    assert 2 * fine.log_z - coarse.log_z == pytest.approx(found.bound, abs=1e-6)
    np.testing.assert_allclose(2 * fine.mean - coarse.mean, u_mean, atol=1e-5)
    np.testing.assert_allclose(2 * fine.cov - coarse.cov, u_cov, atol=1e-5)


# --- the true evidence -----------------------------------------------------------------------------------


def test_robust_likelihood_of_the_samples_is_the_quadrature():
    data, t = setting()[1], np.random.default_rng(0).normal(size=(3, 6, 3))
    got = robust_max_log_likelihood(data, t, 0.02)
    exact = [
        sum(
            log_robust(y, *point, 0.02, adaptive=False) for y, *point in zip(data.y, row, data.r, strict=True)
        )
        for row in t
    ]
    np.testing.assert_allclose(got, exact, atol=1e-9)


def test_evidence_of_one_point_is_known_and_ep_is_near_for_more():
    X, y, Z, ks, noise = problem(6, 3)
    model, data = setting()
    fit = robust_ep(X, y, Z, ks, noise, epsilon=0.05)
    proposal = Proposal(*to_whitened(model, fit.mean, fit.cov))
    likelihood = partial(robust_max_log_likelihood, epsilon=0.05)
    truth = log_evidence_is(data, likelihood, proposal, samples=5_000)
    assert truth.error < 0.02
    assert fit.log_z == pytest.approx(truth.value, abs=0.1)
    first = Whitened(data.a[:1], data.r[:1], data.y[:1])
    prior_var = np.sum(first.a[0] ** 2, axis=-1) + first.r[0]
    got = log_evidence_is(first, likelihood, samples=5_000)
    assert got.value == pytest.approx(log_robust(y[0], np.zeros(3), prior_var, 0.05), abs=4 * got.error)


def test_gfitc_and_robust_ep_are_near_the_true_probabilities():
    """Both approximate one model, whose p(y*) is the ratio of two evidences; pairwise factors are another."""
    X, y, Z, ks, noise = problem(6)
    rep, g = robust_ep(X, y, Z, ks, noise), gfitc(X, y, Z, ks, noise)
    proposal = Proposal(*to_whitened(rep.model, rep.mean, rep.cov))

    def evidence(X, y):
        likelihood = partial(robust_max_log_likelihood, epsilon=0.0)
        return log_evidence_is(whiten(rep.model, X, y), likelihood, proposal, samples=4_000).value

    log_p = evidence(X, y)
    truth = [np.exp(evidence(np.vstack([X, NEW[:1]]), [*y, k]) - log_p) for k in range(3)]
    np.testing.assert_allclose(gfitc_predict_proba(g, NEW[:1], False)[0], truth, atol=0.02)
    np.testing.assert_allclose(robust_predict_proba(rep, NEW[:1], False)[0], truth, atol=0.02)
