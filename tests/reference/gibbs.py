"""The gold standard: Gibbs sampling of latent values under the argmax likelihood.   [thesis 3.3.2]"""

import numpy as np
from scipy.special import ndtr, ndtri


def truncated(mean, sd, low, high, u):
    """A normal between `low` and `high` from the uniform u, by its quantile function."""
    a, b = ndtr((low - mean) / sd), ndtr((high - mean) / sd)
    if b - a < 1e-12:  # far in a tail: next to the bound that is nearer
        return low if mean < low else high
    return mean + sd * ndtri(min(max(a + u * (b - a), 1e-300), 1 - 1e-16))


def gibbs(K_list, y, noise, sweeps, burn_in=200, seed=0):
    """Samples of g_c = f_c + N(0, s) at the training rows, given that g_y is the largest at each: (sweeps, C, N).

    Each value given all others is a normal, cut where another class would win.
    """
    C, N = len(K_list), len(y)
    precision = [np.linalg.inv(K + noise * np.eye(N)) for K in K_list]
    rng = np.random.default_rng(seed)
    g = np.where(np.arange(C)[:, None] == y, 1.0, -1.0)
    kept = np.zeros((sweeps, C, N))
    for sweep in range(-burn_in, sweeps):
        uniform = rng.random((N, C))
        for n in range(N):
            for c in range(C):
                P = precision[c]
                mean = g[c, n] - P[n] @ g[c] / P[n, n]
                if c == y[n]:
                    low, high = max(g[k, n] for k in range(C) if k != c), np.inf
                else:
                    low, high = -np.inf, g[y[n], n]
                g[c, n] = truncated(mean, P[n, n] ** -0.5, low, high, uniform[n, c])
        if sweep >= 0:
            kept[sweep] = g
    return kept


def probabilities(samples, K_list, noise, Kstar_list, kss_list, seed=0):
    """p(y* = c) by one draw of g* for each sample: (n, C)."""
    rng = np.random.default_rng(seed)
    N = samples.shape[2]
    draws = []
    for c, (K, Kstar, kss) in enumerate(zip(K_list, Kstar_list, kss_list, strict=True)):
        weights = Kstar @ np.linalg.inv(K + noise * np.eye(N))  # (n, N)
        var = kss + noise - np.sum(weights * Kstar, axis=1)
        mean = samples[:, c] @ weights.T
        draws.append(mean + np.sqrt(var) * rng.normal(size=mean.shape))
    winner = np.argmax(draws, axis=0)  # (sweeps, n)
    return np.stack([(winner == c).mean(0) for c in range(len(K_list))], axis=1)
