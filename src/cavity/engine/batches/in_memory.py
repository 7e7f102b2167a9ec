"""Rows in memory, given out in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cavity.common.ranks import shard_range


class Batch(NamedTuple):
    """Rows with their row numbers, which address the stored sites."""

    index: Tensor  # type: ignore[assignment]  # [B]; a row number, not tuple.index
    X: Tensor  # [B D]
    y: Tensor  # [B]
    weight: Tensor  # [B]

    def split(self, size: int) -> Iterator[Batch]:
        if self.index.shape[0] <= size:
            yield self
            return

        columns = (torch.split(column, size) for column in self)
        yield from map(Batch, *columns)


class RowsInMemory(NamedTuple):
    """Table in memory.

    A rank has the rows `mine`, numbered from 0, and their part of every global batch.
    """

    X: Tensor  # [N D]
    y: Tensor  # [N]
    weight: Tensor  # [N]
    mine: range | None = None  # None: all

    def shard(self, rank: int, world: int) -> RowsInMemory:
        """Return the rows of one rank, numbered from 0.

        Which rows form a batch does not depend on the number of ranks.
        """
        return self._replace(mine=shard_range(len(self.y), rank, world))

    @property
    def keep(self) -> range:
        if self.mine is None:
            return range(len(self.y))

        return self.mine

    @property
    def n_rows(self) -> int:
        return len(self.keep)

    def n_batches(self, size: int) -> int:
        """Return the number of batches per pass, with batches empty on this rank."""
        return -(-len(self.y) // size)

    def whole(self) -> Batch:
        index = torch.arange(self.n_rows, device=self.y.device)
        own = slice(self.keep.start, self.keep.stop)
        return Batch(index, self.X[own], self.y[own], self.weight[own])

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Make one shuffled pass in batches of nearly equal size, at most `size`.

        A rank's part of a batch may be empty.
        """
        first = self.keep.start
        for index in shuffle_rows(len(self.y), size, generator, self.mine):
            index = index.to(self.y.device)
            columns = (t.index_select(0, index) for t in (self.X, self.y, self.weight))
            yield Batch(index - first, *columns)


def shuffle_rows(
    n_rows: int, size: int, rng: torch.Generator, keep: range | None = None
) -> Iterator[Tensor]:
    """Yield the row numbers of a shuffled pass by batches.

    The seed alone decides which rows form a batch; rows outside `keep` are left out.
    """
    shuffled = torch.randperm(n_rows, generator=rng)
    for index in shuffled.tensor_split(-(-n_rows // size)):
        if keep is not None:
            index = index[(index >= keep.start) & (index < keep.stop)]
        yield index
