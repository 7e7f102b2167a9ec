"""Shuffling of many rows: a buffer of rows from which batches are drawn at random."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SHUFFLE_ROWS = 100_000
SHUFFLE_BYTES = 128 << 20


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


class Buffer:
    """Rows that wait to be drawn. Rows of other ranks take a place, but only their number is known.

    The order depends only on the number of rows per piece, not on their values.
    """

    def __init__(self, rows: Encoded) -> None:
        self.rows, self.held = rows, 0  # pages are allocated only when they are written

    def add(self, numbers: NDArray[np.int64], mine: NDArray[np.bool_], rows: Encoded | None) -> None:
        """Add rows with these numbers, of which `mine` have the contents `rows`."""
        stop = self.held + len(numbers)
        if stop > len(self.rows.index):
            longer = (np.concatenate([c, np.empty((len(numbers), *c.shape[1:]), c.dtype)]) for c in self.rows)
            self.rows = Encoded(*longer)
        self.rows.index[self.held : stop] = numbers
        if rows is not None:
            for to, of in zip(self.rows[1:], rows[1:], strict=True):
                to[self.held : stop][slice(None) if len(of) == len(numbers) else mine] = of
        self.held = stop

    def draw(self, size: int, rng: np.random.Generator) -> Encoded:
        """Take rows out at random; the last ones move to their places."""
        chosen = rng.choice(self.held, size, replace=False)
        drawn = self.rows.at(chosen)
        self.held -= size
        stays = np.ones(size, dtype=bool)
        stays[chosen[chosen >= self.held] - self.held] = False
        holes, last = chosen[chosen < self.held], self.held + np.flatnonzero(stays)
        for column in self.rows:
            column[holes] = column[last]
        return drawn
