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

    def whole(self, keep: range | None = None) -> Batch:
        """All rows, or those in `keep`, as one batch."""
        keep = range(self.n_rows) if keep is None else keep
        index = torch.arange(keep.start, keep.stop, device=self.y.device)
        return Batch(index, *(column[keep.start : keep.stop] for column in self))

    def batches(self, size: int, generator: torch.Generator, keep: range | None = None) -> Iterator[Batch]:
        """One shuffled pass in batches of nearly equal size, none larger than `size`; of each, the rows in `keep`."""
        for index in shuffled_rows(self.n_rows, size, generator, keep):
            index = index.to(self.y.device)
            yield Batch(index, self.X[index], self.y[index], self.weight[index])


def shuffled_rows(
    n_rows: int, size: int, generator: torch.Generator, keep: range | None = None
) -> Iterator[Tensor]:
    """Row numbers of one pass, batch by batch. The seed decides which rows make a batch; `keep` leaves some out of each."""
    order = torch.randperm(n_rows, generator=generator)
    for index in order.tensor_split(-(-n_rows // size)):
        yield index if keep is None else index[(index >= keep.start) & (index < keep.stop)]
