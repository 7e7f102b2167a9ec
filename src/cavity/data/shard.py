"""One rank's share of a table: its rows, and their part of every global batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from cavity.data.arrays import Batch


class Shard:
    """Rows low ≤ n < high of a table. Which rows make a batch does not depend on the number of ranks; sites stay here."""

    def __init__(self, rows: Any, rank: int, world: int) -> None:
        self.rows = rows
        self.low, self.high = (len(rows.y) * r // world for r in (rank, rank + 1))

    @property
    def y(self) -> Tensor:
        labels: Tensor = self.rows.y[self.low : self.high]
        return labels

    def whole(self) -> Batch:
        """This rank's rows as one batch, numbered from 0."""
        _, *parts = (t[self.low : self.high] for t in self.rows.whole())
        return Batch(torch.arange(self.high - self.low, device=self.rows.y.device), *parts)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """This rank's part of every global batch; it may be empty."""
        for batch in self.rows.batches(size, generator):
            mine = (batch.index >= self.low) & (batch.index < self.high)
            index, *parts = (t[mine] for t in batch)
            yield Batch(index - self.low, *parts)
