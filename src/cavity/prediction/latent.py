"""Marginals of f at rows as a function of arrays, in torch, NumPy and ONNX.

Does not load torch. [METHOD 8]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.common.namespaces import NUMPY, Array, namespace

# inducing points from which the zeros of triangular matrices are left out of products
# on a CPU
WIDE = 64
BLOCKS = (
    # of rows of such a matrix: more of them leave out more zeros, but are slower per
    # operation
    3
)
ROUNDING = 1e-13  # of λ; log-concave factors have no negative ones
# largest relative error of a variance, by the bytes of a number; triangular solves are
# used if it is exceeded
MOST_ERROR = {8: 1e-9, 4: 1e-3}
PROBES = 16  # rows at which it is measured, besides the inducing points


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
    r"""Matrices that replace triangular solves.

    With a = L⁻¹ k and I − Λ⁻¹ = U diag(λ) Uᵀ,

    mean  μ·a = (L⁻ᵀ μ)·k        variance  k(x, x) + s − |a|² + aᵀΛ⁻¹a = k(x, x) + s − Σ_i λ_i (UᵀL⁻¹ k)_i²

    On a CPU, if all λ ≥ 0, T replaces √λ UᵀL⁻¹ = QT: lower triangular with |Tk|² =
    |QTk|².
    """

    matrix: Array  # [C M+1 M], T or UᵀL⁻¹, and L⁻ᵀμ as the last row
    weight: Array  # [C 1 M], −1 or −λ
    triangular: bool

    def apply(self, k: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance [C n] from the cross-covariance k [C M n] or [1 M
        n], and k(x, x) + s [C n] or [1 n].
        """
        C, _, M = self.matrix.shape
        shared = len(k) < C
        if self.triangular and not shared and M >= WIDE and k.shape[-1] > 1:
            return self._apply_blocks(k, variance)
        if shared:
            t = (self.matrix.reshape(-1, M) @ k[0]).reshape(C, M + 1, -1)
        else:
            t = self.matrix @ k
        mean = 1 * t[:, -1]
        explained = t[:, :-1]
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
            mean = 1 * t[:, -1]
            explained = t[:, : stop - start]
            explained *= explained
            var = var + (self.weight[..., start:stop] @ explained)[:, 0]
        return mean, namespace(k).maximum(var, 0)


def make_form(
    prior_lower: Array, mean: Array, lower: Array, noise: Array
) -> Form | None:
    """Return the matrices; None if their rounding exceeds MOST_ERROR where the
    prediction is known without them.
    """
    xp = namespace(mean)
    L, mu, half = map(xp.double, (prior_lower, mean, lower))
    eye = xp.like(np.eye(mean.shape[-1])[None], L)
    inverse = xp.solve_lower(L, eye)
    half = xp.solve_lower(half, eye)
    weight, U = xp.linalg.eigh(eye - xp.swap(half) @ half)
    rotated = xp.swap(U) @ inverse
    slope = mu[:, None] @ inverse
    # a GPU takes longer for QR than it gains
    triangular = xp is NUMPY and bool((weight >= -ROUNDING).all())
    if triangular:  # the T with |Tk| = |Bk| for every k
        B = np.sqrt(np.maximum(weight, 0))[..., None] * rotated
        R: Array = np.linalg.qr(B[..., ::-1], mode="r")
        rotated = R[..., ::-1, ::-1]
        weight = np.ones_like(weight)
    matrix = xp.swap(xp.concat([xp.swap(rotated), xp.swap(slope)]))
    form = Form(xp.like(1 * matrix, mean), xp.like(-weight[:, None], mean), triangular)
    if _is_accurate(form, L, mu, half, xp.double(noise)[:, None]):
        return form
    return None


def _is_accurate(form: Form, L: Array, mean: Array, half: Array, noise: Array) -> bool:
    """Return whether the matrices are accurate at rows with k = La: inducing points,
    where variances are smallest, and others.
    """
    xp = namespace(L)
    waves = np.cos(np.outer(np.arange(1, L.shape[-1] + 1), np.arange(1, PROBES + 1)))
    size = xp.max((L * L).sum(-1))[..., None] ** 0.5  # of a, as long as k(x, x) allows
    a = xp.concat(
        [xp.swap(L), size * xp.like(waves / np.sqrt((waves * waves).sum(0)), L)]
    )
    b = half @ a
    expected = (mean[:, None] @ a)[:, 0]
    var = noise + (b * b).sum(1)
    k = L @ a
    variance = noise + (a * a).sum(1)
    found, found_var = map(
        xp.double, form.apply(xp.like(k, form.matrix), xp.like(variance, form.matrix))
    )
    most = MOST_ERROR[form.matrix.dtype.itemsize]
    close = (xp.abs(found - expected) < most * var**0.5) & (
        xp.abs(found_var - var) < most * var
    )
    return bool(close.all())
