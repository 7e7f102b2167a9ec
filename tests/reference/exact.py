"""The true log evidence of tiny problems: what every approximation should be near."""

import numpy as np
from scipy.integrate import dblquad
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import multivariate_normal


def binary_log_evidence_dblquad(K, y) -> float:
    """log ∫∫ N(f; 0, K) Φ(y₁f₁) Φ(y₂f₂) df, K (2, 2), y = ±1."""
    inverse, scale = np.linalg.inv(K), 1 / (2 * np.pi * np.sqrt(np.linalg.det(K)))
    a, b = 9 * np.sqrt(np.diag(K))

    def integrand(f2, f1):
        f = np.array([f1, f2])
        return scale * np.exp(-0.5 * f @ inverse @ f) * np.prod(ndtr(y * f))

    return float(np.log(dblquad(integrand, -a, a, -b, b, epsabs=1e-10, epsrel=1e-10)[0]))


def binary_log_evidence_orthant(K, y) -> float:
    """The same for any small N: the probability that y·(f + ε) > 0, ε ~ N(0, I)."""
    y = np.asarray(y, dtype=float)
    cov = y[:, None] * (K + np.eye(len(K))) * y
    return float(
        multivariate_normal(cov=cov, abseps=1e-8, releps=1e-8, maxpts=10**6).logcdf(np.zeros(len(y)))
    )


def exact_log_evidence_mc(K_list, y, noise, samples=200_000, seed=0):
    """log E Π_n Π_{k≠y} Φ((f_y − f_k)/√(s_y + s_k)) over f_c ~ N(0, K_c), and its standard error."""
    rng, C, N = np.random.default_rng(seed), len(K_list), len(y)
    noise = np.broadcast_to(np.asarray(noise, dtype=float), (C,))
    f = [rng.multivariate_normal(np.zeros(N), K, size=samples, method="eigh") for K in K_list]
    log_likelihood = np.zeros(samples)
    for n in range(N):
        for k in set(range(C)) - {int(y[n])}:
            log_likelihood += log_ndtr((f[y[n]][:, n] - f[k][:, n]) / np.sqrt(noise[y[n]] + noise[k]))
    log_z = logsumexp(log_likelihood) - np.log(samples)
    relative = np.exp(log_likelihood - log_z)
    return float(log_z), float(relative.std() / np.sqrt(samples))
