"""Predict rows block by block, from memory or from a source that is read in pieces."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cavity.common.blas_threads import ONE_BLAS_THREAD
from cavity.common.cores import count_cores
from cavity.common.namespaces import NUMPY
from cavity.common.prefetch import prefetch
from cavity.common.types import Floats
from cavity.errors import BadInput
from cavity.prediction.model import FittedModel, as_array
from cavity.prediction.predict import predict_labels, rows_per_block
from cavity.tables import sources
from cavity.tables.array_sources import Arrays, Batches
from cavity.tables.arrow_tables import is_sparse
from cavity.tables.files.arrow_source import Arrow
from cavity.tables.pieces import Piece, Source, check_pieces, describe_place, regroup
from cavity.tables.validation import Features, Prepared, check_rows, warn_notes

Results = TypeVar("Results", bound=tuple[Any, ...])
BLOCK_BYTES = 32 << 20  # largest block of rows; a few blocks are in flight at a time
# rows that a thread takes at a time on a CPU, however many threads there are: the last
# bits depend on it
THREAD_ROWS = 1024
MOST_THREADS = 4  # each holds the memory of a quadrature


def predict_blocks(
    model: FittedModel,
    features: Features,
    X: Any,
    predict: Callable[[FittedModel, Floats], Results],
) -> Results:
    """Call `predict` with the model and each block of X; return the joined arrays.

    Only one block is in memory at a time.
    """
    size = _block_size(model, features)
    parts: list[Results] = []
    for rows in _read_blocks(model, features, X, size):
        parts += _predict_parts(model, rows, predict)
    if len(parts) == 1:
        return parts[0]

    joined: Any = tuple(map(np.concatenate, zip(*parts, strict=True)))
    return joined


def _predict_parts(
    model: FittedModel,
    rows: Floats,
    predict: Callable[[FittedModel, Floats], Results],
) -> list[Results]:
    """Predict parts of a block in threads, which NumPy runs side by side."""
    if model.xp is not NUMPY or len(rows) <= THREAD_ROWS:
        return [predict(model, rows)]

    parts = [rows[i : i + THREAD_ROWS] for i in range(0, len(rows), THREAD_ROWS)]
    predict_part = partial(predict, model)
    threads = _count_threads()
    with ONE_BLAS_THREAD:  # the last bits depend on its threads
        if threads == 1:
            return list(map(predict_part, parts))

        model.prepare()
        with ThreadPoolExecutor(threads, "cavity-predict") as pool:
            return list(pool.map(predict_part, parts))


def _count_threads() -> int:
    """Return the CPUs that the process may use; OMP_NUM_THREADS limits them."""
    count = count_cores()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdecimal():
        count = min(count, int(limit))
    return max(1, min(count, MOST_THREADS))


def _read_blocks(
    model: FittedModel, features: Features, X: Any, size: int
) -> Iterator[Floats]:
    """Yield checked rows, `size` at a time."""
    table = _find_plain(X, features)
    source = None
    if table is None:
        source = _find_unlabelled(X, features)
    if source is not None:
        for piece in _read_pieces(source, features, size):
            yield np.ascontiguousarray(piece.X, dtype=np.float64)
        _warn_of_notes(source)
        return

    if table is None:
        table = check_rows(X, features, lambda: as_array(model.center))
    for start in range(0, len(table), size):
        yield table[start : start + size]


def accuracy(
    model: FittedModel, features: Features, source: Source, classes: NDArray[Any]
) -> float:
    """Return the weighted share of rows whose label is predicted."""
    right = total = 0.0
    for piece in _read_pieces(source, features, _block_size(model, features)):
        _check_comparable(piece, classes)
        weight = np.ones(len(piece.y)) if piece.weight is None else piece.weight
        (labels,) = predict_labels(model, piece.X, classes)
        right += float(weight[labels == piece.y].sum())
        total += float(weight.sum())

    _warn_of_notes(source)
    return right / total


def _warn_of_notes(source: Source) -> None:
    """Warn about what a source noted while it was read."""
    warn_notes(getattr(source, "notes", None) or Counter())


def _block_size(model: FittedModel, features: Features) -> int:
    """Return the rows per block, the same for every container: so are the last bits."""
    return max(1, min(rows_per_block(model), BLOCK_BYTES // (8 * features.n)))


def _check_comparable(piece: Piece, classes: NDArray[Any]) -> None:
    """Raise BadInput if labels are numbers and classes text: 1 never equals "1"."""
    are_numbers = np.asarray(piece.y).dtype.kind in "biuf"
    if are_numbers != (classes.dtype.kind in "biuf"):
        label = piece.y.tolist()[0]
        known = classes.tolist()[0]
        raise BadInput(
            f"{describe_place(piece)}: labels such as {label!r}, but the model knows "
            f"labels such as {known!r}: is it the right column? If it is, give it the "
            "type that the training rows had."
        )


def _find_plain(X: Any, features: Features) -> Floats | None:
    """Return X if it is a finite array that `check_rows` would return, else None.

    It saves the checks, which take long for a single served row.
    """
    if isinstance(X, Prepared):
        X = X.X
    elif features.names is not None or features.preparation is not None:
        return None

    if type(X) is not np.ndarray or X.dtype != np.float64 or X.ndim != 2:
        return None

    fits = (
        X.shape[1] == features.n
        and len(X) > 0
        and X.flags.c_contiguous
        and X.flags.aligned
    )
    if fits and np.isfinite(X).all():
        return X

    return None


def _find_unlabelled(X: Any, features: Features) -> Source | None:
    """Return the source that X names, with or without labels; None for a table."""
    if is_sparse(X) and features.preparation is None:
        return Arrays(X, np.broadcast_to(0, X.shape[:1]))
    if hasattr(type(X), "pieces"):
        return X
    if sources.is_files(X):
        return Arrow(X, model=features, labelled=False)

    is_other_sequence = isinstance(X, Sequence) and not isinstance(X, list | tuple)
    if sources.is_batches(X) and not is_other_sequence:
        pairs = map(_with_labels, X() if callable(X) else X)
        return Batches(lambda: pairs)

    return None


def _with_labels(batch: Any) -> Any:
    """Return a batch with labels: unused ones if it is a table alone."""
    if hasattr(batch, "shape"):
        return batch, np.zeros(len(batch))

    return batch


def _read_pieces(source: Source, features: Features, size: int) -> Iterator[Piece]:
    """Yield the rows of a source in checked blocks, read ahead."""
    found = False
    checked = check_pieces(_check_width(source.pieces(size), features), features.names)
    for piece in prefetch(regroup(checked, size)):
        found = True
        yield piece
    if not found:
        raise BadInput("the source has no rows to predict: check how it was selected.")


def _check_width(pieces: Iterator[Piece], features: Features) -> Iterator[Piece]:
    """Yield the pieces that have rows; raise BadInput for a wrong number of columns."""
    for piece in pieces:
        if piece.X.ndim == 2 and piece.X.shape[1] != features.n:
            raise BadInput(
                f"X has {piece.X.shape[1]} features, but {features.owner} is expecting "
                f"{features.n} features as input: give the columns of the training "
                "rows, in their order."
            )

        if len(piece.index):
            yield piece
