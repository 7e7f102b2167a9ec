"""Rows in memory, handed out as batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Rows that travel with their numbers, which address the site store."""

    index: Tensor  # type: ignore[assignment]  # [B]; a row number, not tuple.index
    X: Tensor  # [B D]
    y: Tensor  # [B]
    weight: Tensor  # [B]

    def split(self, size: int) -> Iterator[Batch]:
        """Pieces of at most `size` rows."""
        if len(self.index) <= size:
            yield self
            return
        yield from (Batch(*parts) for parts in zip(*(torch.split(t, size) for t in self), strict=True))


class Rows(NamedTuple):
    """A whole table in memory."""

    X: Tensor  # [N D]
    y: Tensor  # [N]
    weight: Tensor  # [N]

    def whole(self) -> Batch:
        """All rows as one batch."""
        return Batch(torch.arange(len(self.y), device=self.y.device), self.X, self.y, self.weight)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """One shuffled pass in batches of nearly equal size, none larger than `size`."""
        order = torch.randperm(len(self.y), generator=generator).to(self.y.device)
        for index in order.tensor_split(-(-len(order) // size)):
            yield Batch(index, self.X[index], self.y[index], self.weight[index])
