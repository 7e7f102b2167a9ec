"""Shuffling rows that do not fit into memory: some wait in a store, and what is drawn at random is where they lie in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput

SHUFFLE_ROWS = 100_000
SHUFFLE_BYTES = 128 << 20
ABSENT = -1  # the slot of a row that is another rank's

Slots = NDArray[np.int64]


class Encoded(NamedTuple):
    """Rows with encoded labels and a weight each."""

    index: NDArray[np.int64]  # type: ignore[assignment]  # [B]
    X: NDArray[Any]  # [B D]
    y: NDArray[np.int64]  # [B]
    weight: NDArray[np.float64]  # [B]

    def at(self, rows: Any) -> Encoded:
        return Encoded(*(column[rows] for column in self))


def no_rows(n_columns: int, dtype: Any, room: int = 0) -> Encoded:
    """A table of `room` rows in which nothing is written yet."""
    numbers = np.empty(room, dtype=np.int64)
    return Encoded(numbers, np.empty((room, n_columns), dtype), numbers.copy(), np.empty(room))


def buffer_rows(size: int, n_columns: int) -> int:
    """Rows that a buffer holds: at least a batch of `size`, otherwise as many as the bytes allow."""
    return max(size, min(SHUFFLE_ROWS, SHUFFLE_BYTES // (8 * max(1, n_columns))))


def batch_sizes(n_rows: int, size: int) -> list[int]:
    """As few batches as possible, of nearly equal size, none larger than `size`."""
    count = -(-n_rows // size)
    low, more = divmod(n_rows, count)
    return [low + (i < more) for i in range(count)]


class Store:
    """Rows that wait to be drawn, each in a slot. The last slots that became free are used first."""

    def __init__(self, room: int, n_columns: int, dtype: Any) -> None:
        self.rows = no_rows(n_columns, dtype, room)  # memory that is never written is never taken
        self.free, self.n_free = np.arange(room)[::-1].copy(), room

    def add(self, rows: Encoded) -> Slots:
        """Where they lie from now on."""
        count = len(rows.index)
        if count > self.n_free:
            self._grow(count - self.n_free)
        self.n_free -= count
        slots = self.free[self.n_free : self.n_free + count].copy()
        for to, of in zip(self.rows, rows, strict=True):
            to[slots] = of
        return slots

    def take(self, slots: Slots) -> Encoded:
        """A copy of these rows, whose slots become free."""
        self.free[self.n_free : self.n_free + len(slots)] = slots
        self.n_free += len(slots)
        return self.rows.at(slots)

    def _grow(self, least: int) -> None:
        room, more = len(self.free), max(least, len(self.free) // 4)
        longer = (np.concatenate([c, np.empty((more, *c.shape[1:]), c.dtype)]) for c in self.rows)
        self.rows = Encoded(*longer)
        self.free = np.concatenate([np.arange(room, room + more)[::-1], self.free])
        self.n_free += more


def shuffled(
    pieces: Iterator[Slots], sizes: Iterable[int], room: int, rng: np.random.Generator
) -> Iterator[Slots]:
    """Batches of these sizes, each drawn at random from a buffer that is refilled to `room` slots before.

    The order depends on how many rows the pieces have and never on what is in them.
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
            raise _changed(given + held, "fewer")
        chosen = rng.choice(held, size, replace=False)
        yield buffer[chosen]
        _fill_holes(buffer, held, chosen)
        held, given = held - size, given + size
    if held or next(pieces, None) is not None:
        raise _changed(given, "more")


def _fill_holes(buffer: Slots, held: int, chosen: NDArray[np.int64]) -> None:
    """Move slots from the end to where the chosen ones were."""
    left = held - len(chosen)
    taken = np.zeros(held - left, dtype=bool)
    taken[chosen[chosen >= left] - left] = True
    buffer[chosen[chosen < left]] = buffer[left + np.flatnonzero(~taken)]


def _changed(count: int, word: str) -> BadInput:
    return BadInput(
        f"this pass has {word} rows than the first one had (at row {count}): the source must give the same rows every time."
    )
