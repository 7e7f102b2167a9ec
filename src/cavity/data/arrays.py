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

    @property
    def n_rows(self) -> int:
        return len(self.y)

    def n_batches(self, size: int) -> int:
        return -(-self.n_rows // size)

    def whole(self) -> Batch:
        """All rows as one batch."""
        return Batch(torch.arange(len(self.y), device=self.y.device), self.X, self.y, self.weight)

    def batches(
        self, size: int, generator: torch.Generator, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """One shuffled pass in batches of nearly equal size, none larger than `size`; a rank gets its slice of each."""
        for index in shuffled_rows(self.n_rows, size, generator, rank, world):
            index = index.to(self.y.device)
            yield Batch(index, self.X[index], self.y[index], self.weight[index])


def shuffled_rows(
    n_rows: int, size: int, generator: torch.Generator, rank: int = 0, world: int = 1
) -> Iterator[Tensor]:
    """Row numbers of one pass, batch by batch: the seed decides the order, the number of ranks only who gets what."""
    order = torch.randperm(n_rows, generator=generator)
    for index in order.tensor_split(-(-n_rows // size)):
        yield index.tensor_split(world)[rank]
