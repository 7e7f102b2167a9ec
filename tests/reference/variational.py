"""Variational bounds E_q log p(y|f) − KL(q‖p) for q(w) = Π_c N(μ_c, Σ_c), prior N(0,
I), and their maxima.

Whitened space: f_c(x_n) | w_c ~ N(a_nc·w_c, r_nc), r with noise; marginals m = a·μ, v =
aᵀΣa.   [METHOD 2, 9]

    robust-max  Σ_n log(1−ε+ε/C)·S_n + log(ε/C)·(1−S_n),   S_n = P(f_y largest), f_c ~ N(m_c, v_c + r_c)
    probit      Σ_n Σ_{k≠y} E log Φ((t_y−t_k)/√(r_y+r_k)),  t_c ~ N(m_c, v_c)
    softmax     Σ_n E log softmax_y(f),                     f_c ~ N(m_c, v_c + r_c)

One latent, y = ±1: S = Φ(y m/√(v+r)) with C = 2, E log Φ(y t/√r), and the logistic E
log σ(y f). KL(N(μ, Σ)‖N(0, I)) = ½[tr Σ + μᵀμ − M − log|Σ|].
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import (
    expit,
    log_expit,
    log_ndtr,
    log_softmax,
    ndtr,
    roots_hermitenorm,
    roots_legendre,
)

from .factors import pair_sides
from .probit import hazard
from .robust import robust_moments
from .tilted import bend

LEGENDRE = roots_legendre(16)
SPREAD = np.array([0.1, 0.3, 1, 2, 4, 8, 12])


class Whitened(NamedTuple):
    """f_c(x_n) | w_c ~ N(a·w_c, r), and the labels."""

    a: np.ndarray  # (N, C, M)
    r: np.ndarray  # (N, C) noise included
    y: np.ndarray  # (N,) in 0..C−1, or ±1 if there is one latent


class Expected(NamedTuple):
    """E_q log p(y|f) added up over the points, with its derivatives in the marginals of
    t = a·w.
    """

    value: float
    dm: np.ndarray  # (N, C)
    dv: np.ndarray  # (N, C)


class Estimate(NamedTuple):
    """A Monte Carlo mean and its standard error."""

    value: float
    error: float


class VIResult(NamedTuple):
    """A maximum of the bound. In u-space: Lμ and LΣLᵀ, L = chol K."""

    bound: float
    mean: np.ndarray  # (C, M)
    cov: np.ndarray  # (C, M, M)
    gradient: float  # largest entry of the gradient left
    iterations: int


def whiten(model, X, y) -> Whitened:
    """a = L⁻¹k(Z, x), r = k(x,x) + s − |a|², L = chol(K); model from
    brute_ep.build_model.
    """
    a, r = [], []
    for c, k in enumerate(model.kernels):
        L = np.linalg.cholesky(model.K[c])
        a.append(np.linalg.solve(L, k(model.Z[c], X)).T)
        r.append(np.diag(k(X, X)) + model.noise[c] - np.sum(a[c] ** 2, axis=1))
    return Whitened(np.swapaxes(a, 0, 1), np.array(r).T, np.asarray(y))


def marginals(data: Whitened, mean, cov):
    """m = a·μ and v = aᵀΣa of every t_nc, each (N, C)."""
    return np.einsum("ncm,cm->nc", data.a, mean), np.einsum(
        "ncm,cmk,nck->nc", data.a, cov, data.a
    )


def kl(mean, cov) -> float:
    """Σ_c KL(N(μ_c, Σ_c)‖N(0, I))."""
    trace = np.trace(cov, axis1=1, axis2=2).sum()
    return float(
        0.5 * (trace + np.sum(mean**2) - mean.size - np.linalg.slogdet(cov)[1].sum())
    )


def to_whitened(model, mean, cov):
    """q(u) → q(w), w = L⁻¹u: mean (C, M), cov (C, M, M)."""
    inverse = np.linalg.inv(np.linalg.cholesky(model.K))
    return np.einsum("cij,cj->ci", inverse, mean), inverse @ cov @ np.swapaxes(
        inverse, 1, 2
    )


def to_inducing(model, mean, cov):
    """q(w) → q(u), u = Lw: mean (C, M), cov (C, M, M)."""
    L = np.linalg.cholesky(model.K)
    return np.einsum("cij,cj->ci", L, mean), L @ cov @ np.swapaxes(L, 1, 2)


# --- the bounds at a given q -----------------------------------------------------------------------------
def bound(data: Whitened, mean, cov, expected) -> float:
    """expected(data, m, v).value − KL, for any of the E log p below."""
    return expected(data, *marginals(data, mean, cov)).value - kl(mean, cov)


def sample_latents(data: Whitened, mean, cov, samples, seed):
    """w_c ~ q, then f_nc = a·w_c + √r ε: (samples, N, C).

    One seed gives the same normals for every q.
    """
    rng = np.random.default_rng(seed)
    C, M = mean.shape
    normals, residuals = (
        rng.normal(size=(samples, C, M)),
        rng.normal(size=(samples, *data.r.shape)),
    )
    w = mean + np.einsum("cmk,sck->scm", np.linalg.cholesky(cov), normals)
    return np.einsum("ncm,scm->snc", data.a, w) + np.sqrt(data.r) * residuals


def estimate(values) -> Estimate:
    """Mean and standard error of independent values (samples,)."""
    return Estimate(
        float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))
    )


def robust_max_bound_mc(
    data: Whitened, mean, cov, epsilon, samples=100_000, seed=0
) -> Estimate:
    """The robust-max bound from samples of f."""
    f, C = sample_latents(data, mean, cov, samples, seed), data.r.shape[1]
    hits = np.sum(np.argmax(f, axis=2) == data.y, axis=1)
    log_p = hits * math.log(1 - epsilon + epsilon / C) + (
        len(data.y) - hits
    ) * math.log(epsilon / C)
    return estimate(log_p - kl(mean, cov))


def softmax_bound_mc(data: Whitened, mean, cov, samples=100_000, seed=0) -> Estimate:
    """The softmax bound from samples of f, any C; equal seeds give common random
    numbers.
    """
    f = sample_latents(data, mean, cov, samples, seed)
    log_p = log_softmax(f, axis=2)[:, np.arange(len(data.y)), data.y].sum(axis=1)
    return estimate(log_p - kl(mean, cov))


# --- E log p with derivatives, and the maximum -----------------------------------------------------------
def expected_robust_max(data: Whitened, m, v, epsilon, adaptive=False) -> Expected:
    """E = log(ε/C) + [log(1−ε+ε/C) − log(ε/C)]·S;  ∂S = S·∂log S.

    One latent:  ∂S/∂m = y φ(α)/√V,  ∂S/∂V = −½ α φ(α)/V,  V = v + r.
    """
    C, V = max(m.shape[1], 2), v + data.r
    miss = math.log(epsilon / C)
    gain = math.log(1 - epsilon + epsilon / C) - miss
    if m.shape[1] == 1:
        y = data.y[:, None]
        alpha = y * m / np.sqrt(V)
        density = np.exp(-0.5 * alpha**2) / math.sqrt(2 * math.pi)
        value = float(np.sum(miss + gain * ndtr(alpha)))
        return Expected(
            value, gain * y * density / np.sqrt(V), -0.5 * gain * alpha * density / V
        )
    each = [
        robust_moments(y, *point, 0.0, adaptive)
        for y, *point in zip(data.y, m, V, strict=True)
    ]
    S = np.exp([z.log_s for z in each])
    slopes = [(gain * s * z.d1, gain * s * z.dv) for s, z in zip(S, each, strict=True)]
    return Expected(
        float(np.sum(miss + gain * S)),
        *(np.array(d) for d in zip(*slopes, strict=True)),
    )


def gaussian_panels(kink, width):
    """Nodes x and weights of ∫ N(x; 0, 1) · dx, cut at 0 ± SPREAD and around a kink of
    a given width.
    """
    cuts = np.array(
        [
            0.0,
            *SPREAD,
            *-SPREAD,
            kink,
            *(kink + width * SPREAD),
            *(kink - width * SPREAD),
        ]
    )
    cuts = np.unique(np.clip(cuts, -12, 12))
    half = 0.5 * np.diff(cuts)[:, None]
    x = (cuts[:-1, None] + half * (1 + LEGENDRE[0])).ravel()
    return x, (half * LEGENDRE[1]).ravel() * np.exp(-0.5 * x**2) / math.sqrt(
        2 * math.pi
    )


def expected_probit(data: Whitened, m, v) -> Expected:
    """E log Φ(z), z = d/√R, d the difference of a pair: ∂E/∂m = ±E[h(z)]/√R,  ∂E/∂v =
    −½E[h(h+z)]/R,  R = Σ r.
    """
    value, dm, dv = 0.0, np.zeros(m.shape), np.zeros(m.shape)
    for n, classes, signs in zip(*pair_sides(data.y, m.shape[1]), strict=True):
        d, sd, R = (
            signs @ m[n, classes],
            math.sqrt(v[n, classes].sum()),
            data.r[n, classes].sum(),
        )
        x, weight = gaussian_panels(-d / sd, math.sqrt(R) / sd)
        z = (d + sd * x) / math.sqrt(R)
        value += weight @ log_ndtr(z)
        dm[n, classes] += signs * (weight @ hazard(z)) / math.sqrt(R)
        dv[n, classes] -= 0.5 * (weight @ bend(z)) / R
    return Expected(float(value), dm, dv)


def expected_logistic(data: Whitened, m, v) -> Expected:
    """E log σ(y f), one latent: ∂E/∂m = y E σ(−yf),  ∂E/∂v = −½E σ(f)σ(−f)."""
    value, dm, dv = 0.0, np.zeros(m.shape), np.zeros(m.shape)
    for n, y in enumerate(data.y):
        sd = math.sqrt(v[n, 0] + data.r[n, 0])
        x, weight = gaussian_panels(-m[n, 0] / sd, 1 / sd)
        g = y * (m[n, 0] + sd * x)
        value += weight @ log_expit(g)
        dm[n], dv[n] = (
            y * (weight @ expit(-g)),
            -0.5 * (weight @ (expit(g) * expit(-g))),
        )
    return Expected(float(value), dm, dv)


def expected_softmax(data: Whitened, m, v, nodes=24) -> Expected:
    """With e = ∂log softmax_y/∂f = 1(c=y) − π: ∂E/∂m = E[e], ∂E/∂v = E[e x]/(2√(v+r)),
    f = m + √(v+r) x.

    By `nodes`^C Hermite points; the derivatives are those of the rule itself. One
    latent: the logistic.
    """
    C = m.shape[1]
    if C == 1:
        return expected_logistic(data, m, v)
    x, weight = roots_hermitenorm(nodes)
    weight = weight / math.sqrt(2 * math.pi)
    grid = np.stack(np.meshgrid(*[x] * C), axis=-1).reshape(-1, C)
    weights = np.prod(
        np.stack(np.meshgrid(*[weight] * C), axis=-1).reshape(-1, C), axis=1
    )
    value, dm, dv = 0.0, np.zeros(m.shape), np.zeros(m.shape)
    for n, y in enumerate(data.y):
        sd = np.sqrt(v[n] + data.r[n])
        log_pi = log_softmax(m[n] + sd * grid, axis=1)
        e = np.eye(C)[y] - np.exp(log_pi)
        value += weights @ log_pi[:, y]
        dm[n], dv[n] = weights @ e, weights @ (e * grid) / (2 * sd)
    return Expected(float(value), dm, dv)


def unpack(x, C, M):
    """μ (C, M) and lower-triangular R (C, M, M) with Σ = RRᵀ; the diagonal of R is in
    logarithms.
    """
    mean, lower = x[: C * M].reshape(C, M), np.zeros((C, M, M))
    lower[(slice(None), *np.tril_indices(M))] = x[C * M :].reshape(C, -1)
    i = np.arange(M)
    lower[:, i, i] = np.exp(lower[:, i, i])
    return mean, lower


def negative_bound(x, data: Whitened, expected):
    """−bound and its gradient in x: ∂μ = Σ_n dm a − μ,  ∂Σ = Σ_n dv aaᵀ − ½(I − Σ⁻¹),
    ∂R = 2 ∂Σ R.
    """
    _, C, M = data.a.shape
    mean, lower = unpack(x, C, M)
    cov = lower @ np.swapaxes(lower, 1, 2)
    e = expected(data, *marginals(data, mean, cov))
    d_mean = np.einsum("nc,ncm->cm", e.dm, data.a) - mean
    d_cov = np.einsum("nc,ncm,nck->cmk", e.dv, data.a, data.a) - 0.5 * (
        np.eye(M) - np.linalg.inv(cov)
    )
    d_lower, i = 2 * d_cov @ lower, np.arange(M)
    d_lower[:, i, i] *= lower[:, i, i]
    gradient = np.concatenate(
        [d_mean.ravel(), d_lower[(slice(None), *np.tril_indices(M))].ravel()]
    )
    return kl(mean, cov) - e.value, -gradient


def maximise(data: Whitened, expected, start=None, max_iterations=2000) -> VIResult:
    """L-BFGS over (μ, chol Σ) from the prior (or a vector `start`) with the analytic
    gradient.

    expected(data, m, v) -> Expected: expected_probit, expected_softmax, or
    functools.partial(expected_robust_max, epsilon=…).
    """
    _, C, M = data.a.shape
    x = np.zeros(C * M + C * M * (M + 1) // 2) if start is None else start
    options = dict(
        maxiter=max_iterations, maxfun=10 * max_iterations, maxcor=50, ftol=0, gtol=1e-9
    )
    found = minimize(
        negative_bound, x, (data, expected), "L-BFGS-B", jac=True, options=options
    )
    mean, lower = unpack(found.x, C, M)
    cov = lower @ np.swapaxes(lower, 1, 2)
    return VIResult(
        -float(found.fun), mean, cov, float(np.abs(found.jac).max()), int(found.nit)
    )
