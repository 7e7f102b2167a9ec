"""Protocols for sources of rows, and the checks on every piece that is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Flags, Floats, Ints
from cavity.errors import BadInput
from cavity.tables.labels import check_labels

Names = tuple[str, ...] | None
TRAINS, JUDGES, DROPPED = range(3)
# maximum size of a piece
PIECE_ROWS = 65_536
PIECE_BYTES = 32 << 20


class Piece(NamedTuple):
    """Rows of a source, with labels that are not encoded yet."""

    index: Ints  # type: ignore[assignment]  # [B], row numbers
    X: NDArray[Any]  # [B D]
    y: NDArray[Any]  # [B]
    weight: Floats | None  # [B]
    where: str = ""  # the file, for messages

    def at(self, rows: Any) -> Piece:
        weight = None
        if self.weight is not None:
            weight = self.weight[rows]
        return Piece(self.index[rows], self.X[rows], self.y[rows], weight, self.where)


class Apart(NamedTuple):
    """Rows of whole groups of a source, which judge a model and do not train it."""

    role: NDArray[
        np.int8
    ]  # [N], TRAINS, JUDGES, or DROPPED: of a group that judges, but without this row
    group: Ints  # of the rows that judge
    n_groups: int  # of all rows

    def trains(self, rows: Any) -> Flags:
        return self.role[rows] == TRAINS

    def judges(self, rows: Any) -> Flags:
        return self.role[rows] == JUDGES


class Source(Protocol):
    """Source of rows, which a fit reads once.

    With `section(rows, size)`, which reads a range of its `n_rows`, ranks divide it.
    With `group`, its column of groups or None, `read_groups()` yields labels and groups
    of all rows in order, chunk by chunk.
    """

    @property
    def names(self) -> Names: ...

    def pieces(self, size: int) -> Iterator[Piece]:
        """Read all rows in order, in pieces of at most `size`."""
        ...


def rows_per_piece(n_columns: int) -> int:
    """Return the rows of a piece of a table with so many columns."""
    return max(1, min(PIECE_ROWS, PIECE_BYTES // (8 * max(1, n_columns))))


def check_pieces(
    pieces: Iterator[Piece],
    names: Names,
    check: Callable[[Any, int], NDArray[Any]] = check_labels,
) -> Iterator[Piece]:
    """Yield pieces with finite X, checked labels, positive weights and the same columns
    in all of them.
    """
    n_columns = None
    for piece in pieces:
        _check_shape(piece, n_columns)
        n_columns = piece.X.shape[1]
        if not np.isfinite(piece.X).all():
            bad = describe_bad_cells(piece.X, names, "missing or NaN")
            raise BadInput(
                f"Input X contains NaN or infinity in {describe_place(piece)}: {bad}. "
                f"Later rows were not read. Fill in these "
                "cells or remove these rows, and write the files again."
            )
        _check_weights(piece)
        if len(piece.y):
            try:
                piece = piece._replace(y=check(piece.y, len(piece.X)))
            except BadInput as error:
                raise BadInput(f"{describe_place(piece)}: {error}") from error
        yield piece


def describe_place(piece: Piece) -> str:
    """Describe the rows and the file of a piece, for messages."""
    if not len(piece.index):
        return piece.where or "an empty piece"
    rows = f"rows {piece.index.min()} to {piece.index.max()}"
    if piece.where:
        return f"{rows} ({piece.where})"
    return rows


def _check_shape(piece: Piece, n_columns: int | None) -> None:
    if piece.X.ndim != 2 or piece.y.ndim != 1 or len(piece.X) != len(piece.y):
        said = (
            f"{describe_place(piece)}: X has shape {piece.X.shape} and y has shape "
            f"{piece.y.shape}"
        )
        raise BadInput(
            f"{said}. Give X of shape (n, D) and one label or target per row, y of "
            f"shape (n,)."
        )
    if n_columns is not None and piece.X.shape[1] != n_columns:
        raise BadInput(
            f"{describe_place(piece)}: {piece.X.shape[1]} columns, but there were "
            f"{n_columns} before: give all pieces the same."
        )


def describe_bad_cells(X: NDArray[Any], names: Any, nan: str = "NaN") -> str:
    """Say which columns have how many NaN and infinite cells."""
    wrong = ~np.isfinite(X)
    columns = np.flatnonzero(wrong.any(0))
    what = []
    for j in columns[:5]:
        counts = {
            nan: int(np.isnan(X[:, j]).sum()),
            "infinite": int(np.isinf(X[:, j]).sum()),
        }
        cells = " and ".join(f"{n} {word}" for word, n in counts.items() if n)
        what.append(f"column {j if names is None else repr(str(names[j]))}: {cells}")
    more = len(columns) - len(what)
    return "; ".join(what) + (f"; and {more} more columns" if more > 0 else "")


def _check_weights(piece: Piece) -> None:
    if piece.weight is None:
        return
    if piece.weight.shape != piece.y.shape:
        what = f"weights of shape {piece.weight.shape} for {len(piece.y)} rows"
        raise BadInput(f"{describe_place(piece)}: {what}; give one weight per row.")
    wrong = ~(np.isfinite(piece.weight) & (piece.weight > 0))
    if wrong.any():
        raise BadInput(
            f"{int(wrong.sum())} weights in {describe_place(piece)} are missing, "
            f"infinite or not positive: remove rows of weight 0."
        )


def regroup(pieces: Iterator[Piece], size: int) -> Iterator[Piece]:
    """Yield the same rows in pieces of this size; the last may be smaller."""
    held: list[Piece] = []
    missing = size
    for piece in pieces:
        start = 0
        while start < len(piece.index):
            part = piece.at(slice(start, start + missing))
            start = start + len(part.index)
            missing = missing - len(part.index)
            held.append(part)
            if not missing:
                yield join(held)
                held = []
                missing = size
    if held:
        yield join(held)


def intersect(a: range, b: range) -> range:
    return range(max(a.start, b.start), min(a.stop, b.stop))


def join(parts: list[Piece]) -> Piece:
    """Concatenate pieces; the result has the file of the first."""
    if len(parts) == 1:
        return parts[0]
    weights = [np.ones(len(p.index)) if p.weight is None else p.weight for p in parts]
    weight = None
    if not all(p.weight is None for p in parts):
        weight = np.concatenate(weights)
    index, X, y = (
        np.concatenate(columns) for columns in list(zip(*parts, strict=True))[:3]
    )
    return Piece(index, X, y, weight, parts[0].where)
