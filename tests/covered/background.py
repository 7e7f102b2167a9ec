"""Rows about Monte Carlo, thesis 3.2 and 3.3: one latent value given one label.

p(f | y = 1) ∝ N(f; 0, 1) Φ(f), with mean 1/√π
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr
from scipy.stats import norm, truncnorm

from reference import gibbs, sampling

from .rows import Row

MEAN = 1 / np.sqrt(np.pi)


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


def mean_error(draws):
    return abs(np.mean(draws) - MEAN)


def cut_normal(draws):
    return abs(np.mean(draws) - truncnorm(-0.5, 2.0).mean())


ROWS = [
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
