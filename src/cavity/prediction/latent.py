"""Marginals of f at rows as a function of arrays, in torch, NumPy and ONNX. Does not load torch. [METHOD 8]"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.common.namespaces import NUMPY, Array, namespace

WIDE = 64  # inducing points from which the zeros of triangular matrices are left out of products on a CPU
BLOCKS = 3  # of rows of such a matrix: more of them leave out more zeros, but are slower per operation
ROUNDING = 1e-13  # of λ; log-concave factors have no negative ones
# largest relative error of a variance, by the bytes of a number; where the bound exceeds it, triangular solves are used
MOST_ERROR = {8: 1e-9, 4: 1e-3}


class Marginals(NamedTuple):
    """Mean and variance of f at rows, each [n C]."""

    mean: Array
    var: Array


class Joint(NamedTuple):
    """The same if classes are coupled."""

    mean: Array  # [n C]
    var: Array  # [n C]
    cov: Array  # [n C C]


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


def make_form(prior_lower: Array, mean: Array, lower: Array, noise: Array) -> Form | None:
    r"""Return the matrices; None if rounding could exceed MOST_ERROR of a variance, which is at least the noise s.

    Products with explicit inverses round to about ε |UᵀL⁻¹| |k| |a|, with |k| ≤ v and |a|² ≤ v for kernels of variance v.
    """
    xp = namespace(mean)
    bytes_each = 8 if xp.largest(mean) > 1e300 else 4
    L, mu, half, s = map(xp.double, (prior_lower, mean, lower, noise))
    eye = xp.like(np.eye(mean.shape[-1])[None], L)
    inverse, half = xp.solve_lower(L, eye), xp.solve_lower(half, eye)
    weight, U = xp.linalg.eigh(eye - xp.swap(half) @ half)
    rotated, slope = xp.swap(U) @ inverse, mu[:, None] @ inverse
    scale = xp.max((L * L).sum(-1))[..., 0]  # [C] or [1]
    rounding, most = 4 * float(np.finfo(f"f{bytes_each}").eps), MOST_ERROR[bytes_each]
    of_var = rounding * xp.max(xp.abs(weight) * xp.abs(rotated).sum(-1))[..., 0] * scale**1.5
    of_mean = rounding * xp.abs(slope).sum(-1)[..., 0] * scale
    if not bool(((of_var < most * s) & (of_mean < most * s**0.5)).all()):
        return None
    # a GPU takes longer for QR than it gains
    triangular = xp is NUMPY and bool((weight >= -ROUNDING).all())
    if triangular:
        rotated = _make_lower(np.sqrt(np.maximum(weight, 0))[..., None] * rotated)
        weight = np.ones_like(weight)
    matrix = xp.swap(xp.concat([xp.swap(rotated), xp.swap(slope)]))
    return Form(xp.like(1 * matrix, mean), xp.like(-weight[:, None], mean), triangular)


def _make_lower(B: Array) -> Array:
    """Return the lower triangular T with |Tk| = |Bk| for every k, [C M M]."""
    R: Array = np.linalg.qr(B[..., ::-1], mode="r")
    return R[..., ::-1, ::-1]
