"""Every EP method as a factor, a place for its sites and options of the one solver.
[METHOD 4]

| method | factor | latents g_c | υ, r of a site | options |
|---|---|---|---|---|
| sparse_ep | Probit | u_c, values at Z_c | K⁻¹k(Z, x), k(x,x) + s − kᵀK⁻¹k | weights, power |
| sep | Probit | u_c | as sparse_ep | tied |
| power_ep | PanelProbit | u_c | as sparse_ep | power |
| robust_ep, robust_sep | Robust | u_c | as sparse_ep | own or tied |
| gfitc | Probit | f_c with noise, FITC prior | e_n, 0 | |
| full_multiclass_ep | Probit | f_c without noise | e_n, s | sequential |

X (N, D), Z (C, M, D), C kernels k(A, B), noise (C,) or a scalar, y (N,) in 0..C−1. One
kernel: one latent, y = ±1.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from .factors import PanelProbit, Probit, Robust, pair_sides
from .robust import largest_probabilities
from .solver import EPResult, run


# --- latents ---------------------------------------------------------------------------------------------
class SparseModel(NamedTuple):
    """Values u_c at the inducing inputs; K = k(Z, Z) + jitter·mean(diag k(Z, Z))·I."""

    Z: np.ndarray  # (C, M, D)
    kernels: list[Callable]  # C of them
    noise: np.ndarray  # (C,)
    K: np.ndarray  # (C, M, M)

    def cross(self, X):
        """cov(f_c(x), u_c) = k(x, Z) (C, n, M), and var f_c(x) = k(x,x) + s (C, n)."""
        cross = [k(X, z) for k, z in zip(self.kernels, self.Z, strict=True)]
        return np.array(cross), np.array(
            [np.diag(k(X, X)) for k in self.kernels]
        ) + self.noise[:, None]


class FITCModel(NamedTuple):
    """Values f_c at the training rows, noise included: K = Q + diag(k(X, X) − Q + s), Q
    = K_nm K_mm⁻¹ K_mn.
    """

    inducing: SparseModel
    X: np.ndarray
    K: np.ndarray  # (C, N, N)

    def cross(self, X):
        """cov(f_c(x), f_c) = Q(x, X) (C, n, N), and var f_c(x) (C, n)."""
        cross, var = self.inducing.cross(X)
        return cross @ np.linalg.solve(
            self.inducing.K, np.swapaxes(self.inducing.cross(self.X)[0], 1, 2)
        ), var


class FullModel(NamedTuple):
    """Values f_c at the training rows, noise excluded."""

    K: np.ndarray  # (C, N, N)
    noise: np.ndarray  # (C,)


def build_model(Z, kernels, noise, jitter) -> SparseModel:
    """K_c = k_c(Z_c, Z_c) + jitter · mean(diag) · I."""
    Z = np.asarray(Z, dtype=float)
    bare = [np.asarray(k(z, z), dtype=float) for k, z in zip(kernels, Z, strict=True)]
    K = np.stack([B + jitter * np.mean(np.diag(B)) * np.eye(len(B)) for B in bare])
    return SparseModel(
        Z, list(kernels), np.broadcast_to(np.asarray(noise, dtype=float), (len(Z),)), K
    )


def fitc_model(inducing: SparseModel, X) -> FITCModel:
    """The FITC prior of f_c at rows X."""
    model = FITCModel(inducing, np.asarray(X, dtype=float), None)
    Q, var = model.cross(model.X)
    return model._replace(
        K=np.array([q + np.diag(v - np.diag(q)) for q, v in zip(Q, var, strict=True)])
    )


def project(K, cross, var):
    """f_c(x) | g_c ~ N(υ·g_c, r): υ = K⁻¹cov(g, f) (C, n, D), r = var − cov(f, g)·υ (C,
    n).
    """
    upsilon = np.swapaxes(
        np.linalg.solve(K, np.swapaxes(cross, 1, 2)), 1, 2
    )  # ten times closer than K⁻¹ @ k
    return upsilon, var - np.sum(cross * upsilon, axis=2)


# --- factors in their places -----------------------------------------------------------------------------
def weighted_powers(weights, power):
    """ω copies of a row at power p: remove p·min(1, 1/ω) of their joint site, match
    Φ^(p·min(1, ω)).
    """
    removed = power * np.minimum(1, 1 / np.maximum(weights, 1))
    return removed, power * np.minimum(1, weights)


def probit_factors(
    model: SparseModel, X, y, weights=None, power=1.0, kind=Probit, **more
):
    """Φ((t_y − t_k)/√(r_y + r_k)) of every pair, or Φ(y t/√r), with sites on υ·u."""
    rows, classes, signs = pair_sides(y, len(model.K))
    upsilon, r = project(model.K, *model.cross(X))
    removed, exponent = weighted_powers(
        np.ones(len(X)) if weights is None else np.asarray(weights), power
    )
    at = classes, rows[:, None]
    return kind(
        rows,
        classes,
        upsilon[at],
        r[at],
        removed[rows],
        signs=signs,
        exponent=exponent[rows],
        **more,
    )


def value_factors(y, noise):
    """Φ((f_y − f_k)/√(s_y + s_k)) of every pair, Θ(f_y − f_k) without noise, with sites
    on f_n itself.
    """
    rows, classes, signs = pair_sides(y, len(noise))
    upsilon, ones = (
        np.eye(len(y))[rows][:, None] * np.ones((1, classes.shape[1], 1)),
        np.ones(len(rows)),
    )
    return Probit(rows, classes, upsilon, noise[classes], ones, signs, ones)


def robust_factors(model: SparseModel, X, y, epsilon, adaptive=False):
    """(1−ε) P(f_y largest) + ε/C of every row, with a site on υ·u_c for each latent."""
    upsilon, r = project(model.K, *model.cross(np.asarray(X, dtype=float)))
    rows, classes = np.arange(len(y)), np.tile(np.arange(len(model.K)), (len(y), 1))
    ones = np.ones(len(y))
    return Robust(
        rows,
        classes,
        np.swapaxes(upsilon, 0, 1),
        r.T,
        ones,
        np.asarray(y),
        float(epsilon),
        adaptive,
    )


# --- methods ---------------------------------------------------------------------------------------------
def sparse_ep(
    X, y, Z, kernels, noise=1.0, jitter=1e-6, weights=None, power=1.0, **options
) -> EPResult:
    """EP with probit factors, or power EP; weights (N,)."""
    model = build_model(Z, kernels, noise, jitter)
    return run(model, probit_factors(model, X, y, weights, power), **options)


def power_ep(
    X, y, Z, kernels, noise=1.0, power=1.0, jitter=1e-6, adaptive=False, **options
) -> EPResult:
    """Power EP, 0 < power ≤ 1, by another quadrature than sparse_ep(power=)."""
    model = build_model(Z, kernels, noise, jitter)
    factor = probit_factors(model, X, y, None, power, PanelProbit, adaptive=adaptive)
    return run(model, factor, **{"tol": 1e-11, **options})


def robust_ep(
    X, y, Z, kernels, noise=1.0, epsilon=0.0, jitter=1e-6, adaptive=False, **options
) -> EPResult:
    """EP with the robust likelihood, epsilon in [0, 1)."""
    model = build_model(Z, kernels, noise, jitter)
    return run(
        model,
        robust_factors(model, X, y, epsilon, adaptive),
        **{"tol": 1e-11, **options},
    )


sep = partial(sparse_ep, tied=True)
robust_sep = partial(robust_ep, tied=True)


def gfitc(X, y, Z, kernels, noise=1.0, jitter=1e-6, **options) -> EPResult:
    """EP on the training values under the FITC prior, factors Θ(f_y − f_k) or Θ(y f)."""
    model = fitc_model(build_model(Z, kernels, noise, jitter), X)
    return run(model, value_factors(y, np.zeros(len(model.K))), **options)


def full_multiclass_ep(K, y, noise, **options) -> EPResult:
    """EP without sparsity, one factor after the other; K (C, N, N), noise (C,) or a
    scalar.
    """
    K = np.array(K, dtype=float)
    noise = np.broadcast_to(np.asarray(noise, dtype=float), (len(K),))
    return run(
        FullModel(K, noise),
        value_factors(y, noise),
        **{"sequential": True, "damping": 1.0, **options},
    )


# --- predictions -----------------------------------------------------------------------------------------
def site_totals(result: EPResult):
    """T_nc, U_nc: the sites of point n on class c added up, each (N, C)."""
    f, shape = result.factor, (result.factor.rows.max() + 1, len(result.mean))
    T, U = np.zeros(shape), np.zeros(shape)
    np.add.at(T, (f.rows[:, None], f.classes), result.tau)
    np.add.at(U, (f.rows[:, None], f.classes), result.nu)
    return T, U


def conditional(result: EPResult, cross, var):
    """f_c* ~ N(υ*·mean_c, r* + υ*ᵀcov_c υ*): mean, variance (n, C); cross (C, n, D),
    var (C, n).
    """
    upsilon, r = project(result.model.K, cross, var)
    mean = np.einsum("cnm,cm->nc", upsilon, result.mean)
    return mean, r.T + np.einsum("cnm,cmk,cnk->nc", upsilon, result.cov, upsilon)


def latent(result: EPResult, Xstar):
    """f_c* with noise: mean, variance (n, C)."""
    return conditional(result, *result.model.cross(Xstar))


def full_multiclass_latent(result: EPResult, Kstar, kss):
    """f_c* with noise: mean, variance (n, C); Kstar (C, n, N), kss (C, n)."""
    return conditional(
        result, np.array(Kstar), np.array(kss) + result.model.noise[:, None]
    )


def probabilities(mean, var, epsilon=0.0, adaptive=False):
    """(1−ε) p(y* = k) + ε/C, (n, C), by quadrature, not normalised.

    One latent: (1−ε) Φ(±m*/√v*) + ε/2, (n, 2).
    """
    if mean.shape[1] > 1:
        return largest_probabilities(mean, var, epsilon, adaptive)
    return (1 - epsilon) * ndtr(
        mean / np.sqrt(var) * np.array([-1.0, 1.0])
    ) + epsilon / 2


def predict_proba(result: EPResult, Xstar, adaptive=False):
    """Class probabilities (n, C), or (n, 2) with one latent."""
    return probabilities(*latent(result, Xstar), result.factor.epsilon, adaptive)


def full_multiclass_predict(result: EPResult, Kstar, kss):
    """Class probabilities (n, C)."""
    return probabilities(*full_multiclass_latent(result, Kstar, kss))


def gfitc_marginals(result: EPResult):
    """Mean and variance of f_nc, (N, C)."""
    return result.mean.T, np.diagonal(result.cov, axis1=1, axis2=2).T


def gfitc_inducing(result: EPResult):
    """q(u_c): mean (C, M), cov (C, M, M), to compare with sparse_ep.

    A = cov(u, f) K⁻¹:  mean A m,  covariance K_mm − A cov(f, u) + A Σ Aᵀ.
    """
    to_f = result.model.inducing.cross(result.model.X)[0]  # cov(f, u) (C, N, M)
    A = np.swapaxes(np.linalg.solve(result.model.K, to_f), 1, 2)
    prior = result.model.inducing.K
    return np.einsum(
        "cmn,cn->cm", A, result.mean
    ), prior - A @ to_f + A @ result.cov @ np.swapaxes(A, 1, 2)
