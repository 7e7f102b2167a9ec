"""Laws of the variational bounds and of the true evidence by sampling."""

import math
from functools import partial

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr

from .brute_ep import build_model, gfitc, predict_proba, project, robust_ep, sparse_ep
from .evidence_mc import (
    log_evidence_is,
    pairwise_log_likelihood,
    robust_max_log_likelihood,
    softmax_log_likelihood,
)
from .factors import pair_sides
from .problems import NEW, assert_all_close, binary_problem, problem
from .robust import log_robust
from .variational import (
    Whitened,
    bound,
    expected_logistic,
    expected_probit,
    expected_robust_max,
    expected_softmax,
    marginals,
    maximise,
    negative_bound,
    robust_max_bound_mc,
    softmax_bound_mc,
    to_inducing,
    to_whitened,
    unpack,
    whiten,
)

# --- variational bounds ----------------------------------------------------------------------------------
EPSILON = 1e-3
ROBUST = partial(expected_robust_max, epsilon=EPSILON)
LIKELIHOODS = {
    "robust": (ROBUST, partial(robust_max_log_likelihood, epsilon=EPSILON)),
    "probit": (expected_probit, pairwise_log_likelihood),
    "softmax": (expected_softmax, softmax_log_likelihood),
}


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
    X, y, *rest = binary_problem(N)
    return whiten(build_model(*rest, 1e-6), X, y)


def assert_gradient(data, expected, atol=1e-7):
    x, h = some_q(data)[0], 1e-5
    values = [
        [negative_bound(x + s * h * e, data, expected)[0] for s in (1, -1)]
        for e in np.eye(len(x))
    ]
    numerical = [(up - down) / (2 * h) for up, down in values]
    np.testing.assert_allclose(
        negative_bound(x, data, expected)[1], numerical, atol=atol
    )


def test_whitened_projection_is_that_of_u_space():
    model, data = setting()
    X = problem(6, 3)[0]
    upsilon, r = project(model.K, *model.cross(X))
    _, mean, cov = some_q(data)
    m, v = marginals(data, mean, cov)
    u_mean, u_cov = to_inducing(model, mean, cov)
    np.testing.assert_allclose(data.r, r.T, atol=1e-9)
    np.testing.assert_allclose(m, np.einsum("cnm,cm->nc", upsilon, u_mean), atol=1e-9)
    np.testing.assert_allclose(
        v, np.einsum("cnm,cmk,cnk->nc", upsilon, u_cov, upsilon), atol=1e-9
    )
    assert_all_close(to_whitened(model, u_mean, u_cov), (mean, cov), 1e-8)


def expected_log_ndtr(mean, var, r) -> float:
    """E log Φ(d/√r), d ~ N(mean, var), by adaptive quadrature."""
    sd = math.sqrt(var)

    def integrand(x):
        return (
            math.exp(-0.5 * x * x)
            / math.sqrt(2 * math.pi)
            * log_ndtr((mean + sd * x) / math.sqrt(r))
        )

    kinks = -mean / sd + math.sqrt(r) / sd * np.array([-4, -1, 0, 1, 4])
    points = np.unique([-4.0, -1.0, 1.0, 4.0, *kinks[np.abs(kinks) < 12]])
    return quad(
        integrand, -12, 12, points=points, limit=400, epsabs=1e-13, epsrel=1e-11
    )[0]


@pytest.mark.parametrize("one_latent", [False, True])
def test_panels_are_as_good_as_adaptive_quadrature(one_latent):
    data = binary_data() if one_latent else setting()[1]
    m, v = marginals(data, *some_q(data)[1:])
    pairs = [
        expected_log_ndtr(signs @ m[n, c], v[n, c].sum(), data.r[n, c].sum())
        for n, c, signs in zip(*pair_sides(data.y, m.shape[1]), strict=True)
    ]
    assert expected_probit(data, m, v).value == pytest.approx(sum(pairs), abs=1e-10)
    exact = expected_robust_max(data, m, v, EPSILON, adaptive=True).value
    assert ROBUST(data, m, v).value == pytest.approx(exact, abs=1e-10)


def test_bounds_agree_with_monte_carlo():
    data = setting()[1]
    _, mean, cov = some_q(data)
    sampled = robust_max_bound_mc(data, mean, cov, EPSILON)
    assert abs(bound(data, mean, cov, ROBUST) - sampled.value) < 4 * sampled.error < 0.3
    fine, coarse = (
        bound(data, mean, cov, partial(expected_softmax, nodes=nodes))
        for nodes in (40, 24)
    )
    sampled = softmax_bound_mc(data, mean, cov)
    assert abs(fine - sampled.value) < 4 * sampled.error < 0.1
    assert coarse == pytest.approx(fine, abs=1e-6)


def test_softmax_of_two_classes_is_the_logistic_of_the_difference():
    """r = 0, one rival that is known to be zero: E log softmax = E log σ."""
    one = binary_data()
    two = Whitened(
        np.stack([0 * one.a[:, 0], one.a[:, 0]], axis=1),
        np.zeros((8, 2)),
        (one.y > 0).astype(int),
    )
    one = one._replace(r=0 * one.r)
    _, mean, cov = some_q(one)
    m, v = marginals(one, mean, cov)
    both = expected_softmax(
        two, np.hstack([0 * m, m]), np.hstack([0 * v + 1e-30, v]), nodes=60
    )
    single = expected_logistic(one, m, v)
    assert both.value == pytest.approx(single.value, abs=1e-8)
    np.testing.assert_allclose(both.dm[:, 1:], single.dm, atol=1e-8)
    np.testing.assert_allclose(both.dv[:, 1:], single.dv, atol=1e-7)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradients_of_the_bounds_are_finite_differences(name):
    expected = LIKELIHOODS[name][0]
    assert_gradient(setting(N=3, M=2)[1], expected)
    assert_gradient(binary_data(), expected)
    assert maximise(binary_data(), expected).gradient < 1e-6


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_maxima_are_stationary_and_below_the_true_evidence(name):
    expected, log_likelihood = LIKELIHOODS[name]
    data = setting()[1]
    found = maximise(data, expected)
    assert found.gradient < 1e-6
    prior = log_evidence_is(data, log_likelihood, samples=5_000)
    better = log_evidence_is(
        data, log_likelihood, (found.mean, found.cov), samples=5_000, seed=1
    )
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
        np.testing.assert_allclose(
            precision @ found.mean[c], a.T @ (e.dm[:, c] + tau * m[:, c]), atol=1e-6
        )


def test_pairwise_maximum_is_the_limit_of_power_ep():
    X, y, Z, ks, noise = problem(6, 3)
    model, data = setting()
    found = maximise(data, expected_probit)
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
            log_robust(y, *point, 0.02, adaptive=False)
            for y, *point in zip(data.y, row, data.r, strict=True)
        )
        for row in t
    ]
    np.testing.assert_allclose(got, exact, atol=1e-9)


def test_evidence_of_one_point_is_known_and_ep_is_near_for_more():
    X, y, Z, ks, noise = problem(6, 3)
    model, data = setting()
    fit = robust_ep(X, y, Z, ks, noise, epsilon=0.05)
    proposal = to_whitened(model, fit.mean, fit.cov)
    likelihood = partial(robust_max_log_likelihood, epsilon=0.05)
    truth = log_evidence_is(data, likelihood, proposal, samples=5_000)
    assert truth.error < 0.02
    assert fit.log_z == pytest.approx(truth.value, abs=0.1)
    first = Whitened(data.a[:1], data.r[:1], data.y[:1])
    prior_var = np.sum(first.a[0] ** 2, axis=-1) + first.r[0]
    got = log_evidence_is(first, likelihood, samples=5_000)
    assert got.value == pytest.approx(
        log_robust(y[0], np.zeros(3), prior_var, 0.05), abs=4 * got.error
    )


def test_gfitc_and_robust_ep_are_near_the_true_probabilities():
    """Both approximate one model, whose p(y*) is the ratio of two evidences; pairwise
    factors are another.
    """
    X, y, Z, ks, noise = problem(6)
    rep, g = robust_ep(X, y, Z, ks, noise), gfitc(X, y, Z, ks, noise)
    proposal = to_whitened(rep.model, rep.mean, rep.cov)

    def evidence(X, y):
        likelihood = partial(robust_max_log_likelihood, epsilon=0.0)
        return log_evidence_is(
            whiten(rep.model, X, y), likelihood, proposal, samples=4_000
        ).value

    log_p = evidence(X, y)
    truth = [
        np.exp(evidence(np.vstack([X, NEW[:1]]), [*y, k]) - log_p) for k in range(3)
    ]
    np.testing.assert_allclose(predict_proba(g, NEW[:1])[0], truth, atol=0.02)
    np.testing.assert_allclose(predict_proba(rep, NEW[:1])[0], truth, atol=0.02)
