"""The true log p(y) of tiny problems by importance sampling over w, with its standard
error.

    log p(y) = log E_{w ~ g} [p(w)/g(w) Π_n p(y_n | t_n)],   t_nc = a_nc·w_c, p(w) = N(0, I)

g is a mixture of the prior (a fifth) and a widened Gaussian approximation of the
posterior, so that no weight exceeds five times the likelihood. The residuals of f given
t are integrated (robust-max, pairwise) or sampled (softmax).
"""

import math

import numpy as np
from scipy.special import log_ndtr, log_softmax, logsumexp, ndtr, roots_legendre

from .variational import Estimate, Whitened

NODES, WEIGHTS = roots_legendre(96)
PRIOR_SHARE, WIDER = 0.2, 1.3


def log_density(w, mean, cov):
    """Σ_c log N(w_c; mean_c, cov_c), (samples,)."""
    total = np.zeros(len(w))
    for c in range(w.shape[1]):
        d = w[:, c] - mean[c]
        quadratic = np.einsum("sm,mk,sk->s", d, np.linalg.inv(cov[c]), d)
        total -= 0.5 * (quadratic + np.linalg.slogdet(2 * np.pi * cov[c])[1])
    return total


def robust_max_log_likelihood(data: Whitened, t, epsilon):
    """Σ_n log[(1−ε) S + ε/C], S = ∫ N(f; t_y, r_y) Π Φ((f−t_c)/√r_c) df over t_y ±
    8√r_y, (samples,).

    96 nodes: for residual variances within a factor of about thirty of each other.
    """
    total, C = np.zeros(len(t)), t.shape[2]
    x, weight = 8 * NODES, 8 * WEIGHTS * np.exp(-32 * NODES**2) / math.sqrt(2 * math.pi)
    for n, y in enumerate(data.y):
        f, integrand = t[:, n, y, None] + math.sqrt(data.r[n, y]) * x, weight
        for c in set(range(C)) - {int(y)}:
            integrand = integrand * ndtr(
                (f - t[:, n, c, None]) / math.sqrt(data.r[n, c])
            )
        with np.errstate(
            divide="ignore"
        ):  # ε = 0 and S = 0: the sample has weight zero
            total += np.log((1 - epsilon) * integrand.sum(axis=1) + epsilon / C)
    return total


def pairwise_log_likelihood(data: Whitened, t):
    """Σ_n Σ_{k≠y} log Φ((t_y − t_k)/√(r_y + r_k)), (samples,)."""
    total = np.zeros(len(t))
    for n, y in enumerate(data.y):
        for k in set(range(t.shape[2])) - {int(y)}:
            total += log_ndtr(
                (t[:, n, y] - t[:, n, k]) / math.sqrt(data.r[n, y] + data.r[n, k])
            )
    return total


def softmax_log_likelihood(data: Whitened, t, seed=1):
    """Σ_n log softmax_y(t_n + √r ε), one draw of ε a sample: unbiased for Π_n,
    (samples,).
    """
    f = t + np.sqrt(data.r) * np.random.default_rng(seed).normal(size=t.shape)
    return log_softmax(f, axis=2)[:, np.arange(len(data.y)), data.y].sum(axis=1)


def log_evidence_is(
    data: Whitened, log_likelihood, proposal=None, samples=50_000, seed=0
) -> Estimate:
    """log p(y) and the standard error of that logarithm.

    log_likelihood(data, t (samples, N, C)) -> (samples,): pairwise_log_likelihood,
    softmax_log_likelihood, or functools.partial(robust_max_log_likelihood, epsilon=…).
    proposal: mean (C, M) and cov (C, M, M) of w under an approximate posterior; None
    samples the prior.
    """
    _, C, M = data.a.shape
    rng = np.random.default_rng(seed)
    w = rng.normal(size=(samples, C, M))
    log_weight = np.zeros(samples)
    if proposal is not None:
        mean, cov = proposal[0], WIDER * proposal[1]
        from_q = rng.uniform(size=samples) > PRIOR_SHARE
        w[from_q] = mean + np.einsum("cmk,sck->scm", np.linalg.cholesky(cov), w[from_q])
        log_prior = log_density(w, np.zeros((C, M)), np.stack([np.eye(M)] * C))
        log_q = log_density(w, mean, cov)
        log_weight = log_prior - np.logaddexp(
            math.log(PRIOR_SHARE) + log_prior, math.log(1 - PRIOR_SHARE) + log_q
        )
    terms = log_weight + log_likelihood(data, np.einsum("ncm,scm->snc", data.a, w))
    value = float(logsumexp(terms) - math.log(samples))
    return Estimate(
        value, float(np.exp(terms - value).std(ddof=1) / math.sqrt(samples))
    )
