"""Predict targets from q, from training rows, or by a committee.   [thesis 4.2]

Nyström and conjugate gradients predict from all training rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cavity.common.namespaces import Array, namespace
from cavity.common.slices import slices
from cavity.common.types import Floats
from cavity.prediction.latent import Marginals
from cavity.prediction.model import FittedModel
from cavity.prediction.predict import PREDICT_BYTES, as_rows, predict_latent
from cavity.prediction.target_spread import EVEN, Spread

Units = tuple[float, float]  # shift and scale of the targets
MOST_ITERATIONS = 2000
TINY = 1e-300  # replaces a zero in a denominator
# a Gram matrix up to this size is kept while a system is solved
HELD_BYTES = 512 << 20


class TrainingRows(NamedTuple):
    """Training rows, with what solves their linear system.

        (Q + B⁻¹)⁻¹ = B − B Aᵀ Λ⁻¹ A B      B = diag(ω/σ²)      Λ = I + A B Aᵀ

    Nyström uses this inverse; conjugate gradients use it as a preconditioner for
    K + B⁻¹.
    """

    X: Array  # [N D]
    y: Array  # [N]
    weight: Array  # [N], ω/σ²
    a: Array  # [M N]
    lower: Array  # [M M], factor of Λ
    alpha: Array  # [N], solution of the system for y
    tol: float  # tolerance of conjugate gradients; 0: Nyström

    def to(self, device: Any) -> TrainingRows:
        """Return the rows as arrays of a model on that device."""
        import torch

        moved: dict[str, Any] = {}
        for name in ARRAYS:
            tensor = torch.as_tensor(getattr(self, name)).to(device)
            moved[name] = tensor if tensor.is_cuda else tensor.numpy()
        return self._replace(**moved)


ARRAYS = ("X", "y", "weight", "a", "lower", "alpha")
STORED = "X", "y", "weight", "alpha"  # in model files; `condition` computes the others


def target_noise(model: FittedModel) -> float:
    """Return the variance of the Gaussian likelihood, in the units of the fit."""
    return float(model.outcome.noise)


def low_rank_solve(rows: TrainingRows, V: Array) -> Array:
    """(Q + B⁻¹)⁻¹ V, [N n]."""
    xp = namespace(V)
    B = rows.weight[:, None]
    scaled = B * V
    lower = rows.lower[None]
    inner = xp.solve_lower_t(lower, xp.solve_lower(lower, (rows.a @ scaled)[None]))[0]
    return scaled - B * (rows.a.T @ inner)


def make_training_rows(
    model: FittedModel, X: Any, y: Any, weight: Any, noise: float, tol: float
) -> TrainingRows:
    """Return the training rows with α = (Q + B⁻¹)⁻¹ y or, if tol > 0, (K + B⁻¹)⁻¹ y.

    tol: relative residual of the solution.
    """
    xp = model.xp
    X, y, weight = (
        xp.double(t if namespace(t) is xp else xp.like(t, model.mean))
        for t in (X, y, weight)
    )
    rows = condition(model, X, y, weight / noise, 0 * y, tol=tol)
    return rows._replace(alpha=solve(model, rows, y[:, None])[:, 0])


def condition(
    model: FittedModel, X: Array, y: Array, weight: Array, alpha: Array, *, tol: float
) -> TrainingRows:
    """Return the training rows with A = L⁻¹ k(Z, X) and the factor of I + A B Aᵀ."""
    xp = model.xp
    projection, _ = model.project(as_rows(model, X))
    a = xp.double(projection)[0]
    lower = xp.linalg.cholesky(xp.like(np.eye(len(a)), a) + (a * weight) @ a.T)
    return TrainingRows(X, y, weight, 1 * a, lower, alpha, tol)


def solve(model: FittedModel, rows: TrainingRows, V: Array) -> Array:
    """Solve the system for each column of V [N n]."""
    if rows.tol == 0:
        return low_rank_solve(rows, V)

    return conjugate_gradients(model, rows, V)


def _norm(V: Array) -> Array:
    return (V * V).sum(0) ** 0.5


def conjugate_gradients(model: FittedModel, rows: TrainingRows, V: Array) -> Array:
    """Solve (K + B⁻¹) x = V for all columns at once; converged columns stop.

    The low-rank inverse (Q + B⁻¹)⁻¹ is the preconditioner.
    """
    product = _product(model, rows)
    xp = namespace(V)
    x = 0 * V
    residual = 1 * V
    z = low_rank_solve(rows, residual)
    direction = z
    rho = (residual * z).sum(0)
    goal = rows.tol * xp.maximum(_norm(V), TINY)
    for _ in range(MOST_ITERATIONS):
        going = _norm(residual) > goal
        if not going.any():
            return x

        image = product(direction)
        curvature = xp.maximum((direction * image).sum(0), TINY)
        step = xp.where(going, rho / curvature, 0.0)
        x = x + step * direction
        residual = residual - step * image
        z = low_rank_solve(rows, residual)
        new = (residual * z).sum(0)
        turn = xp.where(going, new / xp.maximum(rho, TINY), 0.0)
        direction = z + turn * direction
        rho = new

    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"conjugate gradients stopped after {MOST_ITERATIONS} iterations, before the "
        f"residual fell to tol={rows.tol:g}: raise n_inducing= for a better "
        "preconditioner, or use ConjugateGradients(tol=...) with a larger tol.",
        ConvergenceWarning,
        stacklevel=4,
    )
    return x


def _product(model: FittedModel, rows: TrainingRows) -> Callable[[Array], Array]:
    """Return the map V → (K + B⁻¹) V; a large K is computed in pieces, each time."""
    N = len(rows.X)
    fits = 8 * N * N <= HELD_BYTES
    size = N if fits else max(1, HELD_BYTES // (8 * N))
    held = [_cross(model, rows.X, rows.X)] if fits else None

    def apply(V: Array) -> Array:
        pieces = held or (
            _cross(model, rows.X, rows.X[piece]) for piece in slices(N, size)
        )
        image = model.xp.join([piece.T @ V for piece in pieces])
        return image + V / rows.weight[:, None]

    return apply


def _cross(model: FittedModel, X: Array, new: Array) -> Array:
    """k(X, new), [N n]."""
    X = as_rows(model, X)
    new = as_rows(model, new)
    return model.xp.double(model.formula.cross(model.formula.prepare(X[None]), new)[0])


def _latent_from_rows(model: FittedModel, rows: TrainingRows, new: Array) -> Marginals:
    """Return mean and variance of f at new rows [n], without negative variances."""
    size = max(1, PREDICT_BYTES // (8 * len(rows.X)))
    means = []
    variances = []
    for start in range(0, len(new), size):
        mean, cov = _joint_from_rows(model, rows, new[start : start + size])
        means.append(mean)
        variances.append(cov.diagonal().copy())  # not a view: it would keep cov

    return Marginals(np.concatenate(means), np.maximum(np.concatenate(variances), 0))


def _joint_from_rows(
    model: FittedModel, rows: TrainingRows, new: Array
) -> tuple[Floats, Floats]:
    """Return mean [n] and covariance [n n] of f at new rows.

    mean  k(X, ·)ᵀ α      covariance  k(·, ·) − k(X, ·)ᵀ (…)⁻¹ k(X, ·)
    """
    k = _cross(model, rows.X, new)
    xp = model.xp
    prior = xp.double(model.among(as_rows(model, new))[0])
    return xp.host(k.T @ rows.alpha), xp.host(prior - k.T @ solve(model, rows, k))


def _nearest_covariance(cov: Floats) -> Floats:
    """Return the nearest positive semi-definite matrix.

    With small noise, a solution to `tol` leaves small negative eigenvalues.
    """
    cov = 0.5 * (cov + cov.T)
    values, vectors = np.linalg.eigh(cov)
    if values[0] >= 0:
        return cov

    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def committee(model: FittedModel, members: Marginals, new: Array) -> Marginals:
    r"""Combine predictions of the p members at single rows.   [thesis 4.10]

    1/v = Σ 1/v_i − (p − 1)/k(x, x)      m = v Σ m_i/v_i
    """
    p = members.mean.shape[1]
    prior = model.xp.host(model.formula.diag(as_rows(model, new))[0])
    precision = 1 / np.maximum(members.var, TINY)
    var = 1 / (precision.sum(1) - (p - 1) / prior)
    return Marginals(var * (precision * members.mean).sum(1), var)


def committee_joint(mean: Floats, cov: Floats, prior: Floats) -> tuple[Floats, Floats]:
    r"""Combine joint predictions of the p members, [p n] and [p n n].

    C⁻¹ = Σ C_i⁻¹ − (p − 1) K⁻¹      m = C Σ C_i⁻¹ m_i
    """
    p = len(cov)
    # rows near each other have singular covariances
    small = 1e-10 * prior.diagonal().mean() * np.eye(len(prior))
    inverse = np.linalg.inv(cov + small)
    precision = inverse.sum(0) - (p - 1) * np.linalg.inv(prior + small)
    joint = np.linalg.inv(precision)
    shift = (inverse @ mean[..., None]).sum(0)[:, 0]
    return joint @ shift, 0.5 * (joint + joint.T)


def residual(model: FittedModel, new: Any) -> Floats:
    """Return the residual r of a single latent function at new rows, [n]."""
    _, r = model.project(as_rows(model, new))
    return np.asarray(model.xp.host(r)[0])


def predict_values(
    model: FittedModel, rows: TrainingRows | None, with_residual: bool, new: Any
) -> Marginals:
    """Return mean and variance of f at each new row, [n], as NumPy arrays."""
    if rows is not None:
        return _latent_from_rows(model, rows, as_rows(model, new))

    f = Marginals(*map(model.xp.host, predict_latent(model, new)))
    if len(model.lower) > 1:
        return committee(model, f, new)

    mean = f.mean[:, 0]
    var = f.var[:, 0]
    if not with_residual:
        var = var - residual(model, new)
    return Marginals(mean, var)


def predict_targets(
    model: FittedModel,
    new: Floats,
    rows: TrainingRows | None,
    with_residual: bool,
    units: Units,
    noise: float,
    *,
    spread: Spread = EVEN,
) -> tuple[Floats, Floats]:
    """Return mean and standard deviation in the units of y, each [n].

    `noise` is added to the variance of f; `spread` scales the standard deviation.
    """
    shift, scale = units
    f = predict_values(model, rows, with_residual, new)
    sd = spread.at(new, f.mean) * np.sqrt(np.maximum(f.var, 0) + noise)
    return shift + scale * f.mean, scale * sd


def predict_joint(
    model: FittedModel, rows: TrainingRows | None, with_residual: bool, new: Any
) -> tuple[Floats, Floats]:
    """Return mean [n] and covariance [n n] of f."""
    X = as_rows(model, new)
    if rows is not None:
        mean, cov = _joint_from_rows(model, rows, X)
        if rows.tol > 0:
            cov = _nearest_covariance(cov)
        return mean, cov

    xp = model.xp
    projection, _ = model.project(X)
    mean = xp.host((model.mean[:, None] @ projection)[:, 0])
    half = xp.host(xp.solve_lower(model.lower, projection))
    a = xp.host(projection)
    prior = xp.host(model.among(X)[0])
    cov = half.swapaxes(1, 2) @ half  # AᵀΣA of each latent function
    if len(cov) > 1:
        cov = cov + prior - a.swapaxes(1, 2) @ a
        return committee_joint(mean, cov, prior)
    if not with_residual:
        return mean[0], cov[0]

    return mean[0], cov[0] + prior - a[0].T @ a[0]


def draw_normal(
    mean: Floats, cov: Floats, n: int, rng: np.random.RandomState
) -> Floats:
    """Draw from N(mean, cov), [N n].

    The root of cov comes from eigenvalues: smooth functions have singular covariances.
    """
    values, vectors = np.linalg.eigh(cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(mean[:, None] + root @ rng.standard_normal((len(mean), n)))
