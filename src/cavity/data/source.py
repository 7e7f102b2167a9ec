"""What a source of rows is, and what every piece read from one must satisfy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.data.arrays import Batch
from cavity.errors import BadInput

Array = NDArray[np.float64]
Names = tuple[str, ...] | None


class Piece(NamedTuple):
    """Consecutive rows as a source has them, labels not yet encoded."""

    index: NDArray[np.int64]  # type: ignore[assignment]  # [B], row numbers
    X: NDArray[Any]  # [B D]
    y: NDArray[Any]  # [B]
    weight: Array | None  # [B]
    where: str = ""  # the file, for messages

    def at(self, rows: Any) -> Piece:
        """These of its rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Piece(self.index[rows], self.X[rows], self.y[rows], weight, self.where)


class Source(Protocol):
    """Rows that are somewhere else. Reading twice gives the same rows in the same order."""

    @property
    def names(self) -> Names:
        """Of the columns, where they have some."""
        ...

    @property
    def numbered(self) -> bool:
        """A row has the same number in every pass, so that it can own sites."""
        ...

    def pieces(self, size: int) -> Iterator[Piece]:
        """All rows in order, in pieces of at most `size`."""
        ...

    def scattered(self, size: int, rng: np.random.Generator) -> Iterator[Piece]:
        """All rows, in pieces whose order is as random as it cheaply can be."""
        ...


class Divided(Source, Protocol):
    """A source that knows how many rows it has, and reads some of them without the others."""

    @property
    def n_rows(self) -> int: ...

    def section(self, rows: range, size: int) -> Iterator[Piece]:
        """These rows in order, in pieces of at most `size`."""
        ...


class Addressed(Divided, Protocol):
    """A source that reads any rows by number."""

    def take(self, index: NDArray[np.int64]) -> Piece: ...


class Visit(NamedTuple):
    """What a shuffled pass comes to next, whether or not it is read."""

    numbers: NDArray[np.int64]  # [B], of all its rows
    piece: Piece  # those that were asked for, in the same order


class Planned(Divided, Protocol):
    """A source whose shuffled pass is known before anything is read: `visits` are `scattered` with unwanted rows unread."""

    def visits(self, size: int, rng: np.random.Generator, keep: range) -> Iterator[Visit]: ...


class Whole(Protocol):
    """A whole table, read in pieces."""

    def split(self, size: int) -> Iterator[Batch]: ...


class Data(Protocol):
    """The rows of a run: encoded labels, positive weights, tensors on the device."""

    @property
    def n_rows(self) -> int: ...

    def n_batches(self, size: int) -> int:
        """In a pass, empty ones of a rank's share included."""
        ...

    def whole(self) -> Whole: ...

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """One shuffled pass."""
        ...


class Divisible(Data, Protocol):
    """The same, able to leave out all rows but those in `keep`, from a batch as from the whole; rows keep their numbers."""

    def whole(self, keep: range | None = None) -> Whole: ...

    def batches(
        self, size: int, generator: torch.Generator, keep: range | None = None
    ) -> Iterator[Batch]: ...


def check_pieces(pieces: Iterator[Piece], names: Names, n_columns: int | None = None) -> Iterator[Piece]:
    """The pieces, each looked at; all must have the same columns."""
    for piece in pieces:
        check(piece, names, n_columns)
        n_columns = piece.X.shape[1]
        yield piece


def check(piece: Piece, names: Names, n_columns: int | None) -> None:
    """Numbers throughout, labels throughout, positive weights, as many columns as the pieces before."""
    _check_shape(piece, n_columns)
    if not np.isfinite(piece.X).all():
        _refuse_cells(piece, names)
    _check_labels(piece)
    _check_weights(piece)


def describe_place(piece: Piece) -> str:
    """Where a piece is, in words."""
    if not len(piece.index):
        return piece.where or "an empty piece"
    rows = f"rows {piece.index.min()} to {piece.index.max()}"
    return f"{rows} ({piece.where})" if piece.where else rows


def _check_shape(piece: Piece, n_columns: int | None) -> None:
    if piece.X.ndim != 2 or piece.y.ndim != 1 or len(piece.X) != len(piece.y):
        raise BadInput(
            f"{describe_place(piece)}: X has shape {piece.X.shape} and y has shape {piece.y.shape}. "
            "Give X of shape (n, D) and one label per row, y of shape (n,)."
        )
    if n_columns is not None and piece.X.shape[1] != n_columns:
        raise BadInput(
            f"{describe_place(piece)}: {piece.X.shape[1]} columns, but there were {n_columns} before; "
            "give every piece the same columns."
        )


def _refuse_cells(piece: Piece, names: Names) -> None:
    wrong = ~np.isfinite(piece.X)
    what = []
    for j in np.flatnonzero(wrong.any(0))[:5]:
        missing = int(np.isnan(piece.X[:, j]).sum())
        infinite = int(wrong[:, j].sum()) - missing
        cells = " and ".join(
            f"{n} {word}" for n, word in ((missing, "missing or NaN"), (infinite, "infinite")) if n
        )
        what.append(f"column {j if names is None else repr(names[j])}: {cells}")
    raise BadInput(
        f"Input X contains NaN or infinity in {describe_place(piece)}: {'; '.join(what)}. "
        "Later rows were not read. Fill in these cells or remove these rows, and write the files again."
    )


def _check_labels(piece: Piece) -> None:
    if piece.y.dtype.kind == "O":
        missing = np.array([v is None or v != v for v in piece.y], dtype=bool)
    elif piece.y.dtype.kind == "f":
        missing = ~np.isfinite(piece.y)
        odd = piece.y[piece.y != np.round(piece.y)].tolist()
        if odd and not missing.any():
            raise BadInput(
                f"Unknown label type: continuous. {describe_place(piece)} has labels such as {odd[0]!r}; "
                "a classifier needs classes."
            )
    else:
        return
    if missing.any():
        raise BadInput(
            f"the label is missing in {int(missing.sum())} of {describe_place(piece)}: "
            "remove these rows, or give them a class of their own."
        )


def _check_weights(piece: Piece) -> None:
    if piece.weight is None:
        return
    if piece.weight.shape != piece.y.shape:
        raise BadInput(
            f"{describe_place(piece)}: weights of shape {piece.weight.shape} for {len(piece.y)} rows; give one a row."
        )
    wrong = ~(np.isfinite(piece.weight) & (piece.weight > 0))
    if wrong.any():
        raise BadInput(
            f"{int(wrong.sum())} weights in {describe_place(piece)} are missing, infinite or not positive. "
            "A row of weight w counts as w rows: remove rows of weight 0."
        )


def regroup(pieces: Iterator[Piece], sizes: Iterator[int]) -> Iterator[Piece]:
    """The same rows in pieces of these sizes (above zero); the last may be smaller."""
    held: list[Piece] = []
    missing = next(sizes, 0)
    for piece in pieces:
        start = 0
        while start < len(piece.index):
            part = piece.at(slice(start, start + missing))
            start, missing = start + len(part.index), missing - len(part.index)
            held.append(part)
            if not missing:
                yield join(held)
                held, missing = [], next(sizes, len(piece.index))
    if held:
        yield join(held)


def common(a: range, b: range) -> range:
    """The numbers in both; of length 0 where there are none."""
    return range(max(a.start, b.start), min(a.stop, b.stop))


def join(parts: list[Piece]) -> Piece:
    """Pieces as one; the place is that of the first."""
    if len(parts) == 1:
        return parts[0]
    weights = [np.ones(len(p.index)) if p.weight is None else p.weight for p in parts]
    weight = None if all(p.weight is None for p in parts) else np.concatenate(weights)
    index, X, y = (np.concatenate(columns) for columns in list(zip(*parts, strict=True))[:3])
    return Piece(index, X, y, weight, parts[0].where)
