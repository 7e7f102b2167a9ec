"""The gold standard: Gibbs sampling of latent values under the argmax likelihood.
[thesis 3.3.2]
"""

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri


def truncated(mean, sd, low, high, u):
    """A normal between `low` and `high` from the uniform u, by its quantile function."""
    a, b = ndtr((low - mean) / sd), ndtr((high - mean) / sd)
    if b - a < 1e-12:  # far in a tail: next to the bound that is nearer
        return low if mean < low else high
    return mean + sd * ndtri(min(max(a + u * (b - a), 1e-300), 1 - 1e-16))


def gibbs(K_list, y, noise, sweeps, burn_in=200, seed=0):
    """Samples of g_c = f_c + N(0, s) at the training rows, given that g_y is the
    largest at each: (sweeps, C, N).

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


def below(bound, u):
    """A standard normal below `bound` from the uniform u; accurate far in the tail."""
    return ndtri(np.maximum(u * ndtr(bound), 1e-300))


def gibbs_chains(K, y, noise, C, chains, sweeps, burn_in, every, seed=0):
    """`gibbs` for a batch of problems, many independent chains each: samples of g,
    (kept, B, N, C, chains).

    K (B, N, N) is shared by the classes of a problem, y (B, N). One step refreshes a
    row: first the class of its label, which must be the largest, then all rivals, which
    are independent given it. Every `every`-th sweep after `burn_in` is kept.
    """
    B, N = y.shape
    precision = np.linalg.inv(K + noise * np.eye(N))
    scale = 1 / np.sqrt(np.diagonal(precision, axis1=1, axis2=2))  # (B, N)
    rng = np.random.default_rng(seed)
    own = y[..., None] == np.arange(C)  # (B, N, C)
    g = (
        np.where(own[..., None], 1.0, -1.0)
        * np.sqrt(noise)
        * rng.random((B, N, C, chains))
    )
    flat, kept, problem = g.reshape(B, N, C * chains), [], np.arange(B)
    for sweep in range(burn_in + sweeps):
        for n in range(N):
            s, label, mine = scale[:, n, None, None], y[:, n], own[:, n, :, None]
            pull = (precision[:, n : n + 1] @ flat).reshape(B, C, chains)
            mean = g[:, n] - s**2 * pull
            u = rng.random((B, C, chains))
            rival = np.where(mine, -np.inf, g[:, n]).max(1)
            first = mean[problem, label], s[:, 0]
            largest = first[0] - first[1] * below(
                (first[0] - rival) / first[1], u[problem, label]
            )
            largest = np.maximum(largest, rival)[:, None]
            others = np.minimum(mean + s * below((largest - mean) / s, u), largest)
            g[:, n] = np.where(mine, largest, others)
        if sweep >= burn_in and (sweep - burn_in) % every == 0:
            kept.append(g.copy())
    return np.stack(kept)


def largest_of_equal_variances(mean, sd, step=0.5, reach=6.0):
    """p(class c has the largest value) of independent normals with one deviation: mean
    (…, C), sd (…), by the trapezoid rule.
    """
    z = np.arange(-reach, reach + step / 2, step)
    top = mean.max(-1, keepdims=True)
    x = (top - mean)[..., None, :] / sd[..., None, None] + z[:, None]  # (…, nodes, C)
    log_cdf = log_ndtr(x)
    density = np.exp(log_cdf.sum(-1, keepdims=True) - log_cdf - 0.5 * x * x)
    p = density.sum(-2)
    return p / p.sum(-1, keepdims=True)


def chain_probabilities(samples, K, noise, Kstar, kss):
    """p(y* = c) of each chain, the average over its samples: (B, chains, n, C); Kstar
    (B, n, N), kss (n,).
    """
    N = K.shape[-1]
    weights = Kstar @ np.linalg.inv(K + noise * np.eye(N))  # (B, n, N)
    sd = np.sqrt(kss + noise - np.sum(weights * Kstar, axis=2))  # (B, n)
    total = 0.0
    for g in samples:  # (B, N, C, chains)
        mean = np.einsum("btn,bnck->bktc", weights, g, optimize=True)
        total = total + largest_of_equal_variances(mean, sd[:, None])
    return total / len(samples)
