"""Cholesky factors that report failure as a value, and solves with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

Named = TypeVar("Named", bound=tuple[Tensor, ...])


class Factor(NamedTuple):
    """A lower Cholesky factor, and whether the factorisation failed."""

    lower: Tensor  # [... M M]
    failed: Tensor  # [] bool


class Solver(NamedTuple):
    """Solves with a lower factor L by substitution, or by products with L⁻¹.

    Products are many times faster on a GPU.
    """

    matrix: Tensor  # [... M M], L or L⁻¹
    inverted: bool

    def solve(self, right: Tensor) -> Tensor:
        """Return L⁻¹ B."""
        if self.inverted:
            return torch.matmul(self.matrix, right)

        return solve_lower(self.matrix, right)

    def solve_t(self, right: Tensor) -> Tensor:
        """Return L⁻ᵀ B."""
        if self.inverted:
            return torch.matmul(self.matrix.mT, right)

        return solve_lower_t(self.matrix, right)

    def to(self, dtype: torch.dtype) -> Solver:
        return Solver(self.matrix.to(dtype), self.inverted)


def solver(lower: Tensor) -> Solver:
    """Return a solver for L, in the precision of L."""
    if inverts(lower):
        return Solver(inverse_lower(lower), True)

    return Solver(lower, False)


def inverts(lower: Tensor) -> bool:
    """Whether solves with this factor use its inverse."""
    return lower.is_cuda


def inverse_lower(lower: Tensor) -> Tensor:
    if inverts(lower):
        return inverse_by_blocks(lower)

    eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)


def inverse_by_blocks(lower: Tensor, size: int = 32) -> Tensor:
    r"""Return L⁻¹ from small diagonal blocks, merged in pairs by products, [C M M].

    On a GPU this is at least twice as fast as substitution.

    ⎡ A  0 ⎤⁻¹   ⎡     A⁻¹       0  ⎤
    ⎣ B  D ⎦   = ⎣ −D⁻¹ B A⁻¹   D⁻¹ ⎦
    """
    C, M, _ = lower.shape
    blocks = 1 << max(0, math.ceil(math.log2(M / size)))
    eye = torch.eye(blocks * size, dtype=lower.dtype, device=lower.device)
    padded = eye.repeat(C, 1, 1)
    padded[:, :M, :M] = lower
    small = _on_diagonal(padded, blocks)
    unit = eye[:size, :size].expand_as(small)
    done: Tensor = torch.linalg.solve_triangular(small, unit, upper=False)
    while blocks > 1:
        blocks //= 2
        first = done[0::2]
        second = done[1::2]
        below = _on_diagonal(padded, blocks)[:, size:, :size]
        left = torch.cat([first, -torch.bmm(second, torch.bmm(below, first))], 1)
        right = torch.cat([torch.zeros_like(second), second], 1)
        done = torch.cat([left, right], 2)
        size *= 2

    return done[:, :M, :M]


def _on_diagonal(matrix: Tensor, blocks: int) -> Tensor:
    """Return the square blocks on the diagonal, [C M M] → [C·blocks size size]."""
    size = matrix.shape[-1] // blocks
    grid = matrix.reshape(len(matrix), blocks, size, blocks, size)
    return grid.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).flatten(0, 1)


def cholesky(matrix: Tensor, shift: Tensor | float = 0.0) -> Factor:
    """Factorise K + shift · I in float64, whatever the precision of K.

    Never raises and never branches on values.
    """
    work = matrix.to(torch.float64, copy=True)
    work.diagonal(dim1=-2, dim2=-1).add_(shift)
    if work.requires_grad:
        lower, info = torch.linalg.cholesky_ex(work)
    else:  # in place; column-major, as LAPACK stores it
        lower = work.mT
        info = torch.empty(work.shape[:-2], dtype=torch.int32, device=work.device)
        torch.linalg.cholesky_ex(lower, out=(lower, info))

    return Factor(lower, info.any())


def jittered_cholesky(matrix: Tensor, jitter: Tensor) -> Factor:
    """Factorise K + jitter · mean(diag K) · I in float64."""
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).double()
    return cholesky(matrix, jitter * diagonal.mean(-1, keepdim=True))


def whiten(K: Tensor, B: Tensor, jitter: Tensor) -> tuple[Tensor, Tensor]:
    """Return L⁻¹ B for L = chol(K + jitter), and whether it failed.

    One fused, differentiable operation for symmetric K.
    """
    if K.shape[0] != B.shape[0]:
        classes = max(len(K), len(B))
        K = K.expand(classes, -1, -1)
        B = B.expand(classes, -1, -1)

    a, failed = _Whiten.apply(K, B, jitter)  # type: ignore[no-untyped-call]
    return a, failed


class _Whiten(torch.autograd.Function):
    r"""The factorisation and the solve, differentiated together.

    Autograd would form L̄ = −tril(L⁻ᵀ Ḡ aᵀ) and then need Lᵀ L̄. But the lower part of
    Lᵀ L̄ equals that of −Ḡ aᵀ. With Φ the lower triangle of Ḡ aᵀ, diagonal halved,

        B̄ = L⁻ᵀ Ḡ        K̄ = −L⁻ᵀ Φ L⁻¹        O(C M² (M + N))

    The transpose of K̄ is returned, not symmetrised: K is symmetric for all parameters,
    so only the symmetric part of K̄ matters.
    """

    @staticmethod
    def forward(
        ctx: Any, K: Tensor, B: Tensor, jitter: Tensor
    ) -> tuple[Tensor, Tensor]:
        lower, failed = jittered_cholesky(K, jitter)
        by = solver(lower).to(K.dtype)
        a = by.solve(B)
        ctx.save_for_backward(by.matrix, a, jitter)
        ctx.inverted = by.inverted
        ctx.mark_non_differentiable(failed)
        return a, failed

    @staticmethod
    def backward(ctx: Any, G: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        matrix, a, jitter = ctx.saved_tensors
        by = Solver(matrix, ctx.inverted)
        # column-major, so that both solves are in place
        phi = times_transpose(a, G).triu_().mT
        phi.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        if by.inverted:
            phi = torch.bmm(matrix.mT, torch.bmm(phi, matrix))
        else:
            torch.linalg.solve_triangular(matrix, phi, upper=False, left=False, out=phi)
            torch.linalg.solve_triangular(matrix.mT, phi, upper=True, out=phi)

        K_bar = phi.neg_().mT
        diagonal = K_bar.diagonal(dim1=-2, dim2=-1)
        # the jitter moves with diag K
        diagonal += jitter.to(K_bar.dtype) * diagonal.mean(-1, keepdim=True)
        return K_bar, by.solve_t(G), None


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """Return L⁻¹ B as (Bᵀ L⁻ᵀ)ᵀ.

    torch's result is column-major, so this one is row-major, and BLAS is faster from
    the right.
    """
    return torch.linalg.solve_triangular(lower.mT, right.mT, upper=True, left=False).mT


def solve_lower_t(lower: Tensor, right: Tensor) -> Tensor:
    """Return L⁻ᵀ B in the same way."""
    return torch.linalg.solve_triangular(lower, right.mT, upper=False, left=False).mT


def times_transpose(A: Tensor, B: Tensor) -> Tensor:
    """Return A Bᵀ, [C M N] × [C K N] → [C M K].

    OpenBLAS is so slow at it in single precision that a copy of Bᵀ pays off.
    """
    right = B.mT
    if B.dtype == torch.float32:
        right = right.contiguous()
    return torch.bmm(A, right)


def concatenate(parts: Sequence[Named]) -> Named:
    """Join named tuples of tensors along their rows."""
    return type(parts[0])(*(torch.cat(column) for column in zip(*parts, strict=True)))


def column_sum(A: Tensor) -> Tensor:
    """Return Σ_m A_cmn, [C M N] → [C N], as a product with ones.

    torch's sum over a middle axis is slow.
    """
    return torch.bmm(A.new_ones(A.shape[0], 1, A.shape[1]), A)[:, 0]


def log_det(lower: Tensor) -> Tensor:
    return 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def pack_symmetric(A: Tensor) -> Tensor:
    """Return the lower triangles of symmetric matrices, [C M M] → [C M(M+1)/2]."""
    row, column = torch.tril_indices(A.shape[-1], A.shape[-1], device=A.device)
    return A[..., row, column]


def unpack_symmetric(packed: Tensor, size: int) -> Tensor:
    """Return symmetric matrices from lower triangles, [C M(M+1)/2] → [C M M]."""
    row, column = torch.tril_indices(size, size, device=packed.device)
    A = packed.new_empty(*packed.shape[:-1], size, size)
    A[..., row, column] = packed
    A[..., column, row] = packed
    return A
