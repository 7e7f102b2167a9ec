"""Shuffling rows that do not fit into memory: a buffer that is kept full and drawn from at random."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput

SHUFFLE_ROWS = 100_000
SHUFFLE_BYTES = 128 << 20


class Encoded(NamedTuple):
    """Rows with encoded labels and a weight each."""

    index: NDArray[np.int64]  # type: ignore[assignment]  # [B]
    X: NDArray[Any]  # [B D]
    y: NDArray[np.int64]  # [B]
    weight: NDArray[np.float64]  # [B]

    def at(self, rows: Any) -> Encoded:
        return Encoded(*(column[rows] for column in self))


def buffer_rows(size: int, n_columns: int) -> int:
    """Rows that a buffer holds: at least a batch of `size`, otherwise as many as the bytes allow."""
    return max(size, min(SHUFFLE_ROWS, SHUFFLE_BYTES // (8 * max(1, n_columns))))


def batch_sizes(n_rows: int, size: int) -> list[int]:
    """As few batches as possible, of nearly equal size, none larger than `size`."""
    count = -(-n_rows // size)
    low, more = divmod(n_rows, count)
    return [low + (i < more) for i in range(count)]


def shuffled(
    pieces: Iterator[Encoded], sizes: Iterable[int], room: int, rng: np.random.Generator
) -> Iterator[Encoded]:
    """Batches of these sizes, each drawn at random from a buffer that is refilled to `room` rows before."""
    buffer: Encoded | None = None
    held, given = 0, 0
    for size in sizes:
        while held < room and (piece := next(pieces, None)) is not None:
            buffer = _add(buffer, held, piece, room)
            held += len(piece.index)
        if held < size or buffer is None:
            raise _changed(given + held, "fewer")
        chosen = rng.choice(held, size, replace=False)
        yield buffer.at(chosen)
        _fill_holes(buffer, held, chosen)
        held, given = held - size, given + size
    if held or next(pieces, None) is not None:
        raise _changed(given, "more")


def _add(buffer: Encoded | None, held: int, piece: Encoded, room: int) -> Encoded:
    end = held + len(piece.index)
    if buffer is None or end > len(buffer.index):
        rows = max(room, end)
        new = Encoded(*(np.empty((rows, *c.shape[1:]), c.dtype) for c in piece))
        if buffer is not None:
            for to, of in zip(new, buffer, strict=True):
                to[:held] = of[:held]
        buffer = new
    for to, of in zip(buffer, piece, strict=True):
        to[held:end] = of
    return buffer


def _fill_holes(buffer: Encoded, held: int, chosen: NDArray[np.int64]) -> None:
    """Move rows from the end to where the chosen ones were."""
    left = held - len(chosen)
    taken = np.zeros(held - left, dtype=bool)
    taken[chosen[chosen >= left] - left] = True
    holes, movers = chosen[chosen < left], left + np.flatnonzero(~taken)
    for column in buffer:
        column[holes] = column[movers]


def _changed(count: int, word: str) -> BadInput:
    return BadInput(
        f"this pass has {word} rows than the first one had (at row {count}): the source must give the same rows every time."
    )
