"""A temporary copy of a source's rows as numbers: a source is read once, and training reads the copy in any order."""

from __future__ import annotations

import tempfile

import numpy as np

from cavity.errors import BadInput
from cavity.rows.batches.array_sources import Arrays
from cavity.rows.batches.source import Array

FOLDER = "cavity-rows-"  # begins the name of the copy, which has no name any more once training reads it


class StoredRows:
    """A file of features, label (the number of a class, or a target) and weight of every row, as they are read."""

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix=FOLDER)
        self._n = 0

    def add(self, rows: Array) -> None:
        """Append rows: features, label and weight. Raises BadInput if the disk is full."""
        self._n += len(rows)
        try:
            self._file.write(rows.data)
        except OSError as error:
            raise BadInput(
                f"a copy of the rows could not be written to {tempfile.gettempdir()} ({error}). It takes 8 bytes per cell: free "
                "disk space there, or set TMPDIR."
            ) from error

    def map(self, n_columns: int) -> Arrays:
        """Return the rows as arrays that are read from disk; the system removes the file when nobody uses them any more."""
        with self._file as file:
            file.flush()
            shape = self._n, n_columns + 2
            rows = np.memmap(file.name, np.float64, "r", shape=shape) if self._n else np.empty(shape)
        return Arrays(rows[:, :-2], rows[:, -2], rows[:, -1])
