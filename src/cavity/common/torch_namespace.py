"""The functions of `namespaces` for torch tensors."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor

from cavity.common import linalg


def _sqrt(x: Tensor) -> Tensor:
    """√x, with gradient 0 instead of ∞ at 0, where two points coincide."""
    return x.clamp_min(1e-30 if x.dtype == torch.float64 else 1e-14).sqrt()


def _add_products(offset: Tensor, points: Tensor, V: Tensor) -> Tensor:
    offset.flatten(0, 1).addmm_(points.flatten(0, 1), V.mT)
    return offset


TORCH = SimpleNamespace(
    array=lambda x: x,
    largest=lambda x: float(torch.finfo(x.dtype).max),
    **{name: getattr(torch, name) for name in "exp log1p abs tanh".split()},
    sqrt=_sqrt,
    maximum=lambda x, low: x.clamp_min(low),
    minimum=lambda x, high: x.clamp_max(high),
    clip=torch.clamp,
    may_exceed=lambda x, most: x.is_cuda or bool((x.detach().abs() > most).any()),
    exp_=torch.exp_,
    minimum_=lambda x, high: x.clamp_(max=high),
    max=lambda x: x.amax(-1, keepdim=True),
    column_sum=linalg.column_sum,
    products=lambda points, V: points @ V.mT,
    add_products_=_add_products,
    repeat_rows=lambda x, X: x.expand(*x.shape[:-1], X.shape[-2]),
    with_columns=lambda X, place, cells: X.index_copy(1, place, cells),
    solve_lower=linalg.solve_lower,
    count_up_to=lambda table, x: torch.searchsorted(table.contiguous(), x.contiguous(), right=True),
    look_up=lambda table, index: table.gather(1, index),
)
