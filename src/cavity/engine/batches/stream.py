"""Tables too large for memory or the device.

Rows are read from disk batch by batch, and copied to the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.prefetch import prefetch
from cavity.common.ranks import shard_range
from cavity.common.types import Floats, Ints
from cavity.engine.batches.in_memory import Batch, RowsInMemory, shuffle_rows

PIECE_BYTES = 64 << 20  # maximum size of a piece; a few are in memory at a time
KINDS = {torch.float32: np.float32, torch.float64: np.float64}


class ReadByNumber(Protocol):
    """Numeric rows that are read by their row number."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_columns(self) -> int: ...

    def take(self, index: Ints) -> Floats:
        """Return these rows, [B D], in this order."""
        ...


class Stream(NamedTuple):
    """Rows that are read by number, in the batches of the same table in memory.

    `mine` is as in `RowsInMemory`.
    """

    source: ReadByNumber  # of the rows from `first` on
    y: NDArray[Any]  # their classes, or targets
    weight: Floats
    total: int
    dtype: torch.dtype
    device: torch.device
    first: int = 0
    mine: range | None = None  # None: all
    piece_bytes: int = PIECE_BYTES

    def shard(self, rank: int, world: int) -> Stream:
        own = self.source.n_rows
        mine = shard_range(self.total, rank, world)
        # this rank has read its rows alone, or fewer, if some were set apart
        if own != self.total:
            mine = range(self.first, self.first + own)
        return self._replace(mine=mine)

    @property
    def keep(self) -> range:
        if self.mine is None:
            return range(self.total)

        return self.mine

    @property
    def n_rows(self) -> int:
        return len(self.keep)

    def n_batches(self, size: int) -> int:
        return -(-self.total // size)

    def whole(self) -> Stream:
        return self

    def split(self, size: int) -> Iterator[Batch]:
        """Read pieces of at most `size` rows in order, one empty piece without rows."""
        size = max(1, min(size, self.piece_bytes // (8 * self.source.n_columns)))
        first = self.keep.start
        stop = self.keep.stop
        starts = range(first, max(stop, first + 1), size)
        yield from self._send(np.arange(i, min(i + size, stop)) for i in starts)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Make one shuffled pass."""
        numbers = shuffle_rows(self.total, size, generator, self.mine)
        yield from self._send(map(np.asarray, numbers))

    def _send(self, numbers: Iterable[Ints]) -> Iterator[Batch]:
        """Read ahead in a thread; copy to a GPU asynchronously from pinned memory."""
        on_gpu = self.device.type == "cuda"
        for batch in prefetch(self._read(index, on_gpu) for index in numbers):
            yield Batch(*(t.to(self.device, non_blocking=on_gpu) for t in batch))

    def _read(self, index: Ints, pinned: bool) -> Batch:
        rows = index - self.first
        X = self.source.take(rows).astype(KINDS[self.dtype], copy=False)
        columns = index - self.keep.start, X, self.y[rows], self.weight[rows]
        tensors = (torch.from_numpy(np.ascontiguousarray(column)) for column in columns)
        return Batch(*(t.pin_memory() if pinned else t for t in tensors))


# rows for training: encoded labels, positive weights, tensors on the device
Data = RowsInMemory | Stream
Whole = Batch | Stream  # all rows, as one batch or read in pieces
