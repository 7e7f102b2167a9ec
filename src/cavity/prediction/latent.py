"""The fitted model as a function of arrays: marginals of f at rows, in torch, NumPy and ONNX. Does not load torch. [METHOD 8]"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import Array, namespace
from cavity.kernels.formulas import Formula
from cavity.likelihoods.quadrature.probabilities import log_largest, log_probit

WIDE = 64  # inducing points from which the zeros of triangular matrices are left out of products on a CPU
BLOCKS = 3  # of rows of such a matrix: more of them leave out more zeros, but are slower per operation


class Form(NamedTuple):
    r"""Matrices that replace triangular solves. With a = L⁻¹ k and I − Λ⁻¹ = U diag(λ) Uᵀ,

    mean  μ·a = (L⁻ᵀ μ)·k        variance  k(x, x) + s − |a|² + aᵀΛ⁻¹a = k(x, x) + s − Σ_i λ_i (UᵀL⁻¹ k)_i²

    On a CPU, if all λ ≥ 0, T replaces √λ UᵀL⁻¹ = QT: lower triangular with |Tk|² = |QTk|².
    """

    matrix: Array  # [C M+1 M], T or UᵀL⁻¹, and L⁻ᵀμ as the last row
    weight: Array  # [C 1 M], −1 or −λ
    triangular: bool

    def apply(self, k: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance [C n] from the cross-covariance k [C M n] or [1 M n], and k(x, x) + s [C n] or [1 n]."""
        C, _, M = self.matrix.shape
        shared = len(k) < C
        if self.triangular and not shared and M >= WIDE and k.shape[-1] > 1:
            return self._apply_blocks(k, variance)
        t = (self.matrix.reshape(-1, M) @ k[0]).reshape(C, M + 1, -1) if shared else self.matrix @ k
        mean, explained = 1 * t[:, -1], t[:, :-1]
        explained *= explained
        return mean, namespace(k).maximum(variance + (self.weight @ explained)[:, 0], 0)

    def _apply_blocks(self, k: Array, variance: Array) -> tuple[Array, Array]:
        M = k.shape[1]
        size = -(-M // BLOCKS)
        var = variance
        for start in range(0, M, size):
            stop = min(start + size, M)
            last = stop == M
            t = self.matrix[:, start : stop + last, :stop] @ k[:, :stop]
            mean, explained = 1 * t[:, -1], t[:, : stop - start]
            explained *= explained
            var = var + (self.weight[..., start:stop] @ explained)[:, 0]
        return mean, namespace(k).maximum(var, 0)


class LatentModel(NamedTuple):
    """q(w) and the projection that it belongs to, with one posterior per class."""

    formula: Formula
    points: Any  # the inducing points, as the formula prepares them
    noise: Array  # [C] or [1]
    prior_lower: Array  # [C M M] or [1 M M], factor of k(Z, Z)
    mean: Array  # [C M]
    lower: Array  # [C M M], factor of Λ
    form: Form | None = None

    def marginals(self, X: Array) -> tuple[Array, Array]:
        """Return mean and variance of f at rows [n D], noise included, each [n C]."""
        if self.form is None:
            return self.marginals_and_residual(X)[:2]
        mean, var = self.form.apply(*self._covariances(X))
        return mean.T, var.T

    def marginals_and_residual(self, X: Array) -> tuple[Array, Array, Array]:
        r"""Return mean, variance and residual of f at rows, each [n C], by triangular solves.

        a = L⁻¹ k(Z, x)      r = k(x, x) + s − |a|²      mean  μ·a      variance  r + |Λ^(−½) a|²
        """
        k, variance = self._covariances(X)
        xp = namespace(k)
        a = xp.solve_lower(self.prior_lower, k)
        r = xp.maximum(variance - xp.column_sum(a * a), 0)
        half = xp.solve_lower(self.lower, a)
        mean = (self.mean[:, None] @ a)[:, 0]
        return mean.T, (r + xp.column_sum(half * half)).T, r.T

    def _covariances(self, X: Array) -> tuple[Array, Array]:
        """Return k(Z, x), [C M n] or [1 M n], and k(x, x) + s, [C n] or [1 n]."""
        with np.errstate(over="ignore", invalid="ignore"):  # of cells, before they are limited
            return self.formula.cross(self.points, X), self.formula.diag(X) + self.noise[:, None]


def log_probit_probabilities(mean: NDArray[Any], var: NDArray[Any]) -> NDArray[Any] | None:
    """Return logarithms of the class probabilities in NumPy, [n C]; None if a marginal is not finite."""
    if not (np.isfinite(mean).all() and (var > 0).all() and np.isfinite(var).all()):
        return None
    C = mean.shape[1]
    return np.asarray(log_probit(mean, var) if C == 1 else log_largest(mean, var))
