"""Monte Carlo as the judge: Gibbs samples of the posterior."""

import numpy as np
import pytest
from scipy.stats import truncnorm

from cavity.kernels import RBF
from reference.brute_ep import probabilities as largest
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
# the closed form of EP and SEP counts the noise of the own class once for each rival:
# their latent values are too sure by it
METHODS = [
    ("ep", {}, 0.15, 0.05),
    ("sep", {}, 0.15, 0.05),
    ("rep", {"epsilon": 0}, 0.1, 0.03),
    ("gfitc", {}, 0.1, 0.03),
]


def fixed(method="ep", **options):
    settings = {
        "kernel": RBF(ELL, VAR),
        "learn": (),
        "jitter": 1e-10,
        "inducing": None,
        "random_state": 0,
    }
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
    """The judge of benchmarks/accuracy.py: to five of its own standard errors, and
    those of the long chain.
    """
    X, y, K, g = samples
    batch = gibbs_chains(
        np.stack([K[0]] * 2), np.stack([y, 2 - y]), NOISE, 3, 40, 60, 40, 5
    )
    assert (batch.argmax(3) == np.stack([y, 2 - y])[..., None]).all()
    cross, kss = rbf(NEW, X, ELL, VAR), np.full(6, VAR)
    p = chain_probabilities(
        batch, np.stack([K[0]] * 2), NOISE, np.stack([cross] * 2), kss
    )
    error = p.std(1, ddof=1) / np.sqrt(40)
    long = probabilities(g, K, NOISE, [cross] * 3, [kss] * 3)
    assert error.max() < 0.02
    np.testing.assert_array_less(np.abs(p[0].mean(0) - long), 5 * error[0] + 0.04)
    np.testing.assert_array_less(
        np.abs(p[0].mean(0) - p[1].mean(0)[:, ::-1]), 5 * (error[0] + error[1])
    )


def test_the_trapezoid_rule_gives_the_probability_of_the_largest():
    mean = np.random.default_rng(0).normal(size=(8, 5), scale=2.0)
    p = largest_of_equal_variances(mean, np.full(8, 0.7))
    np.testing.assert_allclose(p, largest(mean, np.full((8, 5), 0.49)), atol=1e-9)


@pytest.mark.parametrize(
    ("method", "options", "latent", "probable"), METHODS, ids=[m[0] for m in METHODS]
)
def test_approximations_are_near_the_sampled_posterior(
    samples, method, options, latent, probable
):
    """Latent means to a share of the prior's deviation, and probabilities."""
    X, y, K, g = samples
    gp = fixed(method, **options).fit(X, y)
    S = K[0] @ np.linalg.inv(K[0] + NOISE * np.eye(9))  # E f given g
    sampled = np.stack([S @ g[:, c].mean(0) for c in range(3)], axis=1)
    np.testing.assert_allclose(
        gp.predict_latent(X)[0], sampled, rtol=0, atol=latent * np.sqrt(VAR)
    )
    Kstar, kss = [rbf(NEW, X, ELL, VAR)] * 3, [np.full(6, VAR)] * 3
    expected = probabilities(g, K, NOISE, Kstar, kss)
    np.testing.assert_allclose(gp.predict_proba(NEW), expected, rtol=0, atol=probable)
