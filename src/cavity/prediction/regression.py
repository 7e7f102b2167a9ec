"""Predictions of regression: from q, from all training rows (Nyström, conjugate gradients), or by a committee. [thesis 4.2]"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cavity.common.linalg import solve_lower, solve_lower_t
from cavity.inference.posterior import Normal
from cavity.likelihoods import Gaussian
from cavity.prediction.model import (
    PREDICT_BYTES,
    Array,
    FittedModel,
    as_tensor,
    joint_over_rows,
    predict_latent,
    residual,
)

MOST_ITERATIONS = 2000
HELD_BYTES = 512 << 20  # a Gram matrix up to this size is kept while a system is solved


class TrainingRows(NamedTuple):
    """(Q + B⁻¹)⁻¹ = B − B Aᵀ Λ⁻¹ A B at the training rows, B = diag(ω/σ²): the inverse itself, or what preconditions K's."""

    X: Tensor  # [N D]
    y: Tensor  # [N]
    weight: Tensor  # [N], ω/σ²
    a: Tensor  # [M N]
    lower: Tensor  # [M M], factor of Λ = I + A B Aᵀ
    alpha: Tensor  # [N], the system's solution for y
    tol: float  # of conjugate gradients; 0: none, Q stands for K

    def to(self, device: torch.device) -> TrainingRows:
        return self._replace(**{name: getattr(self, name).to(device) for name in TENSORS})


TENSORS = TrainingRows._fields[:-1]


def with_canonical_layout(rows: TrainingRows) -> TrainingRows:
    """Return the rows in one layout: the last bits of products and solves depend on it."""
    rows = rows._replace(**{name: getattr(rows, name).contiguous() for name in TENSORS})
    return rows._replace(lower=rows.lower.mT.contiguous().mT)


def target_noise(model: FittedModel) -> float:
    """Return the variance of the Gaussian likelihood, in units of the targets' variance."""
    assert isinstance(model.likelihood, Gaussian)
    return float(model.likelihood.noise)


def low_rank_solve(rows: TrainingRows, V: Tensor) -> Tensor:
    """(Q + B⁻¹)⁻¹ V, [N n]."""
    scaled = rows.weight[:, None] * V
    inner = solve_lower_t(rows.lower, solve_lower(rows.lower, rows.a @ scaled))
    return scaled - rows.weight[:, None] * (rows.a.mT @ inner)


@torch.no_grad()
def make_training_rows(
    model: FittedModel, X: Tensor, y: Tensor, weight: Tensor, noise: float, tol: float
) -> TrainingRows:
    """Return the training rows with α = (Q + B⁻¹)⁻¹ y, or (K + B⁻¹)⁻¹ y to a relative residual of `tol`."""
    a = model.prior.project_with(model.prior_lower, X.to(model.mean.dtype)).a[0].double()
    scaled = weight / noise
    eye = torch.eye(len(a), dtype=torch.float64, device=a.device)
    lower = torch.linalg.cholesky(eye + (a * scaled) @ a.mT)
    rows = with_canonical_layout(TrainingRows(X, y, scaled, a, lower, torch.zeros_like(y), tol))
    return rows._replace(alpha=solve(model, rows, y[:, None])[:, 0])


def solve(model: FittedModel, rows: TrainingRows, V: Tensor) -> Tensor:
    """Solve the system for each column of V [N n]."""
    return low_rank_solve(rows, V) if rows.tol == 0 else conjugate_gradients(model, rows, V)


def conjugate_gradients(model: FittedModel, rows: TrainingRows, V: Tensor) -> Tensor:
    """Solve (K + B⁻¹) x = V for all columns at once, preconditioned by the low-rank inverse; converged columns stop."""
    product = _product(model, rows)
    x, residual = torch.zeros_like(V), V.clone()
    z = low_rank_solve(rows, residual)
    direction, rho = z, (residual * z).sum(0)
    goal = rows.tol * V.norm(dim=0).clamp_min(1e-300)
    for _ in range(MOST_ITERATIONS):
        going = residual.norm(dim=0) > goal
        if not going.any():
            return x
        image = product(direction)
        step = torch.where(going, rho / (direction * image).sum(0).clamp_min(1e-300), 0.0)
        x, residual = x + step * direction, residual - step * image
        z = low_rank_solve(rows, residual)
        new = (residual * z).sum(0)
        direction, rho = z + torch.where(going, new / rho.clamp_min(1e-300), 0.0) * direction, new
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"conjugate gradients stopped after {MOST_ITERATIONS} iterations, before the residual fell to tol={rows.tol:g}: raise "
        "n_inducing= for a better preconditioner, or use ConjugateGradients(tol=...) with a larger tol.",
        ConvergenceWarning,
        stacklevel=4,
    )
    return x


def _product(model: FittedModel, rows: TrainingRows) -> Any:
    """Return the map V → (K + B⁻¹) V; the Gram matrix is kept, or made in pieces."""
    N = len(rows.X)
    size = N if 8 * N * N <= HELD_BYTES else max(1, HELD_BYTES // (8 * N))
    held = [_cross(model, rows.X, rows.X)] if size == N else None

    def apply(V: Tensor) -> Tensor:
        pieces = held or (_cross(model, rows.X, part) for part in torch.split(rows.X, size))
        return torch.cat([piece.mT @ V for piece in pieces]) + V / rows.weight[:, None]

    return apply


def _cross(model: FittedModel, X: Tensor, new: Tensor) -> Tensor:
    """k(X, new), [N n]."""
    return model.prior.kernel.cross(X.to(model.mean)[None], new.to(model.mean))[0].double()


@torch.no_grad()
def _latent_from_rows(model: FittedModel, rows: TrainingRows, new: Tensor) -> Normal:
    """Return mean and variance of f at new rows [n]; Nyström's variances below 0 become 0."""
    size = max(1, PREDICT_BYTES // (8 * len(rows.X)))
    parts = [_joint_from_rows(model, rows, piece) for piece in torch.split(new, size)]
    mean, var = torch.cat([m for m, _ in parts]), torch.cat([cov.diagonal() for _, cov in parts])
    return Normal(mean, var.clamp_min(0))


@torch.no_grad()
def _joint_from_rows(model: FittedModel, rows: TrainingRows, new: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean [n] and covariance [n n]: k(X, ·)ᵀα and k − k(X, ·)ᵀ (…)⁻¹ k(X, ·)."""
    k = _cross(model, rows.X, new)
    prior = model.prior.among(new.to(model.mean))[0].double()
    return k.mT @ rows.alpha, prior - k.mT @ solve(model, rows, k)


def _nearest_covariance(cov: Tensor) -> Tensor:
    """Return the nearest positive semi-definite matrix: a solution to `tol` leaves small negative eigenvalues at small noise."""
    values, vectors = torch.linalg.eigh(0.5 * (cov + cov.mT))
    if bool(values[0] >= 0):
        return 0.5 * (cov + cov.mT)
    return (vectors * values.clamp_min(0)) @ vectors.mT


@torch.no_grad()
def committee(model: FittedModel, members: Normal, new: Tensor) -> Normal:
    r"""Combine predictions of single rows: 1/v = Σ 1/v_i − (p − 1)/k(x, x),  m = v Σ m_i/v_i.        [thesis 4.10]"""
    p = members.mean.shape[1]
    prior = model.prior.kernel.diag(new.to(model.mean))[0].double().cpu()
    precision = members.var.clamp_min(1e-300).reciprocal()
    var = (precision.sum(1) - (p - 1) / prior).reciprocal()
    return Normal(var * (precision * members.mean).sum(1), var)


@torch.no_grad()
def committee_joint(model: FittedModel, new: Tensor) -> tuple[Tensor, Tensor]:
    r"""Combine joint predictions: C⁻¹ = Σ C_i⁻¹ − (p − 1) K⁻¹,  m = C Σ C_i⁻¹ m_i."""
    rows = new.to(model.mean)
    a = model.prior.project_with(model.prior_lower, rows).a
    half = solve_lower(model.lower, a).double()
    prior = model.prior.among(rows)[0].double()
    each = half.mT @ half + prior - (a.mT @ a).double()  # [p n n]
    mean = (model.mean[:, None] @ a)[:, 0].double()
    eye = torch.eye(len(rows), dtype=torch.float64, device=rows.device)
    small = 1e-10 * prior.diagonal().mean() * eye  # smooth functions at near rows have singular covariances
    inverse = torch.linalg.inv(each + small)
    cov = torch.linalg.inv(inverse.sum(0) - (len(a) - 1) * torch.linalg.inv(prior + small))
    return cov @ (inverse @ mean[..., None]).sum(0)[:, 0], 0.5 * (cov + cov.mT)


def predict_moments(
    model: FittedModel, rows: TrainingRows | None, with_residual: bool, new: Tensor
) -> Normal:
    """Return mean and variance of f at each new row, [n]."""
    if rows is not None:
        return _latent_from_rows(model, rows, new)
    f = Normal(*(t.cpu() for t in predict_latent(model, new)[:2]))
    if len(model.lower) > 1:
        return committee(model, f, new)
    var = f.var[:, 0]
    return Normal(f.mean[:, 0], var if with_residual else var - residual(model, new))


def predict_targets(
    model: FittedModel,
    new: Array,
    *,
    rows: TrainingRows | None,
    with_residual: bool,
    units: tuple[float, float],
    noise: float,
) -> tuple[Array, Array]:
    """Return mean and standard deviation in the units of y, each [n]; `noise` is a variance added to that of f."""
    shift, scale = units
    f = predict_moments(model, rows, with_residual, as_tensor(new))
    std = (f.var.clamp_min(0) + noise).sqrt()
    return shift + scale * f.mean.cpu().numpy(), scale * std.cpu().numpy()


def predict_joint(
    model: FittedModel, rows: TrainingRows | None, with_residual: bool, new: Tensor
) -> tuple[Tensor, Tensor]:
    """Return mean [n] and covariance [n n] of f."""
    if rows is not None:
        mean, cov = _joint_from_rows(model, rows, new)
        return mean, cov if rows.tol == 0 else _nearest_covariance(cov)
    if len(model.lower) > 1:
        return committee_joint(model, new)
    return joint_over_rows(model, new, with_residual)


def draw_normal(mean: Array, cov: Array, n: int, rng: np.random.RandomState) -> Array:
    """Return mean + root · N(0, I), [N n]. The root is by eigenvalues: smooth functions have singular covariances."""
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(mean[:, None] + root @ rng.standard_normal((len(mean), n)))
