"""A source as the rows of a run: read in pieces, encoded, shuffled, put on the device batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.data.arrays import Batch, shuffled_rows
from cavity.data.prefetch import prefetch
from cavity.data.shuffle import (
    ABSENT,
    Encoded,
    Slots,
    Store,
    batch_sizes,
    buffer_rows,
    no_rows,
    shuffled,
)
from cavity.data.source import (
    Addressed,
    Divided,
    Piece,
    Planned,
    Source,
    Visit,
    check,
    describe_place,
    regroup,
)
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

    def whole(self, keep: range | None = None) -> Pass:
        """The table in order, or the rows of it that are in `keep`."""
        return Pass(self, range(self.n_rows) if keep is None else keep)

    def batches(self, size: int, generator: torch.Generator, keep: range | None = None) -> Iterator[Batch]:
        """One shuffled pass. Where rows can be addressed, in the order that the same table in memory would have.

        Which rows make a batch depends on the generator and on the rows' numbers, so that of the rows outside `keep` only the
        numbers are looked at, where the source can leave them unread.
        """
        keep = range(self.n_rows) if keep is None else keep
        rows = self._addressed if hasattr(self.source, "take") else self._drawn
        yield from self._send(rows(size, generator, keep))

    def _addressed(self, size: int, generator: torch.Generator, keep: range) -> Iterator[Encoded]:
        source = cast(Addressed, self.source)
        for index in shuffled_rows(self.n_rows, size, generator, keep):
            yield self._encode(source.take(index.numpy()))

    def _drawn(self, size: int, generator: torch.Generator, keep: range) -> Iterator[Encoded]:
        """Through the shuffle buffer."""
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        room = buffer_rows(size, self.n_columns)
        piece = -(-room // PIECES)
        store = Store(min(len(keep), room + piece), self.n_columns, KINDS[self.dtype])

        def slots(visit: Visit) -> Slots:
            found = np.full(len(visit.numbers), ABSENT)
            if len(visit.piece.index):
                found[_inside(visit.numbers, keep)] = store.add(self._encode(visit.piece))
            return found

        waiting = map(slots, self._visits(piece, rng, keep))
        for drawn in shuffled(waiting, batch_sizes(self.n_rows, size), room, rng):
            yield store.take(drawn[drawn != ABSENT])

    def _visits(self, size: int, rng: np.random.Generator, keep: range) -> Iterator[Visit]:
        if hasattr(self.source, "visits"):
            yield from cast(Planned, self.source).visits(size, rng, keep)
            return
        for piece in self.source.scattered(size, rng):
            yield Visit(piece.index, piece.at(_inside(piece.index, keep)))

    def _in_order(self, size: int, keep: range) -> Iterator[Piece]:
        if hasattr(self.source, "section"):
            yield from _counted(cast(Divided, self.source).section(keep, size), len(keep))
            return
        for piece in _counted(self.source.pieces(size), self.n_rows):
            yield piece.at(_inside(piece.index, keep))

    def _encode(self, piece: Piece) -> Encoded:
        check(piece, self.source.names, self.n_columns)
        y = self._codes(piece)
        weight = np.ones(len(y)) if piece.weight is None else piece.weight
        return Encoded(piece.index, piece.X.astype(KINDS[self.dtype]), y, weight * self.factor[y])

    def _codes(self, piece: Piece) -> NDArray[np.int64]:
        codes = np.searchsorted(self.classes, piece.y).clip(max=len(self.classes) - 1)
        unseen = piece.y[self.classes[codes] != piece.y].tolist()
        if unseen:
            raise BadInput(
                f"label {unseen[0]!r} in {describe_place(piece)} was not among the {len(self.classes)} classes of the first pass: "
                "the source must give the same rows every time."
            )
        return codes

    def _send(self, rows: Iterator[Encoded]) -> Iterator[Batch]:
        """Read ahead in a thread; the copy to a GPU is started from pinned memory and not waited for."""
        on_gpu = self.device.type == "cuda"
        for batch in prefetch(_tensors(rows, on_gpu)):
            yield Batch(*(t.to(self.device, non_blocking=on_gpu) for t in batch))


class Pass(NamedTuple):
    """A stream in order, or some of its rows, read anew each time it is split."""

    stream: Stream
    keep: range

    def split(self, size: int) -> Iterator[Batch]:
        """Pieces of at most `size` rows; a single empty one where there are none."""
        stream, keep = self
        size = max(1, min(size, len(keep), PIECE_BYTES // (8 * stream.n_columns)))
        pieces = regroup(stream._in_order(size, keep), repeat(size))
        none = iter([no_rows(stream.n_columns, KINDS[stream.dtype])])
        yield from stream._send(map(stream._encode, pieces) if len(keep) else none)


def _tensors(rows: Iterator[Encoded], pinned: bool) -> Iterator[Batch]:
    for part in rows:
        tensors = [torch.from_numpy(np.ascontiguousarray(column)) for column in part]
        yield Batch(*(t.pin_memory() if pinned else t for t in tensors))


def _inside(index: NDArray[np.int64], keep: range) -> NDArray[np.bool_]:
    return (index >= keep.start) & (index < keep.stop)


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
