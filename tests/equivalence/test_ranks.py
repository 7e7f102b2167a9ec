"""Simulation-based calibration: f from the prior, labels from the likelihood, then the
rank of f in the posterior q.

If inference is exact, ranks are uniform, and z = (f − mean)/sd has E z² = 1 whatever
the shape of the posterior (Talts et al.). Every method sees labels of its own
likelihood, the true hyper-parameters, and one inducing point per row: what is left is
the error of inference. f is the difference of the first two latent functions at the
first row (the latent function, if there is one).
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import kstest, norm

from cavity import GPRegressor, methods
from cavity.fitting.options import nest
from cavity.kernels import RBF
from reference.kernels import rbf
from support import classifier, latent_columns

pytestmark = pytest.mark.slow
N, NOISE, VARIANCE = 12, 0.5, 2.0


class Ranks(NamedTuple):
    """z of each simulation, and its rank as a share."""

    z: np.ndarray
    u: np.ndarray

    @property
    def p_value(self) -> float:
        """Of the Kolmogorov–Smirnov test for uniform ranks."""
        return float(kstest(self.u, "uniform").pvalue)

    @property
    def excess(self) -> float:
        """(mean z² − 1) in standard errors: above 0, q is too narrow."""
        square = self.z**2
        return float((square.mean() - 1) / (square.std(ddof=1) / np.sqrt(len(square))))


def draw_labels(f, likelihood, rng):
    """f (N, C), or (N, 1) for two classes."""
    C = max(2, f.shape[1])
    noise = {
        "gumbel": rng.gumbel(size=f.shape),
        "normal": np.sqrt(NOISE) * rng.normal(size=f.shape),
    }
    if f.shape[1] == 1:
        noise["gumbel"] = rng.logistic(size=f.shape)
        return ((f + noise[likelihood])[:, 0] > 0).astype(int), C
    return (f + noise[likelihood]).argmax(1), C


def simulate(method, latents, simulations, likelihood="normal", seed=0):
    """Draw, fit, compare, `simulations` times."""
    rng, z = np.random.default_rng(seed), []
    options = (
        {}
        if method.name == "laplace"
        else {"noise": NOISE if likelihood == "normal" else 0.0}
    )
    while len(z) < simulations:
        X = rng.normal(size=(N, 2))
        K = rbf(X, X, 1.0, VARIANCE) + 1e-9 * np.eye(N)
        f = np.linalg.cholesky(K) @ rng.normal(size=(N, latents))
        y, C = draw_labels(f, likelihood, rng)
        if len(set(y)) < C:
            continue  # a choice by the labels alone leaves exact ranks uniform
        gp = classifier(
            method,
            kernel=RBF(1.0, VARIANCE),
            inducing=X,
            learn=(),
            device="cpu",
            **options,
        ).fit(X, y)
        mean, var = (t[0] for t in latent_columns(gp, X[:1]))
        var = var - options.get("noise", 0.0)
        sign = np.array([1.0, -1.0])[:latents]
        z.append(sign @ (f[0, :2] - mean[:2]) / np.sqrt(var[:2].sum()))
    z = np.array(z)
    return Ranks(z, norm.cdf(z))


def simulate_regression(simulations, seed=0):
    """The same for the exact Gaussian process: f at a new row."""
    rng, z = np.random.default_rng(seed), []
    for _ in range(simulations):
        X = rng.normal(size=(N + 1, 2))
        f = np.linalg.cholesky(
            rbf(X, X, 1.0, VARIANCE) + 1e-9 * np.eye(N + 1)
        ) @ rng.normal(size=N + 1)
        y = f[:N] + np.sqrt(NOISE) * rng.normal(size=N)
        options = {
            "kernel": RBF(1.0, VARIANCE),
            "noise": NOISE,
            "learn": (),
            "normalize_y": False,
        }
        gp = GPRegressor("exact", **nest(device="cpu", **options)).fit(X[:N], y)
        mean, sd = gp.predict(X[N:], return_std=True, noise=False)
        z.append((f[N] - mean[0]) / sd[0])
    return Ranks(np.array(z), norm.cdf(z))


# method, noise of its likelihood, simulations for one latent function and for three
PASS = {
    "EP": (methods.EP(), "normal", {1: 150, 3: 60}),
    "SEP": (methods.SEP(), "normal", {1: 150, 3: 60}),
    "PowerEP": (methods.PowerEP(), "normal", {1: 100, 3: 60}),
    "REP": (methods.REP(epsilon=0), "normal", {1: 150, 3: 60}),
    "tied REP": (methods.REP(epsilon=0, sites="tied"), "normal", {1: 100, 3: 60}),
    "GFITC": (methods.GFITC(), "normal", {1: 150, 3: 60}),
    "Laplace": (methods.Laplace(), "gumbel", {1: 150, 3: 60}),
    "VI, softmax": (methods.VI(likelihood="softmax"), "gumbel", {1: 60, 3: 60}),
}


def test_exact_regression_has_uniform_ranks():
    ranks = simulate_regression(400)
    assert ranks.p_value > 0.01 and abs(ranks.excess) < 3


@pytest.mark.parametrize("name", PASS)
@pytest.mark.parametrize("latents", [1, 3])
def test_ranks_are_uniform_as_far_as_so_few_simulations_can_tell(latents, name):
    """At level 0.01.

    These methods are approximations: enough simulations would tell them from exact
    inference.
    """
    method, likelihood, simulations = PASS[name]
    ranks = simulate(method, latents, simulations[latents], likelihood)
    assert ranks.p_value > 0.01 and abs(ranks.excess) < 3


def test_robust_max_vi_of_two_classes_is_over_confident():
    """q is too narrow by design: true values lie in its tails, z² is too large, and
    ranks are not uniform.

    With three latent functions 40 simulations of this f do not show it (mean z² 1.2).
    """
    ranks = simulate(methods.VI(likelihood="robust-max"), 1, 50)
    assert ranks.excess > 3 and ranks.p_value < 0.01
