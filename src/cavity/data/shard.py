"""One rank's share of a table: its rows, and their part of every global batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from cavity.data.arrays import Batch
from cavity.data.source import Data


class Shard:
    """Rows low ≤ n < high of a table. Which rows make a batch does not depend on the number of ranks; sites stay here."""

    def __init__(self, rows: Data, rank: int, world: int) -> None:
        self.rows = rows
        self.low, self.high = (rows.n_rows * r // world for r in (rank, rank + 1))

    @property
    def n_rows(self) -> int:
        return self.high - self.low

    def n_batches(self, size: int) -> int:
        return self.rows.n_batches(size)

    def whole(self) -> Shard:
        """This rank's rows, to be split."""
        return self

    def split(self, size: int) -> Iterator[Batch]:
        """This rank's rows in order, numbered from 0."""
        pieces = (self._mine(piece) for piece in self.rows.whole().split(size))
        some = False
        for piece in pieces:
            if len(piece.index) or not some:
                some = True
                yield piece

    def batches(
        self, size: int, generator: torch.Generator, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """This rank's part of every global batch; it may be empty."""
        yield from (self._mine(batch) for batch in self.rows.batches(size, generator))

    def _mine(self, batch: Batch) -> Batch:
        mine = (batch.index >= self.low) & (batch.index < self.high)
        index, *parts = (t[mine] for t in batch)
        return Batch(index - self.low, *parts)
