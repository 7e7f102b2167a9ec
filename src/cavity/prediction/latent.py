"""Marginals of f at rows from arrays of torch, NumPy or ONNX.   [METHOD 8]

Does not load torch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cavity.common.namespaces import NUMPY, Array, namespace

# from this many inducing points, products on a CPU skip zeros of triangular matrices
WIDE = 64
# blocks of rows of such a matrix: more blocks skip more zeros, but each costs more
BLOCKS = 3
# λ above −ROUNDING counts as 0: log-concave factors have no negative λ
ROUNDING = 1e-13
# largest relative error of a variance, by the bytes of a number; beyond it, predictions
# use triangular solves
MOST_ERROR = {8: 1e-9, 4: 1e-3}
# rows at which the error is measured, besides the inducing points
PROBES = 16


class Marginals(NamedTuple):
    """Mean and variance of f at rows, each [n C]."""

    mean: Array
    var: Array


class Joint(NamedTuple):
    """Mean, variance and covariance of f at rows, if classes are coupled."""

    mean: Array  # [n C]
    var: Array  # [n C]
    cov: Array  # [n C C]


class Form(NamedTuple):
    r"""Matrices that replace triangular solves.

    With a = L⁻¹ k and I − Λ⁻¹ = U diag(λ) Uᵀ,

        mean      μ·a = (L⁻ᵀ μ)·k
        variance  k(x, x) + s − |a|² + aᵀΛ⁻¹a = k(x, x) + s − Σ_i λ_i (UᵀL⁻¹ k)_i²

    On a CPU, if all λ ≥ 0, √λ UᵀL⁻¹ = QT is replaced by T: lower triangular, with
    |Tk|² = |QTk|².
    """

    matrix: Array  # [C M+1 M], T or UᵀL⁻¹, and L⁻ᵀμ as the last row
    weight: Array  # [C 1 M], −1 or −λ
    triangular: bool

    def apply(self, k: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance at rows, each [C n].

        k is the cross-covariance, [C M n] or [1 M n]; variance is k(x, x) + s, [C n] or
        [1 n].
        """
        C, _, M = self.matrix.shape
        shared = len(k) < C
        if self.triangular and not shared and M >= WIDE and k.shape[-1] > 1:
            return self._apply_blocks(k, variance)

        if shared:  # one product for all classes
            t = (self.matrix.reshape(-1, M) @ k[0]).reshape(C, M + 1, -1)
        else:
            t = self.matrix @ k

        mean = 1 * t[:, -1]  # a copy
        explained = t[:, :-1]
        explained *= explained
        var = variance + (self.weight @ explained)[:, 0]
        return mean, namespace(k).maximum(var, 0)

    def _apply_blocks(self, k: Array, variance: Array) -> tuple[Array, Array]:
        """Apply blocks of rows of T, each without the columns in which it is zero."""
        M = k.shape[1]
        size = -(-M // BLOCKS)
        var = variance
        for start in range(0, M, size):
            stop = min(start + size, M)
            is_last = stop == M  # with the row of the mean
            t = self.matrix[:, start : stop + is_last, :stop] @ k[:, :stop]
            mean = 1 * t[:, -1]
            explained = t[:, : stop - start]
            explained *= explained
            var = var + (self.weight[..., start:stop] @ explained)[:, 0]

        return mean, namespace(k).maximum(var, 0)


def make_form(
    prior_lower: Array, mean: Array, lower: Array, noise: Array
) -> Form | None:
    """Return the matrices, or None if their rounding error exceeds MOST_ERROR."""
    xp = namespace(mean)
    L = xp.double(prior_lower)
    mu = xp.double(mean)
    eye = xp.like(np.eye(mean.shape[-1])[None], L)
    inverse = xp.solve_lower(L, eye)
    half = xp.solve_lower(xp.double(lower), eye)  # Λ^(−½)
    weight, U = xp.linalg.eigh(eye - xp.swap(half) @ half)
    rotated = xp.swap(U) @ inverse
    slope = mu[:, None] @ inverse

    # on a GPU, QR costs more than it saves
    triangular = xp is NUMPY and bool((weight >= -ROUNDING).all())
    if triangular:  # T has |Tk| = |Bk| for every k
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
    """Compare the matrices with exact predictions at rows with k = La.

    The rows are the inducing points, where variances are smallest, and PROBES others.
    """
    xp = namespace(L)
    waves = np.cos(np.outer(np.arange(1, L.shape[-1] + 1), np.arange(1, PROBES + 1)))
    waves /= np.sqrt((waves * waves).sum(0))
    length = (
        xp.max((L * L).sum(-1))[..., None] ** 0.5
    )  # the largest |a| that k(x, x) allows
    a = xp.concat([xp.swap(L), length * xp.like(waves, L)])

    b = half @ a
    exact_mean = (mean[:, None] @ a)[:, 0]
    exact_var = noise + (b * b).sum(1)

    k = xp.like(L @ a, form.matrix)
    variance = xp.like(noise + (a * a).sum(1), form.matrix)
    mean_of_form, var_of_form = map(xp.double, form.apply(k, variance))

    most = MOST_ERROR[form.matrix.dtype.itemsize]
    close_mean = xp.abs(mean_of_form - exact_mean) < most * exact_var**0.5
    close_var = xp.abs(var_of_form - exact_var) < most * exact_var
    return bool((close_mean & close_var).all())
