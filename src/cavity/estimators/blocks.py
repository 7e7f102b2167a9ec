"""Rows to predict, a block at a time: from memory, or from a source that is never read whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cavity.data import Arrays, Batches, Piece, Source, check_pieces, describe_place, regroup
from cavity.data.mapped import open_array
from cavity.data.prefetch import prefetch
from cavity.errors import BadInput
from cavity.estimators import fitted, streams
from cavity.estimators.checks import check_labels, check_rows

Array = NDArray[np.float64]
BLOCK_BYTES = 32 << 20  # of the rows of a block; a few are under way at a time


class Blocks(NamedTuple):
    """Rows of a model's columns, in order."""

    n_rows: int | None  # None where they must be read to be counted
    rows: Iterator[Array]  # [b D]


def predicted(estimator: Any, X: Any, predict: Callable[[Array], tuple[Any, ...]]) -> tuple[Any, ...]:
    """What `predict` gives for each block of X, joined; no more than a block of anything else is held."""
    check_is_fitted(estimator, "_fitted")
    blocks = _blocks(estimator, X)
    return _joined(map(predict, blocks.rows), blocks.n_rows)


def accuracy(estimator: Any, source: Source, predict: Callable[[Array], NDArray[Any]]) -> float:
    """Weighted share of the rows whose label `predict` gives."""
    right = total = 0.0
    for piece in _pieces(estimator, source):
        _check_comparable(piece, estimator.classes_)
        weight = np.ones(len(piece.y)) if piece.weight is None else piece.weight
        right += float(weight[predict(piece.X) == piece.y].sum())
        total += float(weight.sum())
    return right / total


def _check_comparable(piece: Piece, classes: NDArray[Any]) -> None:
    """Numbers with numbers, text with text: 1 is never equal to "1"."""
    kinds = [a.dtype.kind in "biuf" for a in (np.asarray(piece.y), classes)]
    if kinds[0] != kinds[1]:
        label, known = piece.y.tolist()[0], classes.tolist()[0]
        raise BadInput(
            f"{describe_place(piece)}: labels such as {label!r}, where the model knows labels such as {known!r}: "
            "is it the right column? If it is, write it with the type that the training rows had."
        )


def labelled(estimator: Any, X: Any, y: Any, sample_weight: Any, target: Any, weight: Any) -> Source | None:
    """The source that these arguments name, with its labels; None for a table in memory, which must have some."""
    check_is_fitted(estimator, "_fitted")
    source = streams.find(estimator, X, y, sample_weight, target, weight, fitted=True)
    if source is None:
        check_labels(y, len(y) if hasattr(y, "__len__") else 0)
    return source


def _blocks(estimator: Any, X: Any) -> Blocks:
    source = _unlabelled(estimator, X)
    if source is not None:
        rows = (np.ascontiguousarray(piece.X, dtype=np.float64) for piece in _pieces(estimator, source))
        return Blocks(getattr(source, "n_rows", None), rows)
    table, size = check_rows(estimator, X, reset=False), _size(estimator)
    return Blocks(len(table), (table[start : start + size] for start in range(0, len(table), size)))


def _size(estimator: Any) -> int:
    """Rows of a block; the same whatever holds them, so that the last bits are the same too."""
    room = BLOCK_BYTES // (8 * int(estimator.n_features_in_))
    return max(1, min(fitted.rows_at_a_time(estimator._fitted), room))


def _unlabelled(estimator: Any, X: Any) -> Source | None:
    """The source that X names, whether or not it has labels; None for a table in memory."""
    path = streams.path_of(X)
    if path.endswith(".npy") or streams.is_map(X):
        table = open_array(X, "X")
        return Arrays(table, np.broadcast_to(0, table.shape[:1]))
    if hasattr(X, "pieces") and hasattr(X, "scattered"):
        source: Source = X
        return source
    if path or type(X).__module__.startswith("pyarrow"):
        return streams.known_columns(estimator, X, labelled=False)
    if streams.is_batches(X) and (isinstance(X, list | tuple) or not isinstance(X, Sequence)):
        return Batches(lambda: map(_pair, X() if callable(X) else X))
    return None


def _pair(batch: Any) -> Any:
    """A batch as `fit` takes it, or a table alone."""
    return (batch, np.zeros(len(batch))) if hasattr(batch, "shape") else batch


def _pieces(estimator: Any, source: Source) -> Iterator[Piece]:
    """The source in blocks, checked and read ahead."""
    size, names = _size(estimator), getattr(estimator, "feature_names_in_", None)
    columns = None if names is None else tuple(map(str, names))
    found = False
    checked = check_pieces(_with_columns(source.pieces(size), estimator), columns)
    for piece in prefetch(regroup(checked, repeat(size))):
        found = True
        yield piece
    if not found:
        raise BadInput("the source has no rows to predict: look at how it was selected.")


def _with_columns(pieces: Iterator[Piece], estimator: Any) -> Iterator[Piece]:
    wanted = estimator.n_features_in_
    for piece in pieces:
        if piece.X.ndim == 2 and piece.X.shape[1] != wanted:
            raise BadInput(
                f"X has {piece.X.shape[1]} features, but {type(estimator).__name__} is expecting {wanted} features as input: give "
                "the columns of the training rows, in their order."
            )
        if len(piece.index):
            yield piece


def _joined(parts: Iterator[tuple[Any, ...]], n_rows: int | None) -> tuple[Any, ...]:
    """The parts one below the other; where their number is known, the result is there once."""
    if n_rows is None:
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    whole: tuple[Any, ...] = ()
    done = 0
    for part in parts:
        whole = whole or tuple(np.empty((n_rows, *x.shape[1:]), x.dtype) for x in part)
        rows = slice(done, done + len(part[0]))
        for to, of in zip(whole, part, strict=True):
            to[rows] = of
        done = rows.stop
    return whole
