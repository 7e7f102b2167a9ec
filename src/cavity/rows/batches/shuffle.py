"""Shuffling of many rows: orders that need no memory, and a buffer of rows from which batches are drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import GOLDEN, Words

if TYPE_CHECKING:
    import torch

SHUFFLE_ROWS = 100_000
SHUFFLE_BYTES = 128 << 20
ROUNDS = 4
SHIFT = np.uint64(32)  # the upper half of a product depends on all bits of its factors


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
