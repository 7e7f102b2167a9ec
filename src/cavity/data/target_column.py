"""Real targets of a source, carried as its last column: what reads rows of classes then reads them too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from cavity.data.arrays import Batch
from cavity.data.shuffle import Encoded
from cavity.data.source import Array, Names, Piece, Source, Visit, describe_place
from cavity.data.stream import Stream
from cavity.errors import BadInput


class TargetColumn:
    """A source with (y − shift)/scale as its last column, and the label 0 throughout.

    It has whatever else the source has: row numbers, sections, visits.
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
        return map(self._beside, self.source.pieces(size))

    def scattered(self, size: int, rng: np.random.Generator) -> Iterator[Piece]:
        return map(self._beside, self.source.scattered(size, rng))

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # of a copy that has nothing yet
            raise AttributeError(name)
        found = getattr(self.source, name)
        if name == "take":
            return lambda *arguments: self._beside(found(*arguments))
        if name == "section":
            return lambda *arguments: map(self._beside, found(*arguments))
        if name == "visits":
            return lambda *arguments: (Visit(v.numbers, self._beside(v.piece)) for v in found(*arguments))
        return found

    def _beside(self, piece: Piece) -> Piece:
        y = (_numbers(piece) - self.shift) / self.scale
        return piece._replace(X=np.column_stack([piece.X, y]), y=np.zeros(len(y), dtype=np.int64))


def _numbers(piece: Piece) -> Array:
    if piece.X.ndim != 2 or piece.y.shape != (len(piece.X),):
        raise BadInput(
            f"{describe_place(piece)}: X has shape {piece.X.shape} and y has shape {piece.y.shape}. "
            "Give X of shape (n, D) and one target per row, y of shape (n,)."
        )
    try:
        y = np.asarray(piece.y, dtype=np.float64)
        if any(isinstance(v, str) for v in piece.y[:1].tolist()):
            raise TypeError
    except (TypeError, ValueError):
        odd = next(v for v in piece.y.tolist() if not isinstance(v, int | float))
        raise BadInput(
            f"{describe_place(piece)}: y must hold numbers, and {odd!r} is none: for class labels use GPClassifier."
        ) from None
    if not np.isfinite(y).all():
        bad = int((~np.isfinite(y)).sum())
        raise BadInput(
            f"y contains NaN or infinity, or misses values, in {bad} of {describe_place(piece)}: filter these rows out."
        )
    return y


class TargetStream(Stream):
    """A stream of a source with its targets beside it, which hands them out as y."""

    def _send(self, rows: Iterator[Encoded]) -> Iterator[Batch]:
        for batch in super()._send(rows):
            y = batch.X[:, -1].to(torch.float64)
            yield batch._replace(X=batch.X[:, :-1].contiguous(), y=y)
