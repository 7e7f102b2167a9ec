"""Sources of rows in Python: arrays, sparse rows, copies on disk, and batches."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.slices import slices
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput
from cavity.tables.arrow_tables import is_sparse, to_plain
from cavity.tables.labels import read_groups
from cavity.tables.pieces import Names, Piece

TAKEN = 512  # rows of a copy on disk to take at once: each brings pages into memory
# The name of a temporary copy begins so. The copy loses its name once training reads it.
FOLDER = "cavity-rows-"


class Arrays:
    """X (N, D), dense or sparse, and y (N,); optionally weights and groups of rows."""

    names: Names = None
    weight: Any = None
    group: Ints | None = None
    pages: Any = None  # memory map of a copy on disk; pages are released after reading

    def __init__(self, X: Any, y: Any, weight: Any = None, group: Any = None) -> None:
        self.X: Any = X.tocsr() if is_sparse(X) else np.asarray(X)
        self.y = np.asarray(y)
        if weight is not None:
            self.weight = np.asarray(weight)
        if group is not None:
            self.group = read_groups(group, self.X.shape[0])
        if self.X.ndim != 2 or self.X.dtype.kind not in "fiub":
            raise BadInput(
                f"X has shape {self.X.shape} and type {self.X.dtype}: give a numeric "
                "array of shape (N, D)."
            )

        for name, column in (("y", self.y), ("sample_weight", self.weight)):
            if column is not None and column.shape != self.X.shape[:1]:
                raise BadInput(
                    f"X has {self.n_rows} rows, but {name} has shape {column.shape}: "
                    "give one value per row."
                )

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_columns(self) -> int:
        return int(self.X.shape[1])

    def pieces(self, size: int) -> Iterator[Piece]:
        return self.section(range(self.n_rows), size)

    def read_groups(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        yield np.asarray(self.y), np.asarray(self.group)

    def section(self, rows: range, size: int) -> Iterator[Piece]:
        for start in range(rows.start, rows.stop, size):
            stop = min(start + size, rows.stop)
            part = slice(start, stop)
            index = np.arange(start, stop)
            weight = None
            if self.weight is not None:
                weight = np.array(self.weight[part], np.float64)
            yield Piece(index, self._read(part), np.asarray(self.y[part]), weight)

    def take(self, index: Ints) -> Floats:
        """Return these rows of X in this order; reads them in file order."""
        order = np.argsort(index)
        size = TAKEN
        if self.pages is None:
            size = max(1, len(index))
        parts = [self._read(index[order[some]]) for some in slices(len(index), size)]
        return np.concatenate(parts)[np.argsort(order)]

    def _read(self, rows: Any) -> Floats:
        found = self.X[rows]
        if self.pages is None:
            dense = found.toarray() if is_sparse(found) else found
            return np.asarray(dense, np.float64)

        found = np.array(found)
        if hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
            self.pages.madvise(mmap.MADV_DONTNEED)
        return found


class StoredRows:
    """A temporary copy of a source: features, label and weight of every row.

    A label is the number of a class, or a target.
    """

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix=FOLDER)
        self._labels: list[Floats] = []
        self._weighs = False

    def add(self, rows: Floats) -> None:
        """Append rows: features, label and weight.

        Raises BadInput if the disk is full.
        """
        self._labels.append(rows[:, -2].copy())
        self._weighs |= bool((rows[:, -1] != 1).any())
        try:
            self._file.write(rows.data)
        except OSError as error:
            raise BadInput(
                f"a copy of the rows cannot be written to {tempfile.gettempdir()} "
                f"({error}): free 8 bytes per cell, or set TMPDIR to another folder."
            ) from error

    def map(self, n_columns: int) -> Arrays:
        """Return the rows as arrays that are read from disk.

        The system removes the file when they are not used any more.
        """
        with self._file as file:
            file.flush()
            y = np.concatenate([*self._labels, np.empty(0)])
            self._labels = []
            shape = (len(y), n_columns + 2)
            if len(y):
                rows: Any = np.memmap(file.name, np.float64, "r", shape=shape)
            else:
                rows = np.empty(shape)

        weight = None
        if self._weighs:
            weight = np.array(rows[:, -1])
        found = Arrays(rows[:, :-2], y, weight)
        found.pages = getattr(rows, "_mmap", None)
        return found


class Batches:
    """Source of batches (X, y) or (X, y, weight), called or iterated once per pass.

    A fit makes one pass, or two to prepare columns.
    """

    names: Names = None

    def __init__(self, batches: Callable[[], Iterable[Any]] | Iterable[Any]) -> None:
        if not callable(batches) and iter(batches) is batches:
            raise BadInput(
                "an iterator can be read only once, but training needs several passes: "
                "give a callable that returns a new iterator (lambda: batches()), or an "
                "iterable such as a list or a torch DataLoader."
            )

        self.batches = batches

    def pieces(self, size: int) -> Iterator[Piece]:
        """Read all batches in order; splits large ones."""
        batches = self.batches() if callable(self.batches) else self.batches
        first = 0
        for number, batch in enumerate(batches):
            piece = _make_piece(batch, number, first)
            rows = len(piece.index)
            first += rows
            if rows <= size:
                yield piece
                continue

            for some in slices(rows, size):
                yield piece.at(some)


def _make_piece(batch: Any, number: int, first: int) -> Piece:
    where = f"batch {number}"
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise BadInput(
            f"{where} is a {type(batch).__name__}: every batch must be (X, y) or "
            "(X, y, weight)."
        )

    X, y, *weights = (to_plain(part, where) for part in batch)
    try:
        X = np.asarray(X, dtype=np.float64)
        y = np.asarray(y)
        weight = None
        if weights:
            weight = np.asarray(weights[0], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"{where} is not numeric ({error}): encode its columns first."
        ) from error

    rows = len(X) if X.ndim else 0
    return Piece(np.arange(first, first + rows), X, y, weight, where)
