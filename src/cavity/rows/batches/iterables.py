"""Batches from user code: a callable, or an iterable that can be iterated many times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from cavity.errors import BadInput
from cavity.rows.batches.source import Array, Names, Piece
from cavity.rows.labels import refuse_masked


class Batches:
    """Source of batches (X, y) or (X, y, weight).

    Every pass must give the same rows; they cannot be read by number. `batches` is called, or iterated, once per pass.
    """

    numbered = False
    names: Names = None

    def __init__(self, batches: Callable[[], Iterable[Any]] | Iterable[Any]) -> None:
        if not callable(batches) and iter(batches) is batches:
            raise BadInput(
                "an iterator can be read only once, and training needs several passes: give a callable that returns a new "
                "iterator (lambda: batches()), or an iterable such as a list or a torch DataLoader."
            )
        self.batches = batches

    def pieces(self, size: int) -> Iterator[Piece]:
        """Read all batches in order; splits large ones."""
        first = 0
        for number, batch in enumerate(self.batches() if callable(self.batches) else self.batches):
            piece = _make_piece(batch, number, first)
            first += len(piece.index)
            if len(piece.index) <= size:
                yield piece
                continue
            yield from (piece.at(slice(s, s + size)) for s in range(0, len(piece.index), size))


def _make_piece(batch: Any, number: int, first: int) -> Piece:
    where = f"batch {number}"
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise BadInput(f"{where} is a {type(batch).__name__}; every batch must be (X, y) or (X, y, weight).")
    weight: Array | None = None if len(batch) == 2 else _to_array(batch[2], where).astype(np.float64)
    X, y = _to_array(batch[0], where), _to_array(batch[1], where)
    try:
        X = X.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: X is not numeric ({error}); encode its columns first.") from error
    rows = len(X) if X.ndim else 0
    return Piece(np.arange(first, first + rows), X, y, weight, where)


def _to_array(value: Any, where: str) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    refuse_masked(value, where)
    try:
        return np.asarray(value)
    except ValueError as error:
        raise BadInput(f"{where} is not a table: {error}") from error
