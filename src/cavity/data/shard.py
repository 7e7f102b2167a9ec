"""One rank's share of a table: who gets which rows is said here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from cavity.data.arrays import Batch
from cavity.data.source import Divisible


def shard_range(n_rows: int, rank: int, world: int) -> range:
    """The rows of a rank: neighbours in the table, so that hardly a row group has rows of two ranks."""
    low, high = (n_rows * r // world for r in (rank, rank + 1))
    return range(low, high)


class Shard:
    """A rank's rows, numbered from 0, and their part of every global batch; sites stay here.

    Which rows make a batch does not depend on the number of ranks.
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
        """This rank's rows, to be split."""
        return self

    def split(self, size: int) -> Iterator[Batch]:
        """This rank's rows in order; one empty piece where it has none."""
        yield from map(self._renumbered, self.rows.whole(self.mine).split(size))

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """This rank's part of every global batch; it may be empty."""
        yield from map(self._renumbered, self.rows.batches(size, generator, self.mine))

    def _renumbered(self, batch: Batch) -> Batch:
        return batch._replace(index=batch.index - self.mine.start)
