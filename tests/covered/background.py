"""Rows about one latent value: what Gaussian approximations do to its posterior, and
Monte Carlo, thesis 3.2 and 3.3.

p(f | y = 1) ∝ N(f; 0, 1) Φ(f), with mean 1/√π
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, log_ndtr
from scipy.stats import norm, truncnorm

from cavity import engine
from cavity.kernels import RBF
from cavity.likelihoods import BinaryProbit, Logistic, LogisticPoint
from reference import gibbs, sampling

from .rows import Row, gap

MEAN = 1 / np.sqrt(np.pi)
VARIANCE = 1.3  # of a latent value a priori
WINS, LOSSES = 6, 2


class Posterior(NamedTuple):
    """The density, a proposal, and the samplers of tests/reference."""

    def names(self) -> dict[str, Any]:
        return {
            "log_p": lambda f: log_ndtr(f) - 0.5 * f**2 - 0.5 * np.log(2 * np.pi),
            "draw": draw_normal,
            "sampling": sampling,
            "gibbs": gibbs,
        }


def draw_normal(rng, n):
    """Draws of the prior, and their log densities."""
    x = rng.normal(size=n)
    return x, norm.logpdf(x)


class OneValue(NamedTuple):
    """Models of one latent value f ~ N(0, 1.3) at x = 0, seen through labels."""

    def names(self) -> dict[str, Any]:
        at = np.zeros((1, 1))
        common = {"kernel": RBF(1.0, VARIANCE), "inducing": at, "jitter": 1e-14}
        labels = np.repeat([1, 0], [WINS, LOSSES])
        return {
            "x": at,
            "probit": engine.GP(likelihood=BinaryProbit().bind(2), noise=1.0, **common),
            "logistic": engine.GP(likelihood=Logistic().bind(2), noise=0.0, **common),
            "beta": engine.GP(likelihood=LogisticPoint().bind(2), noise=0.0, **common),
            "labels": labels,
            "at_labels": np.zeros((len(labels), 1)),
        }


def integrate(f):
    """The integral of f under the prior."""
    sd = np.sqrt(VARIANCE)
    return quad(lambda x: norm.pdf(x, 0, sd) * f(x), -9 * sd, 9 * sd, epsabs=1e-12)[0]


def tilted(post):
    """Errors of mean and variance against the integrals of N(f) Φ(f)."""
    Z = integrate(norm.cdf)
    mean = integrate(lambda f: f * norm.cdf(f)) / Z
    square = integrate(lambda f: f**2 * norm.cdf(f)) / Z
    found = (post.log_evidence, float(post.q.mean), float(post.q.cov))
    return gap(found, (np.log(Z), mean, square - mean**2))


def decomposed(post):
    """How far the bound and KL(q ‖ p), by quadrature, are from log p(y)."""
    log_p = np.log(integrate(expit))
    q = norm(float(post.q.mean), np.sqrt(float(post.q.cov)))

    def difference(f):
        log_joint = norm.logpdf(f, 0, np.sqrt(VARIANCE)) + log_expit(f)
        return q.pdf(f) * (q.logpdf(f) - log_joint + log_p)

    divergence = quad(difference, -12, 12, epsabs=1e-12)[0]
    assert divergence > 0
    return gap(post.log_evidence + divergence, log_p)


def at_the_mode(post):
    """Errors of mode, variance and log integral of the density of a Beta's logit."""

    def negative(f):
        beta = WINS * log_expit(f) + LOSSES * log_expit(-f)
        return -beta - norm.logpdf(f, 0, np.sqrt(VARIANCE))

    best = minimize_scalar(negative, bounds=(-5, 5), options={"xatol": 1e-12})
    p = expit(best.x)
    var = 1 / ((WINS + LOSSES) * p * (1 - p) + 1 / VARIANCE)
    log_integral = 0.5 * np.log(2 * np.pi * var) - best.fun
    found = (float(post.q.mean), float(post.q.cov), post.log_evidence)
    return gap(found, (best.x, var, log_integral))


def mean_error(draws):
    return abs(np.mean(draws) - MEAN)


def cut_normal(draws):
    return abs(np.mean(draws) - truncnorm(-0.5, 2.0).mean())


APPROXIMATIONS = [
    Row("t 3.1.1, figure 3.1", "Laplace approximation of a Beta distribution, here of its logit",
        "engine.infer(beta, at_labels, labels, method=engine.Laplace(), tol=1e-13)",
        "mode by SciPy, curvature there; prior N(0, 1.3)", at_the_mode, 1e-6, OneValue()),
    Row("t 3.1.2 (3.6), figure 3.2, A.7", "log p(y) is the bound plus KL(q ‖ p)",
        "engine.infer(logistic, x, [1], method=engine.VI(), tol=1e-12)",
        "log p(y) and KL by adaptive quadrature", decomposed, 1e-7, OneValue()),
    Row("t A.8 to A.15", "moments of a Gaussian times a factor; products of Gaussians",
        "engine.infer(probit, x, [1], method=engine.EP(), tol=1e-13)",
        "log Z, mean and variance by adaptive quadrature", tilted, 1e-8, OneValue()),
]  # fmt: skip
SAMPLERS = [
    Row("t 3.2.1", "sampling by the quantile function",
        "[gibbs.truncated(0, 1, -0.5, 2.0, u) for u in (np.arange(999) + 0.5) / 999]",
        "the mean of a truncated normal", cut_normal, 1e-4, Posterior()),
    Row("t 3.2.2", "rejection sampling",
        "sampling.rejection(log_p, draw, 0.0, 40000)",
        "the mean in closed form, 20,000 draws", mean_error, 0.02, Posterior()),
    Row("t 3.2.3", "importance sampling",
        "sampling.importance(log_p, draw, lambda f: f, 40000)",
        "the mean in closed form, 40,000 draws", mean_error, 0.02, Posterior()),
    Row("t 3.3.1", "Metropolis-Hastings",
        "sampling.metropolis_hastings(log_p, 2.0, 10000)",
        "the mean in closed form, 10,000 steps", mean_error, 0.05, Posterior()),
]  # fmt: skip
ROWS = [*APPROXIMATIONS, *SAMPLERS]
