"""The functions of `namespaces` for torch tensors."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from cavity.common import linalg


def _sqrt(x: Tensor) -> Tensor:
    """√x, with gradient 0 instead of ∞ at 0, where two points coincide."""
    return x.clamp_min(1e-30 if x.dtype == torch.float64 else 1e-14).sqrt()


def constant(values: tuple[float, ...], like: Tensor) -> Tensor:
    """Return the numbers as a tensor like `like`, created only once.

    A recorded step must not copy from Python.
    """
    return _constant(values, like.dtype, like.device)


@cache
def _constant(
    values: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


def _add_products(offset: Tensor, points: Tensor, V: Tensor) -> Tensor:
    offset.flatten(0, 1).addmm_(points.flatten(0, 1), V.mT)
    return offset


SAME = "exp log log1p abs cos sin tanh where ceil linalg einsum logsumexp"
TORCH = SimpleNamespace(
    **{name: getattr(torch, name) for name in SAME.split()},
    array=lambda x: x,
    largest=lambda x: float(torch.finfo(x.dtype).max),
    erfcx=torch.special.erfcx,
    log_ndtr=torch.special.log_ndtr,
    log_sigmoid=logsigmoid,
    sqrt=_sqrt,
    maximum=lambda x, low: x.clamp_min(low),
    minimum=lambda x, high: x.clamp_max(high),
    clip=torch.clamp,
    may_exceed=lambda x, most: x.is_cuda or bool((x.detach().abs() > most).any()),
    exp_=torch.exp_,
    minimum_=lambda x, high: x.clamp_(max=high),
    max=lambda x, axis=-1: x.amax(axis, keepdim=True),
    min=lambda x: x.amin(-1, keepdim=True),
    sum=lambda x: x.sum(-1, keepdim=True),
    swap=lambda x: x.mT,
    like=lambda x, other: torch.as_tensor(x).to(other),
    double=lambda x: x.double(),
    host=lambda x: x.detach().double().cpu().numpy(),
    join=torch.cat,
    find=lambda x: x.nonzero()[:, 0],
    arange=lambda n, like: torch.arange(n, dtype=like.dtype, device=like.device),
    half_steps=lambda n: torch.arange(0.5, float(n), dtype=n.dtype, device=n.device),
    log_softmax=lambda x: x.log_softmax(-1),
    concat=lambda parts: torch.cat(parts, -1),
    stack=lambda parts: torch.stack(parts, -1),
    sort=lambda x: x.sort(-1).values,
    flatten=lambda x: x.flatten(-2),
    constant=constant,
    column_sum=linalg.column_sum,
    products=lambda points, V: points @ V.mT,
    add_products_=_add_products,
    repeat_rows=lambda x, X: x.expand(*x.shape[:-1], X.shape[-2]),
    solve_lower=linalg.solve_lower,
    solve_lower_t=linalg.solve_lower_t,
)
