"""The projection of the rows of a small table as a function of the hyper-parameters, with its way back. [METHOD 2]

At fixed Z and X the squared differences and products of their columns are computed once. A covariance of the default kernel is
then one product of such a table with 1/ℓ², and so is its gradient: in NumPy a tenth of the time of torch, which does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cavity.common.namespaces import NUMPY
from cavity.inference import Engine
from cavity.inference.batch_sites import pull_back
from cavity.kernels import RBF, Linear, Sum
from cavity.kernels.prior import Prior

Array = NDArray[np.float64]


class Projected(NamedTuple):
    """A projection, and the function that carries cotangents of a and k(x, x) + s to the hyper-parameters."""

    a: Array  # [C M N]
    r: Array  # [C N]
    pull_back: Callable[[Array, Array], Array]


# of θ and the jitter; raises LinAlgError if k(Z, Z) has no factor
Project = Callable[[Array, Tensor], Projected]


def fix_rows(engine: Engine, X: Tensor) -> Project:
    """Return the projection of these rows, in NumPy if the kernel is a sum of RBF and linear ones at fixed points."""
    prior = engine.prior
    kinds = {type(module) for module in prior.modules()} - {type(prior)}
    usual = type(prior) is Prior and not prior.learn_inducing and kinds <= {RBF, Linear, Sum}
    return ArrayPrior(engine, X).project if usual else lambda *at: project_in_torch(engine, X, *at)


def project_in_torch(engine: Engine, X: Tensor, theta: Array, jitter: Tensor) -> Projected:
    engine.load(torch.from_numpy(theta))
    with torch.enable_grad():
        p = engine.prior.project(X, jitter)
    if bool(p.failed):
        raise np.linalg.LinAlgError

    def carry(*cotangents: Array) -> Array:
        pairs = list(zip((p.a, p.variance), map(torch.from_numpy, cotangents), strict=True))
        return np.asarray(pull_back(pairs, tuple(engine.parameters.values())).numpy())

    return Projected(p.a.detach().numpy(), p.r.detach().numpy(), carry)


class Term:
    """σ² exp(table·ℓ⁻²) or σ² table·ℓ⁻²: an RBF or linear kernel at fixed points, as a flat array of T = M (M + N) pairs."""

    def __init__(self, kernel: RBF | Linear, Z: Tensor, X: Tensor) -> None:
        self.is_rbf = isinstance(kernel, RBF)
        U, V = kernel.to_units(Z)[:, :, None], kernel.to_units(X)
        pairs = [-0.5 * (U - W).square() if self.is_rbf else U * W for W in (U.transpose(1, 2), V)]
        self.table = _by_lengthscale(kernel, torch.cat([x.flatten(1, 2) for x in pairs], 1))  # [C T D]
        rows = torch.zeros_like(V) if self.is_rbf else torch.tensor(kernel.formula(NUMPY).squares(X.numpy()))  # type: ignore[union-attr]
        self.squares = _by_lengthscale(kernel, rows)  # [N D]

    def evaluate(self, log_scale: Array, log_variance: Array) -> tuple[Array, Array]:
        """Return the covariances [C T] and k(x, x), [C N], at log ℓ [C D] and log σ² [C]."""
        self.inverse, self.variance = np.exp(-2 * log_scale), np.exp(log_variance)[:, None]
        inner = (self.table @ self.inverse[..., None])[..., 0]
        self.K = self.variance * (np.exp(inner) if self.is_rbf else inner)
        self.diag = self.variance * (float(self.is_rbf) + self.inverse @ self.squares.T)
        return self.K, self.diag

    def differentiate(self, K_bar: Array, diag_bar: Array) -> tuple[Array, Array]:
        """Return the cotangents of log ℓ [C D] and log σ² [C] at the last point, given those of its covariances."""
        E = K_bar * self.K
        inner_bar = E if self.is_rbf else K_bar * self.variance
        inverse_bar = (inner_bar[:, None] @ self.table)[:, 0] + (self.variance * diag_bar) @ self.squares
        return -2 * self.inverse * inverse_bar, E.sum(1) + (diag_bar * self.diag).sum(1)


def _by_lengthscale(kernel: RBF | Linear, table: Tensor) -> Array:
    """Sum over the columns that share a lengthscale."""
    if kernel.group is not None:
        size = kernel.log_lengthscale.shape[1]
        table = table.new_zeros(*table.shape[:-1], size).index_add_(-1, kernel.group, table)
    return np.ascontiguousarray(table.detach().numpy())


class ArrayPrior:
    """The projection of one table in NumPy."""

    def __init__(self, engine: Engine, X: Tensor) -> None:
        prior: Any = engine.prior
        (self.C, self.M), self.places = engine.shape, engine.places
        parts = dict(prior.named_modules()).items()
        self.terms = {name: Term(part, prior.Z, X) for name, part in parts if isinstance(part, RBF | Linear)}
        self.noise = "log_noise" if prior.learn_noise else "fixed_noise"
        self.held = {name: x.detach().numpy().copy() for name, x in prior.state_dict().items()}
        self.eye = np.eye(self.M)
        self.half = np.tril(np.ones_like(self.eye)) - 0.5 * self.eye

    def project(self, theta: Array, jitter: Tensor) -> Projected:
        r"""Project the rows: a = L⁻¹ k(Z, x),    r = k(x, x) + s − |a|².        [METHOD 2]"""
        logs = [[self._read(name, theta) for name in _logs(path)] for path in self.terms]
        found = [term.evaluate(*at) for term, at in zip(self.terms.values(), logs, strict=True)]
        K, diag = (sum(x[1:], x[0]) for x in zip(*found, strict=True))
        noise = self._read(self.noise, theta)[:, None]
        noise = np.exp(noise) if self.noise in self.places else noise
        full, cross = K[:, : self.M**2].reshape(-1, self.M, self.M), K[:, self.M**2 :]
        full = full + float(jitter) * _mean_diagonal(full) * self.eye
        inverse = np.linalg.inv(np.linalg.cholesky(full))
        a = inverse @ cross.reshape(len(K), self.M, -1)
        r = np.maximum(diag + noise - np.einsum("cmn,cmn->cn", a, a), 0)

        def carry(G_a: Array, G_r: Array) -> Array:
            bars = self._pull_whitened(a, inverse, _sum_shared(G_a, a), float(jitter))
            gradient = np.zeros_like(theta)
            for (path, term), at in zip(self.terms.items(), logs, strict=True):
                slopes = term.differentiate(bars, _sum_shared(G_r, a))
                self._write(gradient, zip(_logs(path), at, slopes, strict=True))
            self._write(gradient, [(self.noise, noise[:, 0], G_r.sum(1) * noise[:, 0])])
            return gradient

        return Projected(np.repeat(a, self.C // len(a), 0), np.repeat(r, self.C // len(r), 0), carry)

    def _pull_whitened(self, a: Array, inverse: Array, G: Array, jitter: float) -> Array:
        """Return the cotangents of k(Z, Z) and k(Z, X), [C T], as `linalg.whiten` does."""
        turned = inverse.transpose(0, 2, 1)
        K_bar = -turned @ ((G @ a.transpose(0, 2, 1)) * self.half) @ inverse
        K_bar += jitter * _mean_diagonal(K_bar) * self.eye
        return np.concatenate([x.reshape(len(a), -1) for x in (K_bar, turned @ G)], 1)

    def _read(self, name: str, theta: Array) -> Array:
        """Return a parameter's part of θ, or its own value if it is fixed."""
        held: Array = self.held[name]
        return theta[self.places[name]].reshape(held.shape) if name in self.places else held

    def _write(self, gradient: Array, found: Any) -> None:
        """Add slopes to their places if they are learnt; what classes share is summed."""
        for name, value, slope in found:
            if name in self.places:
                gradient[self.places[name]] = _sum_shared(slope, value).ravel()


def _logs(path: str) -> tuple[str, str]:
    return f"{path}.log_lengthscale", f"{path}.log_variance"


def _mean_diagonal(K: Array) -> Array:
    return np.asarray(np.trace(K, axis1=1, axis2=2)[:, None, None] / K.shape[1])


def _sum_shared(x: Array, shared: Array) -> Array:
    """Sum over classes if they share the value."""
    return x.sum(0, keepdims=True) if len(shared) < len(x) else x
