"""The functions of `namespaces` for torch tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cavity import linalg


class TorchNamespace:
    """Functions of tensors; `namespaces.NumpyNamespace` says what each returns."""

    exp, log1p, abs, tanh = map(staticmethod, (torch.exp, torch.log1p, torch.abs, torch.tanh))
    column_sum, solve_lower = staticmethod(linalg.column_sum), staticmethod(linalg.solve_lower)

    @staticmethod
    def array(x: Tensor) -> Tensor:
        return x

    @staticmethod
    def largest(x: Tensor) -> float:
        return float(torch.finfo(x.dtype).max)

    @staticmethod
    def sqrt(x: Tensor) -> Tensor:
        """Return √x, with gradient 0 instead of ∞ at 0, where two points coincide."""
        return x.clamp_min(1e-30 if x.dtype == torch.float64 else 1e-14).sqrt()

    @staticmethod
    def maximum(x: Tensor, low: Any) -> Tensor:
        return x.clamp_min(low)

    @staticmethod
    def minimum(x: Tensor, high: Any) -> Tensor:
        return x.clamp_max(high)

    @staticmethod
    def minimum_(x: Tensor, high: float) -> Tensor:
        return x.clamp_(max=high)

    @staticmethod
    def exp_(x: Tensor) -> Tensor:
        return x.exp_()

    @staticmethod
    def max(x: Tensor) -> Tensor:
        return x.amax(-1, keepdim=True)

    @staticmethod
    def products(points: Tensor, V: Tensor) -> Tensor:
        """Also of points of each class, [C n D]."""
        if V.ndim > 2:
            return points @ V.mT
        C, M, _ = points.shape
        return (points.flatten(0, 1) @ V.mT).view(C, M, len(V))

    @staticmethod
    def add_products_(offset: Tensor, points: Tensor, V: Tensor) -> Tensor:
        offset.flatten(0, 1).addmm_(points.flatten(0, 1), V.mT)
        return offset

    @staticmethod
    def repeat_rows(x: Tensor, X: Tensor) -> Tensor:
        return x.expand(*x.shape[:-1], X.shape[-2])

    @staticmethod
    def columns(X: Tensor, place: Tensor) -> Tensor:
        return X[:, place].T.contiguous()

    @staticmethod
    def with_columns(X: Tensor, place: Tensor, cells: Tensor) -> Tensor:
        return X.index_copy(1, place, cells.T)

    @staticmethod
    def count_up_to(table: Tensor, cells: Tensor) -> Tensor:
        return torch.searchsorted(table.contiguous(), cells, right=True)

    @staticmethod
    def look_up(table: Tensor, index: Tensor) -> Tensor:
        return table.gather(1, index)


TORCH = TorchNamespace()
