"""A fitted model in NumPy: predicts a few rows before torch could be loaded. `model` has the formulas. [METHOD 8]"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity import tails
from cavity.array_kernels import Covariance
from cavity.prediction.pool import NO_POOL, Pool, normalised
from cavity.quadrature import single

Array = NDArray[np.float64]


class ArrayModel(NamedTuple):
    """q(w) and the projection that it belongs to, in float64, with a probit or Gaussian likelihood."""

    covariance: Covariance  # at the inducing points
    noise: Array  # [C] or [1]
    prior_lower: Array  # [C M M] or [1 M M], factor of k(Z, Z)
    mean: Array  # [C M]
    lower: Array  # [C M M], factor of Λ
    pool: Pool = NO_POOL

    @property
    def work_per_row(self) -> float:
        """Time and memory that a row takes, in units of about 0.02 ms: the quadrature's, and the projection's."""
        C, M = self.mean.shape
        return float(16.0 + C + 0.01 * C * M)

    def predict_latent(self, X: Array) -> tuple[Array, Array]:
        """Return mean and variance of f at rows, noise included, each [n C]."""
        a = _solve_lower(self.prior_lower, self.covariance.cross(X))  # [C M n] or [1 M n]
        own = self.covariance.diag(X) + self.noise[:, None] - np.einsum("cmn,cmn->cn", a, a)
        half = _solve_lower(self.lower, a)
        mean = (self.mean[:, None] @ a)[:, 0].T
        var = (np.maximum(own, 0) + np.einsum("cmn,cmn->cn", half, half)).T
        return mean, var

    def predict_log_proba(self, X: Array) -> Array | None:
        """Return logarithms of the class probabilities, [n C]; None if the short quadrature does not resolve a row."""
        mean, var = self.predict_latent(X)
        if not (np.isfinite(mean).all() and (var > 0).all() and np.isfinite(var).all()):
            return None
        log_p = _two_classes(mean, var) if mean.shape[1] == 1 else _largest(mean, var)
        return None if log_p is None else self.pool.combine(log_p, X)


def _solve_lower(lower: Array, B: Array) -> Array:
    """Return lower⁻¹ B, [C M n], by forward substitution: NumPy would factorise the triangle again."""
    X = np.broadcast_to(B, (max(len(lower), len(B)), *B.shape[1:])).copy()
    for i in range(X.shape[1]):
        X[:, i] -= (lower[:, i, None, :i] @ X[:, :i])[:, 0]
        X[:, i] /= lower[:, i, i, None]
    return X


def _two_classes(mean: Array, var: Array) -> Array:
    """Return log Φ(∓m/√v), [n 2]."""
    alpha = mean / np.sqrt(var)
    return np.concatenate([tails.log_ndtr(-alpha), tails.log_ndtr(alpha)], 1)


def _largest(mean: Array, var: Array) -> Array | None:
    """Return log P(each class is the largest), normalised, [n C]."""
    found = [single.log_probabilities(m, s, tails) for m, s in zip(mean, np.sqrt(var), strict=True)]
    rows = [row for row in found if row is not None]
    return normalised(np.stack(rows)) if len(rows) == len(found) else None
