"""The projection of a mini-batch in NumPy: RBF and linear kernels whose inducing inputs move, with derivatives in closed form.

The equations are those of `kernels.distance`, `kernels.linear` and `linalg.whiten`. A NumPy call costs a third of a torch call, and
BLAS and LAPACK are called in place, one latent function at a time. [METHOD 2]
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from torch import nn

from cavity.inference.array_projection import Array, Places, Projected, sum_shared
from cavity.kernels import RBF, Linear, Sum
from cavity.kernels.scaled import ROW_REACH
from cavity.prior import Prior


class Covariances(NamedTuple):
    """What one kernel contributes, or the cotangents of it."""

    within: Array  # [C M M]
    between: Array  # [C M B]
    diag: Array  # [C 1] or [C B], k(x, x)


class Pulled(NamedTuple):
    """Cotangents of a kernel's arguments."""

    U: Array  # [C M D]
    log_scale: Array  # [C D]
    log_variance: Array  # [C]


class Term(Protocol):
    """One kernel between points U [C M D] and rows V [B D] in units of the spread."""

    def evaluate(self, U: Array, V: Array, log_scale: Array, log_variance: Array) -> Covariances:
        """Return the covariances."""

    def differentiate(self, bar: Covariances) -> Pulled:
        """Return the cotangents of the last arguments, given those of the covariances."""


class SquaredExponential:
    """σ² exp(−½ |u − v|²/ℓ²). The exponent is one product: (u/ℓ², −½|u/ℓ|² + log σ², 1) · (v, 1, −½|v/ℓ|²)."""

    def evaluate(self, U: Array, V: Array, log_scale: Array, log_variance: Array) -> Covariances:
        inverse = np.exp(-2 * log_scale)[:, None]
        weighted, squares, most = U * inverse, V * V, log_variance[:, None]
        u2, v2 = -0.5 * (U * weighted).sum(2), inverse[:, 0] @ (-0.5 * squares.T)
        C = len(weighted)
        left = _extend(C, weighted, u2 + most, 1)
        self.points, self.rows = _extend(C, U, 1, u2), _extend(C, V, 1, v2)
        self.within, self.between = (left @ x.transpose(0, 2, 1) for x in (self.points, self.rows))
        for exponent in (self.within, self.between):
            np.minimum(exponent, most[..., None], out=exponent)
            torch.from_numpy(exponent).exp_()  # vectorised on every processor, unlike NumPy's
        self.variance = np.exp(most)
        diagonal(self.within)[:] = self.variance
        self.U, self.squares, self.inverse = U, squares, inverse
        return Covariances(self.within, self.between, self.variance)

    def differentiate(self, bar: Covariances) -> Pulled:
        U, D = self.U, self.U.shape[2]
        E, F = bar.within * self.within, bar.between * self.between
        A = E + E.transpose(0, 2, 1)
        pulled = F @ self.rows[..., :-1]  # F v, and the sums of F's rows in the last column
        of_variance = 0.5 * A.sum((1, 2)) + pulled[..., D].sum(1) + bar.diag.sum(1) * self.variance[:, 0]
        R = F.sum(1) @ self.squares - (U * pulled[..., :D]).sum(1)
        diagonal(A)[:] = 0
        pulled += A @ self.points[..., :-1]
        T = pulled[..., :D] - pulled[..., D:] * U
        return Pulled(T * self.inverse, (R - (U * T).sum(1)) * self.inverse[:, 0], of_variance)


class Products:
    """σ² Σ_d u_d v_d/ℓ_d²."""

    def evaluate(self, U: Array, V: Array, log_scale: Array, log_variance: Array) -> Covariances:
        weight = np.exp(log_variance[:, None] - 2 * log_scale)
        self.U, self.V, self.squares, self.weight = U, V, V * V, weight[:, None]
        left = U * self.weight
        return Covariances(left @ U.transpose(0, 2, 1), left @ V.T, weight @ self.squares.T)

    def differentiate(self, bar: Covariances) -> Pulled:
        U, weight = self.U, self.weight
        EU = bar.within @ U + bar.between @ self.V
        moved = ((U * EU).sum(1) + bar.diag @ self.squares) * weight[:, 0]
        EU += bar.within.transpose(0, 2, 1) @ U
        return Pulled(EU * weight, -2 * moved, moved.sum(1))


def _extend(C: int, x: Array, first: Array | int, second: Array | int) -> Array:
    """Return x [n D] or [C n D] with two more columns, [C n D+2]."""
    found = np.empty((C, x.shape[-2], x.shape[-1] + 2), x.dtype)
    found[..., :-2], found[..., -2], found[..., -1] = x, first, second
    return found


def diagonal(matrices: Array) -> Array:
    """Return a view of the diagonals, [C M M] → [C M]."""
    C, M, _ = matrices.shape
    return matrices.reshape(C, M * M)[:, :: M + 1]


def sum_squares(a: Array) -> Array:
    """Return |a|² of every column, [C M B] → [C B]."""
    return np.asarray(np.einsum("cmb,cmb->cb", a, a))


class Routines:
    """BLAS and LAPACK of one precision. A matrix [M N] of NumPy is Fortran's [N M], so all solves are from the right."""

    def __init__(self, dtype: Any) -> None:
        like = (np.empty(0, dtype),)
        (self.trsm,) = get_blas_funcs(("trsm",), like)
        self.potrf, self.potrs = get_lapack_funcs(("potrf", "potrs"), like)

    def factorise(self, matrices: Array) -> bool:
        """Overwrite symmetric matrices by their factors Lᵀ (upper triangles); return whether all of them have one."""
        return not any([self.potrf(A.T, lower=1, clean=0, overwrite_a=1)[1] for A in matrices])

    def solve(self, factors: Array, right: Array) -> None:
        """Overwrite B by L⁻¹ B."""
        for L, B in zip(factors, right, strict=True):
            self.trsm(1.0, L.T, B.T, side=1, lower=1, trans_a=1, overwrite_b=1)

    def solve_t(self, factors: Array, right: Array) -> None:
        """Overwrite B by L⁻ᵀ B."""
        for L, B in zip(factors, right, strict=True):
            self.trsm(1.0, L.T, B.T, side=1, lower=1, overwrite_b=1)

    def solve_right(self, factors: Array, left: Array) -> None:
        """Overwrite B by B L⁻¹."""
        for L, B in zip(factors, left, strict=True):
            self.trsm(1.0, L.T, B.T, lower=1, trans_a=1, overwrite_b=1)


class BatchPrior:
    """The projection of mini-batches as a function of the flat vector of hyper-parameters."""

    def __init__(self, prior: Prior, parameters: tuple[nn.Parameter, ...]) -> None:
        self.prior, self.places, self.kernels = prior, Places(parameters), _parts(prior.kernel)
        first, M = self.kernels[0], prior.size
        self.reach = ROW_REACH[first.unit.dtype]
        self.unit, self.center = first.unit.numpy(), first.center.numpy()
        self.spread, self.origin = prior.spread.numpy(), prior.center.numpy()
        self.dtype, self.group = self.unit.dtype, None if first.group is None else first.group.numpy()
        self.double, self.own = Routines(np.float64), Routines(self.dtype)
        self.half = (np.tril(np.ones((M, M))) - 0.5 * np.eye(M)).astype(self.dtype)

    def project(self, theta: Array, X: Array, jitter: float) -> Projected | None:
        r"""Project rows: a = L⁻¹ k(Z, x),    r = k(x, x) + s − |a|².        [METHOD 2]

        None if k(Z, Z) has no factor, or if rows or points are so far away that the kernels limit their distance.
        """
        U, V = (self._points(theta) - self.center) / self.unit, (X - self.center) / self.unit
        if not (abs(U).max() < self.reach and abs(V).max() < self.reach):
            return None
        terms: list[Term] = [SquaredExponential() if type(k) is RBF else Products() for k in self.kernels]
        found = [t.evaluate(U, V, *self._read(k, theta)) for t, k in zip(terms, self.kernels, strict=True)]
        K, between, diag = (sum(x[1:], x[0]) for x in zip(*found, strict=True))
        factor = K.astype(np.float64)
        on_diagonal = diagonal(factor)
        on_diagonal += jitter * on_diagonal.mean(1, keepdims=True)
        if not self.double.factorise(factor):
            return None
        factor, a = factor.astype(self.dtype, copy=False), between.copy()
        self.own.solve(factor, a)
        noise = self._noise(theta)
        r = np.maximum(diag + noise[:, None] - sum_squares(a), 0)
        return Projected(a, r, partial(self._pull_back, terms, a, factor, jitter, noise))

    def _pull_back(
        self,
        terms: list[Term],
        a: Array,
        factor: Array,
        jitter: float,
        noise: Array,
        G_a: Array,
        G_variance: Array,
    ) -> Array:
        """Return the gradient [P], given the cotangents of a, which are overwritten, and of k(x, x) + s."""
        bar = self._unwhiten(a, factor, jitter, sum_shared(G_a, a), sum_shared(G_variance, a))
        gradient = np.zeros(self.places.size, self.dtype)
        for kernel, term in zip(self.kernels, terms, strict=True):
            pulled = term.differentiate(bar)
            self.places.put(gradient, kernel.log_lengthscale, self._per_lengthscale(kernel, pulled.log_scale))
            self.places.put(gradient, kernel.log_variance, pulled.log_variance)
            self.places.put(gradient, self.prior.inducing, pulled.U * (self.spread / self.unit))
        if self.prior.learn_noise:
            self.places.put(gradient, self.prior.log_noise, G_variance.sum(1) * noise)
        return gradient

    def _unwhiten(self, a: Array, factor: Array, jitter: float, G: Array, diag: Array) -> Covariances:
        """Return the cotangents of the covariances as `linalg.whiten` does; that of k(Z, X) overwrites G."""
        K_bar = G @ a.transpose(0, 2, 1)
        K_bar *= self.half
        self.own.solve_right(factor, K_bar)
        self.own.solve_t(factor, K_bar)
        np.negative(K_bar, out=K_bar)
        on_diagonal = diagonal(K_bar)
        on_diagonal += self.dtype.type(jitter) * on_diagonal.mean(1, keepdims=True)
        self.own.solve_t(factor, G)
        return Covariances(K_bar, G, diag)

    def _points(self, theta: Array) -> Array:
        inducing = self.places.get(self.prior.inducing, theta)
        return self.origin + self.spread * inducing if self.prior.learn_inducing else inducing

    def _noise(self, theta: Array) -> Array:
        prior = self.prior
        if prior.learn_noise:
            return np.asarray(np.exp(self.places.get(prior.log_noise, theta)))
        return np.asarray(prior.fixed_noise.numpy())

    def _read(self, kernel: RBF | Linear, theta: Array) -> tuple[Array, Array]:
        """Return log ℓ of every column, [C D], and log σ²."""
        log_scale = self.places.get(kernel.log_lengthscale, theta)
        return (
            log_scale if self.group is None else log_scale[:, self.group],
            self.places.get(kernel.log_variance, theta),
        )

    def _per_lengthscale(self, kernel: RBF | Linear, found: Array) -> Array:
        """Sum over the columns that share a lengthscale."""
        if self.group is None:
            return found
        total = np.zeros((kernel.log_lengthscale.shape[1], len(found)), found.dtype)
        np.add.at(total, self.group, found.T)
        return total.T


def _parts(kernel: Any) -> list[Any]:
    return [kernel.k1, kernel.k2] if type(kernel) is Sum else [kernel]


def knows_prior(prior: Prior, parameters: tuple[nn.Parameter, ...]) -> bool:
    """Return whether `BatchPrior` knows this prior and its parameters."""
    parts = _parts(prior.kernel)
    if type(prior) is not Prior or any(type(part) not in (RBF, Linear) for part in parts):
        return False
    known = [x for part in parts for x in (part.log_lengthscale, part.log_variance)]
    known += [getattr(prior, name) for name in ("inducing", "log_noise") if hasattr(prior, name)]
    return {id(p) for p in parameters} <= {id(x) for x in known}
