"""Shuffling of many rows: orders that need no memory; a buffer that stores rows in slots, which batches draw at random."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput

if TYPE_CHECKING:
    import torch

SHUFFLE_ROWS = 100_000
SHUFFLE_BYTES = 128 << 20
ABSENT = -1  # slot of a row that belongs to another rank
ROUNDS = 4
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # odd, with well mixed bits
SHIFT = np.uint64(32)  # the upper half of a product depends on all bits of its factors

Slots = NDArray[np.int64]
Words = NDArray[np.uint64]


class Encoded(NamedTuple):
    """Rows with encoded labels, or targets, and one weight per row."""

    index: NDArray[np.int64]  # type: ignore[assignment]  # [B]
    X: NDArray[Any]  # [B D]
    y: NDArray[Any]  # [B]
    weight: NDArray[np.float64]  # [B]

    def at(self, rows: Any) -> Encoded:
        return Encoded(*(column[rows] for column in self))


def allocate_rows(n_columns: int, dtype: Any, y_dtype: Any, room: int = 0) -> Encoded:
    X = np.empty((room, n_columns), dtype)
    return Encoded(np.empty(room, dtype=np.int64), X, np.empty(room, y_dtype), np.empty(room))


def count_buffer_rows(size: int, n_columns: int) -> int:
    """Return the number of rows in the buffer: as many as the memory limit allows, but at least `size`."""
    return max(size, min(SHUFFLE_ROWS, SHUFFLE_BYTES // (8 * max(1, n_columns))))


def plan_batch_sizes(n_rows: int, size: int) -> list[int]:
    """Split `n_rows` into as few batches as possible, of nearly equal size and at most `size`."""
    count = -(-n_rows // size)
    low, more = divmod(n_rows, count)
    return [low + (i < more) for i in range(count)]


def shard_range(n_rows: int, rank: int, world: int) -> range:
    """Return the rows of a rank: a contiguous block, so that few row groups are read by two ranks."""
    low, high = (n_rows * r // world for r in (rank, rank + 1))
    return range(low, high)


class Store:
    """Store of rows that wait to be drawn, one per slot. Slots freed last are reused first."""

    def __init__(self, rows: Encoded) -> None:
        room, self.rows = len(rows.index), rows  # pages are allocated only when they are written
        self.free, self.n_free = np.arange(room)[::-1].copy(), room

    def add(self, rows: Encoded) -> Slots:
        count = len(rows.index)
        if count > self.n_free:
            self._grow(count - self.n_free)
        self.n_free -= count
        slots = self.free[self.n_free : self.n_free + count].copy()
        for to, of in zip(self.rows, rows, strict=True):
            to[slots] = of
        return slots

    def take(self, slots: Slots) -> Encoded:
        self.free[self.n_free : self.n_free + len(slots)] = slots
        self.n_free += len(slots)
        return self.rows.at(slots)

    def _grow(self, least: int) -> None:
        room, more = len(self.free), max(least, len(self.free) // 4)
        longer = (np.concatenate([c, np.empty((more, *c.shape[1:]), c.dtype)]) for c in self.rows)
        self.rows = Encoded(*longer)
        self.free = np.concatenate([np.arange(room, room + more)[::-1], self.free])
        self.n_free += more


def draw_batches(
    pieces: Iterator[Slots], sizes: Iterable[int], room: int, rng: np.random.Generator
) -> Iterator[Slots]:
    """Draw batches of these sizes at random from a buffer, which is refilled to `room` slots before each batch.

    The order depends only on the number of rows per piece, not on their values.
    """
    buffer = np.empty(room, dtype=np.int64)
    held, given = 0, 0
    for size in sizes:
        while held < room and (piece := next(pieces, None)) is not None:
            if held + len(piece) > len(buffer):
                buffer = np.concatenate([buffer, np.empty_like(piece)])
            buffer[held : held + len(piece)] = piece
            held += len(piece)
        if held < size:
            raise _changed_error(given + held, "fewer")
        chosen = rng.choice(held, size, replace=False)
        yield buffer[chosen]
        _fill_holes(buffer, held, chosen)
        held, given = held - size, given + size
    if held or next(pieces, None) is not None:
        raise _changed_error(given, "more")


def _fill_holes(buffer: Slots, held: int, chosen: NDArray[np.int64]) -> None:
    """Move slots from the end of the buffer into the places of the chosen ones."""
    left = held - len(chosen)
    taken = np.zeros(held - left, dtype=bool)
    taken[chosen[chosen >= left] - left] = True
    buffer[chosen[chosen < left]] = buffer[left + np.flatnonzero(~taken)]


def _changed_error(count: int, word: str) -> BadInput:
    return BadInput(
        f"this pass has {word} rows than the first one (at row {count}): the source must give the same rows in every pass."
    )


class Permutation(NamedTuple):
    """Random order of the numbers 0 to n − 1, which needs no memory: a position alone gives the number at it.

    A Feistel network permutes the numbers of b bits, 2ᵇ ≥ n: each round changes one half by a hash of the other. Results of n or
    more are permuted again until they are below n.
    """

    n: int
    keys: Words  # [ROUNDS 2]

    @classmethod
    def draw(cls, n: int, generator: torch.Generator) -> Permutation:
        import torch  # checksums of rows need this file, and no torch

        keys = torch.randint(2**62, (ROUNDS, 2), generator=generator)
        return cls(n, keys.numpy().astype(np.uint64))

    def find(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        found = self._permute(positions.astype(np.uint64))
        outside = np.flatnonzero(found >= self.n)
        while len(outside):
            found[outside] = self._permute(found[outside])
            outside = outside[found[outside] >= self.n]
        return found.astype(np.int64)

    def _permute(self, x: Words) -> Words:
        bits = max(2, (self.n - 1).bit_length())
        low_bits = np.uint64(bits // 2)
        low_mask, high_mask = (np.uint64((1 << b) - 1) for b in (bits // 2, bits - bits // 2))
        low, high = x & low_mask, x >> low_bits
        for first, second in self.keys:
            low ^= ((high + first) * GOLDEN >> SHIFT) & low_mask
            high ^= ((low + second) * GOLDEN >> SHIFT) & high_mask
        return low | (high << low_bits)
