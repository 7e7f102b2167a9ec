"""Monte Carlo of one variable, as the thesis has it (3.2 and 3.3.1)."""

import numpy as np


def rejection(log_p, draw, log_bound, n, seed=0):
    """Draws of p by draws of q where p ≤ exp(log_bound) q; `draw` returns x, log q."""
    rng = np.random.default_rng(seed)
    x, log_q = draw(rng, n)
    return x[np.log(rng.random(n)) < log_p(x) - log_q - log_bound]


def importance(log_p, draw, f, n, seed=0):
    """E f(x) under p by weighted draws of q; p need not be normalised."""
    x, log_q = draw(np.random.default_rng(seed), n)
    weight = np.exp(log_p(x) - log_q)
    return np.sum(weight * f(x)) / np.sum(weight)


def metropolis_hastings(log_p, step, n, start=0.0, seed=0):
    """A chain with normal proposals around the current value."""
    rng = np.random.default_rng(seed)
    chain = np.empty(n)
    x = start
    for i in range(n):
        proposed = x + step * rng.normal()
        if np.log(rng.random()) < log_p(proposed) - log_p(x):
            x = proposed

        chain[i] = x
    return chain
