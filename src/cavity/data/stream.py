"""A source as the rows of a run: read in pieces, encoded, shuffled, put on the device batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.data.arrays import Batch, shuffled_rows
from cavity.data.prefetch import prefetch
from cavity.data.shuffle import Encoded, batch_sizes, buffer_rows, shuffled
from cavity.data.source import Addressed, Piece, Source, place, regroup, sound
from cavity.errors import BadInput

PIECES = 64  # that fill the shuffle buffer: small ones, so that it holds rows from many places
PIECE_BYTES = 64 << 20  # of the rows of one piece; a few are under way at a time
KINDS = {torch.float32: np.float32, torch.float64: np.float64}


class Stream(NamedTuple):
    """Rows of a source with labels 0..C−1; never more in memory than a few pieces and the shuffle buffer."""

    source: Source
    classes: NDArray[Any]  # [C], sorted
    factor: NDArray[np.float64]  # [C], what a row's class multiplies its weight with
    n_rows: int
    n_columns: int
    dtype: torch.dtype
    device: torch.device

    def n_batches(self, size: int) -> int:
        return -(-self.n_rows // size)

    def whole(self, rank: int = 0, world: int = 1) -> Pass:
        """The table in order; a rank gets its slice of every piece."""
        return Pass(self, rank, world)

    def batches(
        self, size: int, generator: torch.Generator, rank: int = 0, world: int = 1
    ) -> Iterator[Batch]:
        """One shuffled pass. Where rows can be addressed, in the order that the same table in memory would have."""
        if hasattr(self.source, "take"):
            yield from self._send(self._addressed(size, generator, rank, world))
            return
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        room = buffer_rows(size, self.n_columns)
        pieces = self._encoded(self.source.scattered(-(-room // PIECES), rng))
        batches = shuffled(pieces, batch_sizes(self.n_rows, size), room, rng)
        yield from self._send(b.at(_slice(len(b.index), rank, world)) for b in batches)

    def _addressed(self, size: int, generator: torch.Generator, rank: int, world: int) -> Iterator[Encoded]:
        source = cast(Addressed, self.source)
        for index in shuffled_rows(self.n_rows, size, generator, rank, world):
            yield from self._encoded(iter([source.take(index.numpy())]))

    def _encoded(self, pieces: Iterator[Piece]) -> Iterator[Encoded]:
        kind = KINDS[self.dtype]
        for piece in sound(pieces, self.source.names, self.n_columns):
            y = self._codes(piece)
            weight = np.ones(len(y)) if piece.weight is None else piece.weight
            yield Encoded(piece.index, piece.X.astype(kind), y, weight * self.factor[y])

    def _codes(self, piece: Piece) -> NDArray[np.int64]:
        codes = np.searchsorted(self.classes, piece.y).clip(max=len(self.classes) - 1)
        unseen = piece.y[self.classes[codes] != piece.y].tolist()
        if unseen:
            raise BadInput(
                f"label {unseen[0]!r} in {place(piece)} was not among the {len(self.classes)} classes of the first pass: "
                "the source must give the same rows every time."
            )
        return codes

    def _send(self, rows: Iterator[Encoded]) -> Iterator[Batch]:
        """Read ahead in a thread; the copy to a GPU is started from pinned memory and not waited for."""
        on_gpu = self.device.type == "cuda"
        for batch in prefetch(_tensors(rows, on_gpu)):
            yield Batch(*(t.to(self.device, non_blocking=on_gpu) for t in batch))


class Pass(NamedTuple):
    """The whole of a stream, read anew each time it is split."""

    stream: Stream
    rank: int
    world: int

    def split(self, size: int) -> Iterator[Batch]:
        """Rows in order, in pieces of at most `size`."""
        stream = self.stream
        size = min(size, stream.n_rows, max(1, PIECE_BYTES // (8 * stream.n_columns)))
        pieces = regroup(_counted(stream.source.pieces(size), stream.n_rows), size)
        parts = (piece.at(_slice(len(piece.index), self.rank, self.world)) for piece in pieces)
        yield from stream._send(stream._encoded(parts))


def _tensors(rows: Iterator[Encoded], pinned: bool) -> Iterator[Batch]:
    for part in rows:
        tensors = [torch.from_numpy(np.ascontiguousarray(column)) for column in part]
        yield Batch(*(t.pin_memory() if pinned else t for t in tensors))


def _slice(rows: int, rank: int, world: int) -> slice:
    """The rank's part, as `tensor_split` cuts."""
    low, more = divmod(rows, world)
    start = rank * low + min(rank, more)
    return slice(start, start + low + (rank < more))


def _counted(pieces: Iterator[Piece], n_rows: int) -> Iterator[Piece]:
    """The pieces, which must have as many rows as the first pass had."""
    count = 0
    for piece in pieces:
        count += len(piece.index)
        if count > n_rows:
            break
        yield piece
    if count != n_rows:
        raise BadInput(
            f"the first pass had {n_rows} rows, this one has {'more' if count > n_rows else count}: the source must give the "
            "same rows every time."
        )
