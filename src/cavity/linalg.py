"""Cholesky factors that report failure as a value, and solves with them."""

from __future__ import annotations

from typing import NamedTuple

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


def solve_lower(lower: Tensor, right: Tensor) -> Tensor:
    """L⁻¹ B."""
    return torch.linalg.solve_triangular(lower, right, upper=False)


def solve_lower_t(lower: Tensor, right: Tensor) -> Tensor:
    """L⁻ᵀ B."""
    return torch.linalg.solve_triangular(lower.mT, right, upper=True)


def log_det(lower: Tensor) -> Tensor:
    """log |L Lᵀ| from its factor, summed over the last axis only."""
    return 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
