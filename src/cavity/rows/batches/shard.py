"""Sharding: which rows of a table belong to which rank."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from cavity.rows.batches.in_memory import Batch
from cavity.rows.batches.source import Divisible


def shard_range(n_rows: int, rank: int, world: int) -> range:
    """Return the rows of a rank: a contiguous block, so that few row groups are read by two ranks."""
    low, high = (n_rows * r // world for r in (rank, rank + 1))
    return range(low, high)


class Shard:
    """Rows of one rank, numbered from 0, and their part of every global batch.

    The composition of a batch does not depend on the number of ranks. Sites never leave their rank.
    """

    def __init__(self, rows: Divisible, rank: int, world: int) -> None:
        self.rows = rows
        self.mine = shard_range(rows.n_rows, rank, world)

    @property
    def n_rows(self) -> int:
        return len(self.mine)

    def n_batches(self, size: int) -> int:
        return self.rows.n_batches(size)

    def whole(self) -> Shard:
        return self

    def split(self, size: int) -> Iterator[Batch]:
        yield from map(self._renumber, self.rows.whole(self.mine).split(size))

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Yield this rank's part of every global batch; a part may be empty."""
        yield from map(self._renumber, self.rows.batches(size, generator, self.mine))

    def _renumber(self, batch: Batch) -> Batch:
        return batch._replace(index=batch.index - self.mine.start)
