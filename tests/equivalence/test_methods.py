"""Robust EP, GFITC, power EP and the variational bounds against explicit matrices,
adaptive quadrature and sampling.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from cavity.engine.inference import Averaged, empty_sites
from cavity.engine.inference.batch_sites import SiteTotals
from cavity.engine.inference.posterior import marginals, posterior
from cavity.kernels import RBF
from reference import brute_ep, variational
from reference import kernels as written_out
from reference.evidence_mc import (
    log_evidence_is,
    robust_max_log_likelihood,
    softmax_log_likelihood,
)
from reference.problems import hyper_parameters
from support import (
    arbitrary,
    classifier,
    converge,
    latent_columns,
    latents,
    machine,
    slow,
    toy,
    without_warnings,
)

NEW = np.random.default_rng(99).normal(size=(5, 2))


def setting(C, N=10, M=3):
    """Rows, inducing points and hyper-parameters that differ from class to class; one
    latent function for two classes.
    """
    return *toy(N, C), *hyper_parameters(C, M)


def fit(X, y, Z, lengthscale, variance, noise, method, **options):
    """Hyper-parameters as given, swept to rest."""
    model = classifier(
        method,
        kernel=RBF(lengthscale, variance),
        inducing=Z,
        noise=noise,
        learn=(),
        device="cpu",
        **{"tol": 1e-13, "max_epochs": 5000, **options},
    )
    return model.fit(X, y)


def engine(X, y, Z, lengthscale, variance, noise, method, **options):
    """The same without a fit."""
    kernel = RBF(lengthscale, variance)
    return machine(
        X,
        y,
        Z,
        kernel=kernel,
        noise=noise,
        learn=(),
        method=method,
        damping=0.5,
        **options,
    )


def written(X, y, Z, lengthscale, variance, noise):
    """Arguments of the reference: labels of ±1 if there is one latent function."""
    ks = written_out.one_per_class(written_out.rbf, lengthscale, variance)
    return X, 2 * y - 1 if len(Z) == 1 else y, Z, ks, noise


def assert_same(model, result):
    """Evidence to 1e-6 relative, probabilities to 1e-5, latent means and variances to
    1e-6.
    """
    assert model.log_marginal_likelihood_ == pytest.approx(result.log_z, rel=1e-6)
    proba = brute_ep.predict_proba(result, NEW)
    np.testing.assert_allclose(model.predict_proba(NEW), proba, rtol=0, atol=1e-5)
    for got, exact in zip(
        latent_columns(model, NEW), brute_ep.latent(result, NEW), strict=True
    ):
        np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-6)


# --- robust EP -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("epsilon", [0, 1e-3, 0.1])
@pytest.mark.parametrize("sites", ["own", "tied"])
@pytest.mark.parametrize("C", [2, 3])
def test_robust_ep_is_the_brute_force(C, sites, epsilon):
    problem = setting(C, N=6)
    result = brute_ep.robust_ep(
        *written(*problem), epsilon=epsilon, tied=sites == "tied"
    )
    model = fit(*problem, "rep", sites=sites, epsilon=epsilon)
    assert_same(model, result)
    assert model.epsilon_ == epsilon


@pytest.mark.parametrize("C", [2, slow(3)])
def test_robust_ep_keeps_sites_of_negative_precision(C):
    """Classes side by side, but for one label amid another class: the model says that
    it is wrong.
    """
    L, each = 1 if C == 2 else C, 4 if C == 2 else 3
    x, y = np.linspace(-2, 2, each * C), np.arange(each * C) // each
    y[1] = C - 1
    Z = np.column_stack([np.linspace(-2, 2, 4), np.zeros(4)]) * np.ones((L, 1, 1))
    lengthscale = np.column_stack([1.2 + 0.1 * np.arange(L), np.ones(L)])
    problem = (
        np.column_stack([x, 0 * x]),
        y,
        Z,
        lengthscale,
        np.full(L, 5.0),
        np.full(L, 0.1),
    )
    result = brute_ep.robust_ep(*written(*problem), epsilon=0.02)
    assert result.tau.min() < 0 and result.residual < 1e-8
    assert_same(fit(*problem, "rep", epsilon=0.02), result)


@pytest.mark.parametrize("sites", ["own", "tied"])
def test_robust_ep_of_two_classes_without_random_labels_is_ep(sites):
    problem = setting(2)
    plain = fit(*problem, {"own": "ep", "tied": "sep"}[sites])
    robust = fit(*problem, "rep", sites=sites, epsilon=0)
    assert robust.log_marginal_likelihood_ == pytest.approx(
        plain.log_marginal_likelihood_, rel=1e-10
    )
    np.testing.assert_allclose(
        robust.predict_proba(NEW), plain.predict_proba(NEW), rtol=0, atol=1e-9
    )


# --- GFITC -----------------------------------------------------------------------------------------------
def f_marginals(run, state):
    """Mean and variance of f at the training rows, their own residuals included: each
    (N, C).
    """
    with torch.no_grad():
        projection = run.engine.prior.project(run.rows.X, state.jitter)
        t = marginals(posterior(state.sums), projection.a).t
    totals = []
    for site in state.sites[:2]:
        total = torch.zeros_like(t.mean.mT)
        totals.append(
            total.scatter_add(1, run.engine.factor.sites(run.rows.y), site).mT
        )
    return [
        x.mT
        for x in run.engine.placement.site_marginals(
            t, projection.r, SiteTotals(*totals)
        )[0]
    ]


@pytest.mark.parametrize("C", [2, 3, 4])
def test_gfitc_is_ep_on_the_training_values_under_the_fitc_prior(C):
    problem = setting(C)
    result = brute_ep.gfitc(*written(*problem))
    assert_same(fit(*problem, "gfitc"), result)
    run = engine(*problem, "gfitc")
    rest = converge(run)
    assert run.evidence(rest) == pytest.approx(result.log_z, rel=1e-6)
    for got, exact in zip(
        f_marginals(run, rest), brute_ep.gfitc_marginals(result), strict=True
    ):
        np.testing.assert_allclose(got, exact, rtol=1e-6, atol=1e-6)


def test_gfitc_of_two_classes_is_ep():
    """One latent function: it does not matter on which side of the residual the site
    sits.
    """
    problem = setting(2)
    ep, other = fit(*problem, "ep"), fit(*problem, "gfitc")
    assert other.log_marginal_likelihood_ == pytest.approx(
        ep.log_marginal_likelihood_, rel=1e-10
    )
    for a, b in zip(latent_columns(other, NEW), latent_columns(ep, NEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


# --- power EP --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("p", [0.5, 0.1])
@pytest.mark.parametrize("C", [2, 3])
def test_power_ep_is_the_brute_force(C, p):
    problem = setting(C, N=8)
    result = brute_ep.power_ep(*written(*problem), power=p)
    assert_same(fit(*problem, "pep", power=p), result)


@pytest.mark.parametrize("C", [2, 4])
def test_power_one_is_ep_to_the_bit(C):
    problem = setting(C)
    ep, one = fit(*problem, "ep"), fit(*problem, "pep", power=1)
    assert one.log_marginal_likelihood_ == ep.log_marginal_likelihood_
    np.testing.assert_array_equal(one.predict_log_proba(NEW), ep.predict_log_proba(NEW))


def averaged(run):
    """The same factors, maximising Σ E log φ − KL instead: nothing is removed."""
    total = run.engine.total
    state = run.state._replace(
        sites=empty_sites(0, 1, torch.float64, total.device),
        damping=torch.tensor(0.2, dtype=torch.float64),
    )
    return run._replace(
        engine=replace(run.engine, removal=0.0, sites=Averaged(total)), state=state
    )


@pytest.mark.parametrize("C", [2, 3])
def test_a_vanishing_power_is_variational_inference_with_the_same_factors(C):
    """At 0.01 within 1e-2; halving the power halves the distance."""
    problem = setting(C)
    bound = averaged(engine(*problem, "pep"))
    best = converge(bound, tol=1e-10)
    limit, f = bound.evidence(best), latents(bound, best, NEW)
    gaps = []
    for p in (0.01, 0.005):
        run = engine(*problem, "pep", power=p)
        rest = converge(run, tol=1e-10)
        gaps.append(run.evidence(rest) - limit)
        g = latents(run, rest, NEW)
        torch.testing.assert_close(g.mean, f.mean, rtol=0, atol=1e-2)
        torch.testing.assert_close(g.var, f.var, rtol=0, atol=1e-2)
    assert 0 < gaps[0] < 1e-2
    assert gaps[1] == pytest.approx(gaps[0] / 2, rel=0.02)


@pytest.mark.parametrize("C", [2, 3])
def test_the_limit_of_power_ep_is_the_oracle_s_maximum(C):
    problem = setting(C, N=7)
    bound = averaged(engine(*problem, "pep"))
    found = variational.maximise(whitened(problem)[1], variational.expected_probit)
    assert bound.evidence(converge(bound, tol=1e-9)) == pytest.approx(
        found.bound, rel=1e-7
    )


# --- variational inference -------------------------------------------------------------------------------
EPSILON = 1e-3


def whitened(problem):
    """The model and its rows as the oracle has them."""
    X, y, *rest = written(*problem)
    model = brute_ep.build_model(*rest, 1e-6)
    return model, variational.whiten(model, X, y)


def gaussian(model):
    """q(w): mean (C, M) and covariance (C, M, M)."""
    lower = model._fitted.lower
    return model._fitted.mean, np.linalg.inv(lower @ lower.swapaxes(1, 2))


LIKELIHOODS = {
    "robust-max": partial(variational.expected_robust_max, epsilon=EPSILON),
    "softmax": variational.expected_softmax,
}


# options, and how far the moments of q may be from the optimum, where the bound is flat
ENDS = {
    "natural": ({"tol": 1e-10}, 1e-5),
    "gradient": ({"tol": 1e-10, "max_epochs": 400}, 1e-3),
}


@pytest.mark.parametrize("q_update", ENDS)
@pytest.mark.parametrize("likelihood", ["robust-max", "softmax"])
@pytest.mark.parametrize("C", [2, 3])
def test_the_bound_reached_is_the_oracle_s_maximum(C, likelihood, q_update):
    problem = setting(C, N=6)
    data = whitened(problem)[1]
    expected = LIKELIHOODS[likelihood]
    found = variational.maximise(data, expected)
    end, atol = ENDS[q_update]
    model = fit(*problem, "vi", likelihood=likelihood, q_update=q_update, **end)
    assert model.elbo_ == model.log_marginal_likelihood_
    assert model.elbo_ == pytest.approx(found.bound, abs=1e-6)
    assert model.elbo_ == pytest.approx(
        variational.bound(data, *gaussian(model), expected), abs=1e-6
    )
    for a, b in zip(gaussian(model), (found.mean, found.cov), strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


@pytest.mark.parametrize(
    ("C", "likelihood"), [(2, "robust-max"), (2, "softmax"), slow(3, "robust-max")]
)
def test_natural_and_gradient_steps_meet_at_one_bound(C, likelihood):
    problem = setting(C, N=7)
    one, other = (
        fit(*problem, "vi", likelihood=likelihood, q_update=how, **end)
        for how, (end, _) in ENDS.items()
    )
    assert other.elbo_ == pytest.approx(one.elbo_, abs=1e-4)
    np.testing.assert_allclose(
        other.predict_proba(NEW), one.predict_proba(NEW), rtol=0, atol=1e-3
    )


def test_a_free_q_adopts_what_sites_found():
    X, y = toy(40, 3)
    run = machine(X, y, X[:6], method="vi", q_update="gradient", optimizer="lbfgs")
    found = arbitrary(run.state)
    adopted = run.engine.sites.adopt(found)
    assert adopted.theta.shape == run.state.theta.shape
    torch.testing.assert_close(tuple(adopted.sums), tuple(found.sums))


@pytest.mark.parametrize("batch_size", [None, 20])
def test_gradient_steps_of_the_robust_max_bound_start_from_moment_matching(
    monkeypatch, batch_size
):
    """Near the prior the bound has poor optima."""
    X, y = toy(60, 3)
    given = {"inducing": X[:8], "batch_size": batch_size, "max_epochs": 3}
    given["likelihood"] = "robust-max"

    def first_bound():
        model = classifier("vi", q_update="gradient", random_state=0, **given)
        with without_warnings():
            return model.fit(X, y).history_[0]["objective"]

    warm = first_bound()
    monkeypatch.setattr("cavity.engine.assembly.make_warm_up", lambda engine: None)
    assert warm > first_bound() + 10


@pytest.mark.parametrize("likelihood", ["robust-max", "softmax"])
def test_the_bound_is_below_the_evidence(likelihood):
    """log p(y) by importance sampling."""
    problem = setting(3, N=6)
    data = whitened(problem)[1]
    model = fit(*problem, "vi", likelihood=likelihood, tol=1e-8)
    log_p = {
        "robust-max": partial(robust_max_log_likelihood, epsilon=EPSILON),
        "softmax": softmax_log_likelihood,
    }[likelihood]
    truth = log_evidence_is(data, log_p, gaussian(model), samples=10_000)
    assert truth.error < 0.05
    assert model.elbo_ <= truth.value + 4 * truth.error
