"""Matrices that turn a row's cross-covariance into its marginals by one product, without triangular solves."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from cavity.linalg import inverse_lower
from cavity.posterior import Normal

ROUNDING = 1e-13  # of λ; log-concave factors have no negative ones
# largest relative error of a variance; where the bound exceeds it, triangular solves are used
MOST_ERROR = {torch.float64: 1e-9, torch.float32: 1e-3}
WIDE = 64  # inducing points from which the zeros of triangular matrices are left out of products on a CPU
BLOCKS = 3  # of rows of such a matrix: more of them leave out more zeros, but are slower per operation


class Form(NamedTuple):
    r"""With a = L⁻¹ k and I − Λ⁻¹ = U diag(λ) Uᵀ,

    mean  μ·a = (L⁻ᵀ μ)·k        variance  k(x, x) + s − |a|² + aᵀΛ⁻¹a = k(x, x) + s − Σ_i λ_i (UᵀL⁻¹ k)_i²

    On a CPU, if all λ ≥ 0, T replaces √λ UᵀL⁻¹ = QT: lower triangular with |Tk|² = |QTk|².
    """

    matrix: Tensor  # [C M+1 M], T or UᵀL⁻¹, and L⁻ᵀμ as the last row
    weight: Tensor  # [C 1 M], −1 or −λ
    triangular: bool

    def apply(self, k: Tensor, variance: Tensor) -> Normal:
        """Return mean and variance [C n] from the cross-covariance k [C M n] or [1 M n], and k(x, x) + s [C n] or [1 n]."""
        C, _, M = self.matrix.shape
        if self.triangular and len(k) == C and M >= WIDE and not k.is_cuda:
            return self._apply_blocks(k, variance)
        t = (self.matrix.flatten(0, 1) @ k[0]).view(C, M + 1, -1) if len(k) < C else torch.bmm(self.matrix, k)
        mean = t[:, -1].clone()
        quadratic = torch.bmm(self.weight, t[:, :-1].square_())[:, 0]
        return Normal(mean, (variance + quadratic).clamp_min_(0))

    def _apply_blocks(self, k: Tensor, variance: Tensor) -> Normal:
        M = k.shape[1]
        size = -(-M // BLOCKS)
        var = variance
        for start in range(0, M, size):
            stop = min(start + size, M)
            last = stop == M
            t = torch.bmm(self.matrix[:, start : stop + last, :stop], k[:, :stop])
            mean = t[:, -1].clone() if last else t
            squares = t[:, : stop - start].square_()
            var = var + torch.bmm(self.weight[..., start:stop], squares)[:, 0]
        return Normal(mean, var.clamp_min_(0))


@torch.no_grad()
def make_form(prior_lower: Tensor, mean: Tensor, lower: Tensor, noise: Tensor) -> Form | None:
    r"""Return the matrices; None if rounding could exceed MOST_ERROR of a variance, which is at least the noise s.

    Products with explicit inverses round to about ε |UᵀL⁻¹| |k| |a|, with |k| ≤ v and |a|² ≤ v for kernels of variance v.
    """
    inverse, half = inverse_lower(prior_lower.double()), inverse_lower(lower.double())
    eye = torch.eye(half.shape[-1], dtype=half.dtype, device=half.device)
    weight, U = torch.linalg.eigh(eye - half.mT @ half)
    rotated = U.mT @ inverse
    scale = prior_lower.double().square().sum(-1).amax(-1)  # [C] or [1]
    error = 4 * torch.finfo(mean.dtype).eps * rotated.abs().sum(-1).amax(-1) * scale**1.5
    if not bool((error <= MOST_ERROR[mean.dtype] * noise.double()).all()):
        return None
    triangular = not mean.is_cuda and bool(
        (weight >= -ROUNDING).all()
    )  # a GPU takes longer for QR than it gains
    if triangular:
        rotated = _make_lower(weight.clamp_min(0).sqrt()[..., None] * rotated)
        weight = torch.ones_like(weight)
    matrix = torch.cat([rotated, mean.double()[:, None] @ inverse], 1)
    return Form(matrix.to(mean.dtype), -weight[:, None].to(mean.dtype), triangular)


def _make_lower(B: Tensor) -> Tensor:
    """Return the lower triangular T with |Tk| = |Bk| for every k, [C M M]."""
    R: Tensor = torch.linalg.qr(B.flip(-1), mode="r").R
    return R.flip(-2, -1).contiguous()
