"""The projection of a small table in NumPy: RBF and linear kernels at fixed inducing inputs, with derivatives in closed form.

Z and X do not move, so the squared differences and the products of their columns are computed once. A covariance is then one
product of such a table with the inverse squared lengthscales, and so is its gradient. [METHOD 2]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.inference import Engine
from cavity.kernels import RBF, Linear, Sum
from cavity.kernels.prior import Prior

Array = NDArray[np.float64]


class Projected(NamedTuple):
    """A projection, and the function that carries its cotangents to the hyper-parameters."""

    a: Array  # [C M N]
    r: Array  # [C N]
    pull_back: Callable[[Array, Array], Array]  # of a [C M N] and k(x, x) + s [C N]; returns [P]


class Term(Protocol):
    """One kernel at fixed points: covariances of M points with M points and N rows, flat, as T = M (M + N) pairs."""

    def evaluate(self, log_scale: Array, log_variance: Array) -> tuple[Array, Array]:
        """Return the covariances [C T] and k(x, x), [C N] or [C 1]."""

    def differentiate(self, pairs: Array, diag: Array) -> tuple[Array, Array]:
        """Return the cotangents of log ℓ [C D] and log σ² [C] at the last point, given those of the covariances."""


class SquaredExponential:
    """σ² exp(−½ Σ_d Δ_d²/ℓ_d²)."""

    def __init__(self, kernel: RBF, Z: Tensor, X: Tensor) -> None:
        U, V = kernel.to_units(Z), kernel.to_units(X)
        self.table = _pairs(kernel, lambda u, v: (u - v).square(), U, V)

    def evaluate(self, log_scale: Array, log_variance: Array) -> tuple[Array, Array]:
        self.inverse = np.exp(-2 * log_scale)
        K = (self.table @ (-0.5 * self.inverse)[..., None])[..., 0]
        K += log_variance[:, None]
        self.K, self.variance = np.exp(K, out=K), np.exp(log_variance)
        return self.K, self.variance[:, None]

    def differentiate(self, pairs: Array, diag: Array) -> tuple[Array, Array]:
        E = pairs * self.K
        return _contract(E, self.table) * self.inverse, E.sum(1) + self.variance * diag.sum(1)


class Products:
    """σ² Σ_d u_d v_d/ℓ_d²."""

    def __init__(self, kernel: Linear, Z: Tensor, X: Tensor) -> None:
        U, V = kernel.to_units(Z), kernel.to_units(X)
        self.table = _pairs(kernel, torch.mul, U, V)
        self.squares = _by_lengthscale(kernel, V.square())  # [N D]

    def evaluate(self, log_scale: Array, log_variance: Array) -> tuple[Array, Array]:
        self.weight = np.exp(log_variance[:, None] - 2 * log_scale)
        return (self.table @ self.weight[..., None])[..., 0], self.weight @ self.squares.T

    def differentiate(self, pairs: Array, diag: Array) -> tuple[Array, Array]:
        moved = (_contract(pairs, self.table) + diag @ self.squares) * self.weight
        return -2 * moved, moved.sum(1)


def _pairs(kernel: RBF | Linear, combine: Callable[[Tensor, Tensor], Tensor], U: Tensor, V: Tensor) -> Array:
    """Combine each column of all pairs within U and between U and V, [C T D]."""
    within, between = combine(U[:, :, None], U[:, None]), combine(U[:, :, None], V)
    return _by_lengthscale(kernel, torch.cat([within.flatten(1, 2), between.flatten(1, 2)], 1))


def _by_lengthscale(kernel: RBF | Linear, table: Tensor) -> Array:
    """Sum over the columns that share a lengthscale."""
    if kernel.group is not None:
        size = kernel.log_lengthscale.shape[1]
        table = table.new_zeros(*table.shape[:-1], size).index_add_(-1, kernel.group, table)
    return np.ascontiguousarray(table.detach().numpy())


def _contract(E: Array, table: Array) -> Array:
    """Return Σ over pairs, [C T] × [C T D] → [C D]."""
    return np.asarray((E[:, None] @ table)[:, 0])


class ArrayPrior:
    """The projection of one table as a function of the flat vector of hyper-parameters."""

    def __init__(self, engine: Engine, terms: dict[str, Term]) -> None:
        self.prior, self.terms, self.M = engine.prior, terms, engine.prior.size
        self.half = np.tril(np.ones((self.M, self.M))) - 0.5 * np.eye(
            self.M
        )  # lower triangle, diagonal halved
        self.places = engine.places
        self.shapes = {name: p.shape for name, p in engine.parameters.items()}
        self.fixed = {
            name: x.detach().numpy()
            for name, x in chain(self.prior.named_parameters(), self.prior.named_buffers())
            if name not in self.places
        }
        self.noise = "log_noise" if self.prior.learn_noise else "fixed_noise"

    def project(self, theta: Array, jitter: float) -> Projected | None:
        r"""Project the rows: a = L⁻¹ k(Z, x),    r = k(x, x) + s − |a|²; None if k(Z, Z) has no factor.        [METHOD 2]"""
        with np.errstate(over="ignore", invalid="ignore"):
            return self._project(theta, jitter)

    def _project(self, theta: Array, jitter: float) -> Projected | None:
        C, M = self.prior.n_latent, self.M
        found = [term.evaluate(*self._read(path, theta)) for path, term in self.terms.items()]
        K, diag = (sum(x[1:], x[0]) for x in zip(*found, strict=True))
        noise = self._get(self.noise, theta)
        noise = np.exp(noise) if self.prior.learn_noise else noise
        K_zz = K[:, : M * M].copy()
        diagonal = K_zz[:, :: M + 1]
        diagonal += _mean(diagonal, jitter)
        try:
            inverse = np.linalg.inv(np.linalg.cholesky(K_zz.reshape(-1, M, M)))
        except np.linalg.LinAlgError:
            return None
        a = inverse @ K[:, M * M :].reshape(len(K), M, -1)
        r = np.maximum(diag + noise[:, None] - np.einsum("cmn,cmn->cn", a, a), 0)

        def pull_back(G_a: Array, G_variance: Array) -> Array:
            own = self._pull_whitened(a, inverse, _sum_shared(G_a, len(a)), jitter)
            gradient = np.zeros_like(theta)
            for path, term in self.terms.items():
                of_scale, of_variance = term.differentiate(own, _sum_shared(G_variance, len(a)))
                self._put(gradient, f"{path}.log_lengthscale", of_scale)
                self._put(gradient, f"{path}.log_variance", of_variance)
            self._put(gradient, self.noise, G_variance.sum(1) * noise)
            return gradient

        return Projected(_expand(a, C), _expand(r, C), pull_back)

    def _pull_whitened(self, a: Array, inverse: Array, G: Array, jitter: float) -> Array:
        """Return the cotangents of k(Z, Z) and k(Z, X), [C T], as `linalg.whiten` does."""
        turned = inverse.transpose(0, 2, 1)
        K_zz = -(turned @ ((G @ a.transpose(0, 2, 1)) * self.half) @ inverse).reshape(len(a), -1)
        diagonal = K_zz[:, :: self.M + 1]
        diagonal += _mean(diagonal, jitter)
        return np.concatenate([K_zz, (turned @ G).reshape(len(a), -1)], 1)

    def _read(self, path: str, theta: Array) -> tuple[Array, Array]:
        return self._get(f"{path}.log_lengthscale", theta), self._get(f"{path}.log_variance", theta)

    def _get(self, name: str, theta: Array) -> Array:
        """Return a parameter's part of θ, or its value if it is fixed."""
        return (
            theta[self.places[name]].reshape(self.shapes[name]) if name in self.places else self.fixed[name]
        )

    def _put(self, gradient: Array, name: str, found: Array) -> None:
        """Set a parameter's part of the gradient; classes that share it are summed."""
        if name in self.places:
            gradient[self.places[name]] = _sum_shared(found, self.shapes[name][0]).ravel()


def _expand(x: Array, C: int) -> Array:
    """Return values of all classes, [C ...], if they share one."""
    return x if len(x) == C else np.broadcast_to(x, (C, *x.shape[1:]))


def _mean(diagonal: Array, jitter: float) -> Array:
    """Return jitter times the mean of each diagonal, [C M] → [C 1]; `mean` itself takes several times as long."""
    total: Array = np.add.reduce(diagonal, 1, keepdims=True)
    total *= jitter / diagonal.shape[1]
    return total


def _sum_shared(x: Array, n: int) -> Array:
    """Sum over classes if n = 1 of them stands for all."""
    return x.sum(0, keepdims=True) if n < len(x) else x


def make_array_prior(engine: Engine, X: Tensor) -> ArrayPrior | None:
    """Return the projection of these rows in NumPy; None for other kernels, or if Z is learnt."""
    prior, kernel = engine.prior, engine.prior.kernel
    parts: dict[str, Any] = {"kernel": kernel}
    if type(kernel) is Sum:
        parts = {"kernel.k1": kernel.k1, "kernel.k2": kernel.k2}
    kinds: dict[type, Callable[..., Term]] = {RBF: SquaredExponential, Linear: Products}
    if type(prior) is not Prior or any(type(part) not in kinds for part in parts.values()):
        return None
    known = {f"{path}.{name}" for path in parts for name in ("log_lengthscale", "log_variance")}
    learnt = {name for name in known if prior.get_parameter(name).requires_grad}
    if learnt | ({"log_noise"} if prior.learn_noise else set()) != set(engine.parameters):
        return None
    with torch.no_grad():
        return ArrayPrior(engine, {path: kinds[type(part)](part, prior.Z, X) for path, part in parts.items()})
