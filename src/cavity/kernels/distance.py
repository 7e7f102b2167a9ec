"""Scaled squared distances between all pairs, with their derivative written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def half_square_distance(U: Tensor, V: Tensor, log_scale: Tensor, zero_diagonal: bool = False) -> Tensor:
    r"""−½ Σ_d ((u_d − v_d)/ℓ_d)² for every pair, [C M N].

    U is [C M D] or [1 M D]; V is [N D], or U itself; log ℓ is [C D] or [1 D]. A leading 1 is shared by all classes.
    `zero_diagonal`: exactly zero there, without a gradient, which square roots would magnify.
    """
    return _HalfSquareDistance.apply(U, V, log_scale, zero_diagonal)  # type: ignore[no-any-return, no-untyped-call]


class _HalfSquareDistance(torch.autograd.Function):
    r"""S = −½ |u|² − ½ |v|² + u·v in the metric 1/ℓ², by one matrix product; ℓ goes into u alone, so that rows v shared by all
    classes stay one matrix.

    Backward, with E the cotangent of S and s its row and column sums: besides E V no further product is needed,

        ∂u = (E v − s u)/ℓ²      ∂v = (Eᵀu − s v)/ℓ²      ∂log ℓ = (Σ s u² − 2 Σ u·E v + Σ s v²)/ℓ²
    """

    @staticmethod
    def forward(ctx: Any, U: Tensor, V: Tensor, log_scale: Tensor, zero_diagonal: bool) -> Tensor:
        inverse = (-2 * log_scale).exp()[:, None, :]
        weighted = U * inverse
        u2 = (U * weighted).sum(-1).mul_(-0.5)
        if V.dim() == 2:
            v2 = V.square() @ (-0.5 * inverse[:, 0]).mT
            S = u2[:, :, None] + v2.mT[:, None, :]
            S.flatten(0, 1).addmm_(weighted.flatten(0, 1), V.mT)
        else:
            v2 = (V * (V * inverse)).sum(-1).mul_(-0.5)
            S = u2[:, :, None] + v2[:, None, :]
            S.baddbmm_(weighted, V.mT.expand(len(S), -1, -1))
        S.clamp_(max=0.0)
        if zero_diagonal:
            S.diagonal(dim1=-2, dim2=-1).zero_()
        ctx.save_for_backward(U, V, inverse)
        ctx.zero_diagonal = zero_diagonal
        return S

    @staticmethod
    def backward(ctx: Any, E: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        U, V, inverse = ctx.saved_tensors
        need_u, need_v, need_scale, _ = ctx.needs_input_grad
        if ctx.zero_diagonal:
            E = E.clone()
            E.diagonal(dim1=-2, dim2=-1).zero_()
        flat = V.dim() == 2
        EV = (E.flatten(0, 1) @ V).view(len(E), -1, V.shape[-1]) if flat else E @ V
        rows, columns = E.sum(-1)[..., None], E.sum(-2)
        U_bar = V_bar = scale_bar = None
        if need_u:
            U_bar = _like((EV - rows * U) * inverse, U)
        if need_v:
            V_bar = _columns_bar(E, U, V, inverse, columns)
        if need_scale:
            v_part = columns @ V.square() if flat else (columns[..., None] * V.square()).sum(-2)
            u_part = (U * (rows * U - 2 * EV)).sum(-2)
            scale_bar = _like((u_part + v_part) * inverse[:, 0], inverse[:, 0])
        return U_bar, V_bar, scale_bar, None


def _columns_bar(E: Tensor, U: Tensor, V: Tensor, inverse: Tensor, columns: Tensor) -> Tensor:
    each = (E.mT @ U - columns[..., None] * V) * inverse
    return each.sum(0) if V.dim() == 2 else _like(each, V)


def _like(gradient: Tensor, shared: Tensor) -> Tensor:
    """Summed over classes where the argument is shared by them."""
    return gradient.sum(0, keepdim=True) if len(shared) < len(gradient) else gradient
