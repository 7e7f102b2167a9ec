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
        yield from (
            Batch(*parts)
            for parts in zip(*(torch.split(t, size) for t in self), strict=True)
        )


class RowsInMemory(NamedTuple):
    """Table in memory; a rank has the rows `mine`, numbered from 0, and their part of
    every global batch.
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
        """Return the number of batches per pass, including batches that are empty on
        this rank.
        """
        return -(-len(self.y) // size)

    def whole(self) -> Batch:
        index = torch.arange(self.n_rows, device=self.y.device)
        return Batch(
            index, *(column[self.keep.start : self.keep.stop] for column in self[:3])
        )

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Make one shuffled pass in batches of nearly equal size, at most `size`; a
        rank's part of a batch may be empty.
        """
        first = self.keep.start
        for index in shuffle_rows(len(self.y), size, generator, self.mine):
            index = index.to(self.y.device)
            columns = (column.index_select(0, index) for column in self[:3])
            yield Batch(index - first if first else index, *columns)


def shuffle_rows(
    n_rows: int, size: int, rng: torch.Generator, keep: range | None = None
) -> Iterator[Tensor]:
    """Yield the row numbers of a shuffled pass by batches, which the seed alone
    decides; `keep` then removes other rows.
    """
    for index in torch.randperm(n_rows, generator=rng).tensor_split(-(-n_rows // size)):
        yield (
            index
            if keep is None
            else index[(index >= keep.start) & (index < keep.stop)]
        )
