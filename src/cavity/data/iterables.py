"""Batches that someone else makes: a callable, or anything that can be iterated again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from cavity.data.source import Array, Names, Piece
from cavity.errors import BadInput


class Batches:
    """(X, y) or (X, y, weight), batch after batch; rows are the same in every pass but cannot be found by number.

    `batches` is called, or iterated, once a pass.
    """

    numbered = False

    def __init__(self, batches: Callable[[], Iterable[Any]] | Iterable[Any], names: Names = None) -> None:
        if not callable(batches) and iter(batches) is batches:
            raise BadInput(
                "an iterator is used up after one pass, and training takes several: give a callable that returns a new one "
                "(lambda: batches()), or something that can be iterated again, such as a list or a torch DataLoader."
            )
        self.batches, self.names = batches, names

    def pieces(self, size: int) -> Iterator[Piece]:
        """In the order given, large batches cut."""
        first = 0
        for number, batch in enumerate(self.batches() if callable(self.batches) else self.batches):
            piece = _piece(batch, number, first)
            first += len(piece.index)
            if len(piece.index) <= size:
                yield piece
                continue
            yield from (piece.at(slice(s, s + size)) for s in range(0, len(piece.index), size))

    def scattered(self, size: int, rng: np.random.Generator) -> Iterator[Piece]:
        """In the order given: only the shuffle buffer mixes them."""
        return self.pieces(size)


def _piece(batch: Any, number: int, first: int) -> Piece:
    where = f"batch {number}"
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise BadInput(f"{where} is a {type(batch).__name__}; every batch must be (X, y) or (X, y, weight).")
    weight: Array | None = None if len(batch) == 2 else _array(batch[2], where).astype(np.float64)
    X, y = _array(batch[0], where), _array(batch[1], where)
    try:
        X = X.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: X holds what is not a number ({error}); encode it first.") from error
    rows = len(X) if X.ndim else 0
    return Piece(np.arange(first, first + rows), X, y, weight, where)


def _array(value: Any, where: str) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        return np.asarray(value)
    except ValueError as error:
        raise BadInput(f"{where} is not a table: {error}") from error
