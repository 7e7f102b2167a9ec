"""How the matrices of `latent.Form` are computed, and when triangular solves are more accurate."""

from __future__ import annotations

import torch
from torch import Tensor

from cavity.common.linalg import inverse_lower
from cavity.prediction.latent import Form

ROUNDING = 1e-13  # of λ; log-concave factors have no negative ones
# largest relative error of a variance; where the bound exceeds it, triangular solves are used
MOST_ERROR = {torch.float64: 1e-9, torch.float32: 1e-3}


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
    # a GPU takes longer for QR than it gains
    triangular = not mean.is_cuda and bool((weight >= -ROUNDING).all())
    if triangular:
        rotated = _make_lower(weight.clamp_min(0).sqrt()[..., None] * rotated)
        weight = torch.ones_like(weight)
    matrix = torch.cat([rotated, mean.double()[:, None] @ inverse], 1)
    return Form(matrix.to(mean.dtype), -weight[:, None].to(mean.dtype), triangular)


def _make_lower(B: Tensor) -> Tensor:
    """Return the lower triangular T with |Tk| = |Bk| for every k, [C M M]."""
    R: Tensor = torch.linalg.qr(B.flip(-1), mode="r").R
    return R.flip(-2, -1).contiguous()
