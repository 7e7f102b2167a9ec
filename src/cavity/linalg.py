"""Cholesky factors that report failure as a value, and solves with them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Factor(NamedTuple):
    """A lower Cholesky factor, and whether it could be had."""

    lower: Tensor  # [... M M]
    failed: Tensor  # [] bool


def cholesky(matrix: Tensor) -> Factor:
    """Factorise in float64 whatever the precision of `matrix`; never raises, never branches on values."""
    lower, info = torch.linalg.cholesky_ex(matrix.double())
    return Factor(lower.to(matrix.dtype), info.ne(0).any())


def jittered_cholesky(matrix: Tensor, jitter: Tensor) -> Factor:
    """The factor of K + jitter · mean(diag K) · I."""
    work = matrix.to(torch.float64, copy=True)
    diagonal = work.diagonal(dim1=-2, dim2=-1)
    diagonal += jitter * diagonal.mean(-1, keepdim=True)
    lower, info = torch.linalg.cholesky_ex(work)
    return Factor(lower.to(matrix.dtype), info.ne(0).any())


def whiten(K: Tensor, B: Tensor, jitter: Tensor) -> tuple[Tensor, Tensor]:
    """L⁻¹ B for L = chol(K + jitter), and whether it failed; one fused, differentiable operation for symmetric K."""
    if len(K) != len(B):
        classes = max(len(K), len(B))
        K, B = K.expand(classes, -1, -1), B.expand(classes, -1, -1)
    a, failed = _Whiten.apply(K, B, jitter)  # type: ignore[no-untyped-call]
    return a, failed


class _Whiten(torch.autograd.Function):
    r"""The factorisation and the solve, differentiated together.

    Autograd would form L̄ = −tril(L⁻ᵀ Ḡ aᵀ) and then need Lᵀ L̄; but the lower part of Lᵀ L̄ is that of −Ḡ aᵀ. With Φ its lower
    triangle, diagonal halved,

        B̄ = L⁻ᵀ Ḡ        K̄ = −L⁻ᵀ Φ L⁻¹        O(C M² (M + N))

    K̄ is not symmetrised: K is symmetric whatever its parameters, and only the symmetric part of K̄ meets it.
    """

    @staticmethod
    def forward(ctx: Any, K: Tensor, B: Tensor, jitter: Tensor) -> tuple[Tensor, Tensor]:
        lower, failed = jittered_cholesky(K, jitter)
        a = solve_lower(lower, B)
        ctx.save_for_backward(lower, a, jitter)
        ctx.mark_non_differentiable(failed)
        return a, failed

    @staticmethod
    def backward(ctx: Any, G: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        lower, a, jitter = ctx.saved_tensors
        phi = (G @ a.mT).tril_()
        phi.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        right = torch.linalg.solve_triangular(lower, phi, upper=False, left=False)
        K_bar = solve_lower_t(lower, right).neg_()
        diagonal = K_bar.diagonal(dim1=-2, dim2=-1)
        diagonal += jitter.to(K_bar.dtype) * diagonal.mean(-1, keepdim=True)  # the jitter moves with diag K
        return K_bar, solve_lower_t(lower, G), None


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """L⁻¹ B."""
    solved: Tensor = torch.linalg.solve_triangular(lower, right, upper=False)
    return solved


def solve_lower_t(lower: Tensor, right: Tensor) -> Tensor:
    """L⁻ᵀ B."""
    solved: Tensor = torch.linalg.solve_triangular(lower.mT, right, upper=True)
    return solved


def log_det(lower: Tensor) -> Tensor:
    """log |L Lᵀ| from its factor, summed over the last axis only."""
    return 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
