"""Stream a source: read pieces, encode, shuffle, and copy batches to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.errors import BadInput
from cavity.rows.batches.checksums import Content, PassSum
from cavity.rows.batches.in_memory import Batch, Rows, shuffle_rows
from cavity.rows.batches.shuffle import (
    Buffer,
    Encoded,
    allocate_rows,
    count_buffer_rows,
    plan_batch_sizes,
    shard_range,
)
from cavity.rows.batches.source import (
    Piece,
    append_target,
    check,
    describe_place,
    intersect,
    name_target,
    prefetch,
    regroup,
)

PIECES = 64  # pieces per shuffle buffer; many small ones mix rows from many places
PIECE_BYTES = 64 << 20  # maximum size of a piece; a few are in memory at a time
KINDS = {torch.float32: np.float32, torch.float64: np.float64}


class Visit(NamedTuple):
    """One step of a shuffled pass: some rows, of which only the wanted ones are read."""

    numbers: NDArray[np.int64]  # [B], row numbers of all rows
    piece: Piece | None  # the wanted rows, in the same order


class Stream(NamedTuple):
    """Rows of a source with labels 0..C−1, or targets. Holds only a few pieces and the shuffle buffer in memory.

    A rank has the rows `keep`, numbered from 0. Which rows form a batch depends only on the generator and on row numbers, so rows
    of other ranks need not be read.
    """

    source: Any  # a Source; what more it can do is asked with hasattr
    classes: NDArray[Any]  # [C], sorted
    factor: NDArray[np.float64]  # [C], class weights; they multiply the weights of rows
    total: int
    n_columns: int
    dtype: torch.dtype
    device: torch.device
    content: Content | None = None  # to compare every pass with the first
    units: tuple[float, float] | None = None  # of real targets, (y − shift)/scale; None for classes
    mine: range | None = None  # rows of this rank; None: all

    def shard(self, rank: int, world: int) -> Stream:
        return self._replace(mine=shard_range(self.total, rank, world))

    @property
    def keep(self) -> range:
        return range(self.total) if self.mine is None else self.mine

    @property
    def n_rows(self) -> int:
        return len(self.keep)

    def n_batches(self, size: int) -> int:
        return -(-self.total // size)

    def whole(self) -> Stream:
        return self

    def split(self, size: int) -> Iterator[Batch]:
        """Read pieces of at most `size` rows in order; one empty piece if there are none."""
        size = max(1, min(size, self.n_rows, PIECE_BYTES // (8 * self.n_columns)))
        pieces = regroup(self._in_order(size), repeat(size))
        yield from self._send(self._encode_all(pieces) if self.n_rows else iter([self._allocate(0)]))

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Make one shuffled pass. If the source can read rows by number, the order is that of the same table in memory."""
        rows = self._take_rows if hasattr(self.source, "take") else self._draw_rows
        yield from self._send(rows(size, generator))

    def _take_rows(self, size: int, generator: torch.Generator) -> Iterator[Encoded]:
        order = shuffle_rows(self.total, size, generator, self.mine)
        return self._encode_all(self.source.take(index.numpy()) for index in order)

    def _draw_rows(self, size: int, generator: torch.Generator) -> Iterator[Encoded]:
        rng = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
        room = count_buffer_rows(size, self.n_columns)
        piece = -(-room // PIECES)
        buffer = Buffer(self._allocate(min(self.total, room + piece)))
        total, visits, given = PassSum(self.content, self.keep), self._visits(piece, rng), 0
        for count in plan_batch_sizes(self.total, size):
            while buffer.held < room and (visit := next(visits, None)) is not None:
                rows = None if visit.piece is None else self._encode(visit.piece, total)
                buffer.add(visit.numbers, self._is_mine(visit.numbers), rows)
            if buffer.held < count:
                raise _changed_error(given + buffer.held, "fewer")
            drawn, given = buffer.draw(count, rng), given + count
            yield drawn if self.mine is None else drawn.at(self._is_mine(drawn.index))
        if buffer.held or next(visits, None) is not None:
            raise _changed_error(given, "more")
        total.finish()

    def _allocate(self, room: int) -> Encoded:
        kinds = KINDS[self.dtype], np.int64 if self.units is None else np.float64
        return allocate_rows(self.n_columns, *kinds, room)

    def _visits(self, size: int, rng: np.random.Generator) -> Iterator[Visit]:
        """Visit all rows, in an order that is as random as is cheap; a source with parts reads only the own ones."""
        if hasattr(self.source, "parts"):
            parts, lanes = self.source.parts(), self.source.lanes
            yield from _shuffle_parts(parts, lanes, rng, lambda part: self._visit_part(part, size))
            return
        for piece in self.source.pieces(size):
            yield Visit(piece.index, piece.at(self._is_mine(piece.index)))

    def _visit_part(self, part: range, size: int) -> Iterator[Visit]:
        """Cut a part at multiples of `size` and read the own rows of each cut."""
        cuts = [part[start : start + size] for start in range(0, len(part), size)]
        counts = [len(intersect(cut, self.keep)) for cut in cuts]
        pieces = regroup(self.source.section(intersect(part, self.keep), size), (n for n in counts if n))
        for cut, count in zip(cuts, counts, strict=True):
            yield Visit(np.arange(cut.start, cut.stop), next(pieces) if count else None)

    def _in_order(self, size: int) -> Iterator[Piece]:
        if hasattr(self.source, "section"):
            yield from _check_count(self.source.section(self.keep, size), self.n_rows)
            return
        for piece in _check_count(self.source.pieces(size), self.total):
            yield piece.at(self._is_mine(piece.index))

    def _is_mine(self, index: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (index >= self.keep.start) & (index < self.keep.stop)

    def _encode(self, piece: Piece, total: PassSum) -> Encoded:
        real, names = self.units is not None, self.source.names
        piece = append_target(piece) if real else piece
        check(piece, name_target(names) if real else names, self.n_columns + real)
        codes = self._codes(piece)
        total.add(piece, codes)
        weight = (np.ones(len(codes)) if piece.weight is None else piece.weight) * self.factor[codes]
        if self.units is None:
            return Encoded(piece.index, piece.X.astype(KINDS[self.dtype]), codes, weight)
        y = (piece.X[:, -1] - self.units[0]) / self.units[1]
        return Encoded(piece.index, piece.X[:, :-1].astype(KINDS[self.dtype]), y, weight)

    def _encode_all(self, pieces: Iterator[Piece]) -> Iterator[Encoded]:
        total = PassSum(self.content, self.keep)
        yield from (self._encode(piece, total) for piece in pieces)
        total.finish()

    def _codes(self, piece: Piece) -> NDArray[np.int64]:
        codes = np.searchsorted(self.classes, piece.y).clip(max=len(self.classes) - 1)
        unseen = piece.y[self.classes[codes] != piece.y].tolist()
        if unseen:
            raise BadInput(
                f"label {unseen[0]!r} in {describe_place(piece)} is not one of the {len(self.classes)} classes of the first pass: "
                "the source must give the same rows in every pass."
            )
        return codes

    def _send(self, rows: Iterator[Encoded]) -> Iterator[Batch]:
        """Prefetch in a thread; copy to a GPU asynchronously from pinned memory."""
        on_gpu = self.device.type == "cuda"
        for batch in prefetch(_make_tensors(rows, on_gpu)):
            index, *others = (t.to(self.device, non_blocking=on_gpu) for t in batch)
            yield Batch(index - self.keep.start, *others)


# Rows for training: encoded labels, positive weights, tensors on the device. The second is all of them, read in pieces.
Data = Rows | Stream
Whole = Batch | Stream


def _shuffle_parts(
    parts: list[range], lanes: int, rng: np.random.Generator, visit: Callable[[range], Iterator[Visit]]
) -> Iterator[Visit]:
    """Visit parts in random order: several are open at a time, and each visit goes to a random one of them.

    The order depends only on row counts, not on which rows of a part are read.
    """
    queue = [parts[i] for i in rng.permutation(len(parts))[::-1]]
    running: list[Iterator[Visit]] = []
    left: list[int] = []
    try:
        while queue or running:
            while queue and len(running) < lanes:
                left.append(len(queue[-1]))
                running.append(visit(queue.pop()))
            lane = int(rng.choice(len(running), p=np.array(left) / sum(left)))
            come = next(running[lane])
            yield come
            left[lane] -= len(come.numbers)
            if not left[lane]:
                del running[lane], left[lane]
    finally:  # else the open parts keep their memory while the next pass allocates its own
        running.clear()


def _make_tensors(rows: Iterator[Encoded], pinned: bool) -> Iterator[Batch]:
    for part in rows:
        tensors = [torch.from_numpy(np.ascontiguousarray(column)) for column in part]
        yield Batch(*(t.pin_memory() if pinned else t for t in tensors))


def _check_count(pieces: Iterator[Piece], n_rows: int) -> Iterator[Piece]:
    """Yield the pieces; raise BadInput if they do not have `n_rows` rows in total."""
    count = 0
    for piece in pieces:
        count += len(piece.index)
        if count > n_rows:
            break
        yield piece
    if count != n_rows:
        raise _changed_error(count, "more" if count > n_rows else "fewer")


def _changed_error(count: int, word: str) -> BadInput:
    return BadInput(
        f"this pass has {word} rows than the first one (at row {count}): the source must give the same rows in every pass."
    )
