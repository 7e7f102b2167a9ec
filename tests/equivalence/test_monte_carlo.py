"""Monte Carlo as the judge: Gibbs samples of the posterior, and importance samples of the evidence."""

import sys

import numpy as np
import pytest
from scipy.stats import truncnorm

from cavity import BadInput, BadOption
from cavity.explain.evidence_sampling import Diagnosis
from cavity.kernels import RBF
from reference.brute_ep import probabilities as largest
from reference.exact import binary_log_evidence_orthant
from reference.gibbs import (
    chain_probabilities,
    gibbs,
    gibbs_chains,
    largest_of_equal_variances,
    probabilities,
    truncated,
)
from reference.kernels import rbf
from support import classifier, toy

NOISE, ELL, VAR = 0.4, 1.2, 1.5
NEW = np.random.default_rng(9).normal(size=(6, 2))
# the closed form of EP and SEP counts the noise of the own class once for each rival: their latent values are too sure by it
METHODS = [
    ("ep", {}, 0.15, 0.05),
    ("sep", {}, 0.15, 0.05),
    ("rep", {"epsilon": 0}, 0.1, 0.03),
    ("gfitc", {}, 0.1, 0.03),
]


def fixed(method="ep", **options):
    settings = {"kernel": RBF(ELL, VAR), "learn": (), "jitter": 1e-10, "inducing": None, "random_state": 0}
    return classifier(method, **settings | {"noise": NOISE} | options)


# --- Gibbs -------------------------------------------------------------------------------------------------
def test_a_truncated_normal_has_its_moments():
    u = (np.arange(4000) + 0.5) / 4000
    for low, high in ((0.3, np.inf), (-np.inf, -1.0), (2.5, np.inf)):
        draws = np.array([truncated(0.2, 1.3, low, high, v) for v in u])
        exact = truncnorm((low - 0.2) / 1.3, (high - 0.2) / 1.3, 0.2, 1.3)
        assert draws.min() >= low and draws.max() <= high
        assert draws.mean() == pytest.approx(exact.mean(), abs=2e-3)
        assert draws.std() == pytest.approx(exact.std(), abs=1e-2)


@pytest.fixture(scope="module")
def samples():
    X, y = toy(9, 3)
    K = [rbf(X, X, ELL, VAR)] * 3
    return X, y, K, gibbs(K, y, NOISE, 2500)


def test_many_chains_of_two_problems_at_once_agree_with_one_long_chain(samples):
    """The judge of benchmarks/accuracy.py: to five of its own standard errors, and those of the long chain."""
    X, y, K, g = samples
    batch = gibbs_chains(np.stack([K[0]] * 2), np.stack([y, 2 - y]), NOISE, 3, 40, 60, 40, 5)
    assert (batch.argmax(3) == np.stack([y, 2 - y])[..., None]).all()
    cross, kss = rbf(NEW, X, ELL, VAR), np.full(6, VAR)
    p = chain_probabilities(batch, np.stack([K[0]] * 2), NOISE, np.stack([cross] * 2), kss)
    error = p.std(1, ddof=1) / np.sqrt(40)
    long = probabilities(g, K, NOISE, [cross] * 3, [kss] * 3)
    assert error.max() < 0.02
    np.testing.assert_array_less(np.abs(p[0].mean(0) - long), 5 * error[0] + 0.04)
    np.testing.assert_array_less(np.abs(p[0].mean(0) - p[1].mean(0)[:, ::-1]), 5 * (error[0] + error[1]))


def test_the_trapezoid_rule_gives_the_probability_of_the_largest():
    mean = np.random.default_rng(0).normal(size=(8, 5), scale=2.0)
    p = largest_of_equal_variances(mean, np.full(8, 0.7))
    np.testing.assert_allclose(p, largest(mean, np.full((8, 5), 0.49)), atol=1e-9)


@pytest.mark.parametrize(("method", "options", "latent", "probable"), METHODS, ids=[m[0] for m in METHODS])
def test_approximations_are_near_the_sampled_posterior(samples, method, options, latent, probable):
    """Latent means to a share of the prior's deviation, and probabilities."""
    X, y, K, g = samples
    gp = fixed(method, **options).fit(X, y)
    S = K[0] @ np.linalg.inv(K[0] + NOISE * np.eye(9))  # E f given g
    sampled = np.stack([S @ g[:, c].mean(0) for c in range(3)], axis=1)
    np.testing.assert_allclose(gp.predict_latent(X)[0], sampled, rtol=0, atol=latent * np.sqrt(VAR))
    Kstar, kss = [rbf(NEW, X, ELL, VAR)] * 3, [np.full(6, VAR)] * 3
    expected = probabilities(g, K, NOISE, Kstar, kss)
    np.testing.assert_allclose(gp.predict_proba(NEW), expected, rtol=0, atol=probable)


# --- importance sampling -----------------------------------------------------------------------------------
def test_the_sampled_evidence_is_the_exact_one():
    X, y = toy(8, 2)
    gp = fixed(noise=1.0).fit(X, y)
    found = gp.diagnose(X, y, n_samples=1500)
    exact = binary_log_evidence_orthant(rbf(X, X, ELL, VAR), 2 * y - 1)
    assert found.standard_error < 0.02
    assert abs(found.log_marginal_likelihood - exact) < 4 * found.standard_error + 1e-3
    assert found.approximation == gp.log_marginal_likelihood_
    assert found.pareto_k < 1 and 1200 < found.effective_sample_size < 1500
    assert f"Pareto k {found.pareto_k:.2f}" in str(found)


@pytest.mark.parametrize("C", [2, 3])
def test_methods_for_one_model_agree_on_its_evidence(C):
    """Whatever q proposes: EP and exact EP for the argmax; Laplace and VI for the softmax."""
    X, y = toy(9, C)
    for group in (
        [("ep", {}), ("rep", {"epsilon": 0})],
        [("laplace", {}), ("vi", {"likelihood": "softmax"})],
    ):
        noise = {} if group[0][0] == "ep" else {"noise": 0.0}
        found = [fixed(m, tol=1e-4, **noise, **o).fit(X, y).diagnose(X, y, n_samples=80) for m, o in group]
        values, errors = [d.log_marginal_likelihood for d in found], [d.standard_error for d in found]
        assert max(values) - min(values) < 4 * sum(errors)


def test_a_poor_q_is_seen():
    X, y = toy(30, 2)
    gp = fixed(kernel=RBF(ELL, 30.0)).fit(X, y)
    good = gp.diagnose(X, y, n_samples=500)
    gp._fitted = gp._fitted._replace(lower=3 * gp._fitted.lower)  # a third of the width in every direction
    poor = gp.diagnose(X, y, n_samples=500)
    assert good.pareto_k < 0.7 < poor.pareto_k and poor.effective_sample_size < good.effective_sample_size
    assert good.level == "good" and poor.level == "poor"
    assert good.dimension == 30 and poor.excess > 10 * good.excess


@pytest.mark.parametrize(
    ("ess", "k", "d", "excess", "level", "advice"),
    [
        (1972, 0.99, 30, 0.01, "good", "can be trusted"),  # nearly equal weights: their tail does not matter
        (600, 0.6, 30, 0.5, "good", "can be trusted"),
        (300, 0.8, 30, 1.0, "usable", "raise n_samples="),
        (40, 0.65, 30, 1.5, "usable", "raise n_samples="),
        (43, 0.72, 300, 3.0, "unclear", "n_samples=20000"),
        (2, 1.58, 300, 12.0, "unclear", "held out"),
        (2, 1.58, 30, 12.0, "poor", "REP(epsilon=0)"),
    ],
)
def test_the_verdict_weighs_tail_effective_size_and_dimension(ess, k, d, excess, level, advice):
    found = Diagnosis(-20.0, 0.1, -20.0, ess, k, 2000, d, excess)
    assert found.level == level
    assert found.verdict.startswith(level) and advice in found.verdict


def test_what_cannot_be_diagnosed_is_said(monkeypatch):
    X, y = toy(10, 2)
    gp = fixed().fit(X, y)
    with pytest.raises(BadInput, match="label 7"):
        gp.diagnose(X, np.where(np.arange(10) == 0, 7, y))
    with pytest.raises(BadOption, match="n_samples"):
        gp.diagnose(X, y, n_samples=5)
    monkeypatch.setitem(sys.modules, "arviz_stats.base", None)
    with pytest.raises(BadOption, match=r"\[diagnose\]"):
        gp.diagnose(X, y)
