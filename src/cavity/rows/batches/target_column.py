"""Real-valued targets, carried as the last column of X, so that code for class labels can read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from cavity.errors import BadInput
from cavity.rows.batches.in_memory import Batch
from cavity.rows.batches.shuffle import Encoded
from cavity.rows.batches.source import Array, Names, Piece, Source, Visit, describe_place
from cavity.rows.batches.stream import Stream
from cavity.rows.labels import read_numbers


class TargetColumn:
    """Source with (y − shift)/scale as its last column and the label 0 in every row.

    Other attributes (row numbers, sections, visits) are those of the wrapped source.
    """

    def __init__(self, source: Source, shift: float = 0.0, scale: float = 1.0) -> None:
        self.source, self.shift, self.scale = source, shift, scale

    @property
    def names(self) -> Names:
        names = self.source.names
        return None if names is None else (*names, "the target")

    @property
    def numbered(self) -> bool:
        return self.source.numbered

    def pieces(self, size: int) -> Iterator[Piece]:
        return map(self._append_target, self.source.pieces(size))

    def scattered(self, size: int, rng: np.random.Generator) -> Iterator[Piece]:
        return map(self._append_target, self.source.scattered(size, rng))

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # a copy in the making has no attributes yet
            raise AttributeError(name)
        found = getattr(self.source, name)
        if name == "take":
            return lambda *arguments: self._append_target(found(*arguments))
        if name == "section":
            return lambda *arguments: map(self._append_target, found(*arguments))
        if name == "visits":
            return lambda *arguments: (
                Visit(v.numbers, self._append_target(v.piece)) for v in found(*arguments)
            )
        return found

    def _append_target(self, piece: Piece) -> Piece:
        y = (_read_targets(piece) - self.shift) / self.scale
        return piece._replace(X=np.column_stack([piece.X, y]), y=np.zeros(len(y), dtype=np.int64))


def _read_targets(piece: Piece) -> Array:
    if piece.X.ndim != 2 or piece.y.shape != (len(piece.X),):
        raise BadInput(
            f"{describe_place(piece)}: X has shape {piece.X.shape} and y has shape {piece.y.shape}. "
            "Give X of shape (n, D) and one target per row, y of shape (n,)."
        )
    return read_numbers(np.asarray(piece.y), f"{describe_place(piece)}: ")


class TargetStream(Stream):
    """Stream of a `TargetColumn`; splits the last column off again and returns it as y."""

    def _send(self, rows: Iterator[Encoded]) -> Iterator[Batch]:
        for batch in super()._send(rows):
            y = batch.X[:, -1].to(torch.float64)
            yield batch._replace(X=batch.X[:, :-1].contiguous(), y=y)
