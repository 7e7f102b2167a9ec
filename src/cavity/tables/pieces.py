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
MAX_NAMES = 5  # columns that a message names


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

    # [N], TRAINS, JUDGES, or DROPPED: the group judges, but without this row
    role: NDArray[np.int8]
    group: Ints  # groups of the rows that judge
    n_groups: int  # number of groups of all rows

    def trains(self, rows: Any) -> Flags:
        return self.role[rows] == TRAINS

    def judges(self, rows: Any) -> Flags:
        return self.role[rows] == JUDGES


class Source(Protocol):
    """Source of rows, which a fit reads once.

    Ranks divide a source that also has `n_rows` and `section(rows, size)`, which reads
    a range of rows. A source with groups has `group`, its column of groups or None, and
    `read_groups()`, which yields labels and groups of all rows in order, in chunks.
    """

    @property
    def names(self) -> Names: ...

    def pieces(self, size: int) -> Iterator[Piece]:
        """Read all rows in order, in pieces of at most `size`."""
        ...


def rows_per_piece(n_columns: int, most: int = PIECE_ROWS) -> int:
    """Return the maximum number of rows of a piece of a table."""
    return max(1, min(most, PIECE_BYTES // (8 * max(1, n_columns))))


def check_pieces(
    pieces: Iterator[Piece],
    names: Names,
    check: Callable[[Any, int], NDArray[Any]] = check_labels,
) -> Iterator[Piece]:
    """Check features, labels, weights and columns of each piece, and yield it."""
    n_columns = None
    for piece in pieces:
        _check_shape(piece, n_columns)
        n_columns = piece.X.shape[1]
        if not np.isfinite(piece.X).all():
            bad = describe_bad_cells(piece.X, names, "missing or NaN")
            raise BadInput(
                f"Input X contains NaN or infinity in {describe_place(piece)}: {bad}. "
                "Later rows were not read. Fill in these cells or remove these rows, "
                "and write the files again."
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
        raise BadInput(
            f"{describe_place(piece)}: X has shape {piece.X.shape} and y has shape "
            f"{piece.y.shape}. Give X of shape (n, D) and y of shape (n,), with one "
            "label or target per row."
        )
    if n_columns is not None and piece.X.shape[1] != n_columns:
        raise BadInput(
            f"{describe_place(piece)}: {piece.X.shape[1]} columns, but there were "
            f"{n_columns} before: give all pieces the same columns."
        )


def describe_bad_cells(X: NDArray[Any], names: Any, nan: str = "NaN") -> str:
    """Describe how many NaN and infinite cells the columns have."""
    columns = np.flatnonzero(~np.isfinite(X).all(0))
    found = []
    for j in columns[:MAX_NAMES]:
        counts = {
            nan: int(np.isnan(X[:, j]).sum()),
            "infinite": int(np.isinf(X[:, j]).sum()),
        }
        cells = " and ".join(f"{n} {word}" for word, n in counts.items() if n)
        name = j if names is None else repr(str(names[j]))
        found.append(f"column {name}: {cells}")

    if len(columns) > MAX_NAMES:
        found.append(f"and {len(columns) - MAX_NAMES} more columns")
    return "; ".join(found)


def _check_weights(piece: Piece) -> None:
    if piece.weight is None:
        return

    place = describe_place(piece)
    if piece.weight.shape != piece.y.shape:
        raise BadInput(
            f"{place}: weights of shape {piece.weight.shape} for {len(piece.y)} rows; "
            "give one weight per row."
        )

    wrong = ~(np.isfinite(piece.weight) & (piece.weight > 0))
    if wrong.any():
        raise BadInput(
            f"{int(wrong.sum())} weights in {place} are missing, infinite or not "
            "positive: correct them, and remove rows of weight 0."
        )


def regroup(pieces: Iterator[Piece], size: int) -> Iterator[Piece]:
    """Yield the same rows in pieces of this size; the last may be smaller."""
    held: list[Piece] = []
    missing = size
    for piece in pieces:
        start = 0
        while start < len(piece.index):
            part = piece.at(slice(start, start + missing))
            start += len(part.index)
            missing -= len(part.index)
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

    weight = None
    if any(p.weight is not None for p in parts):
        weight = np.concatenate(
            [np.ones(len(p.index)) if p.weight is None else p.weight for p in parts]
        )

    return Piece(
        np.concatenate([p.index for p in parts]),
        np.concatenate([p.X for p in parts]),
        np.concatenate([p.y for p in parts]),
        weight,
        parts[0].where,
    )
