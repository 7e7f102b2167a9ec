"""Survey of a source in one pass: class counts, exact column statistics, and a random sample of rows."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import merge_spread
from cavity.errors import BadInput
from cavity.rows.batches.source import (
    Array,
    Piece,
    Source,
    check_pieces,
    join,
    prefetch,
    read_target,
)
from cavity.rows.batches.stored_rows import StoredRows
from cavity.rows.labels import sort_labels

SAMPLE_ROWS = 20_000
SAMPLE_BYTES = 128 << 20  # maximum size of the sample
SURVEY_BYTES = 32 << 20  # maximum size of a piece
SURVEY_ROWS = 65_536
MAX_CLASSES = 10_000
TRAINS, JUDGES, DROPPED = range(3)


class ClassMoments(NamedTuple):
    """Moments per class: number of rows, total and extreme weights, and mean and Σ weight · deviation² of each column."""

    rows: NDArray[np.int64]  # [C]
    weight: Array  # [C]
    lightest: Array  # [C]
    heaviest: Array  # [C]
    mean: Array  # [C D]
    square: Array  # [C D]


class Apart(NamedTuple):
    """Rows of whole groups of a source, which judge a model and do not train it."""

    role: NDArray[np.int8]  # [N], TRAINS, JUDGES, or DROPPED: of a group that judges, but without this row
    group: NDArray[np.int64]  # of the rows that judge
    n_groups: int  # of all rows


class Summary(NamedTuple):
    """Summary of a source after the first pass."""

    classes: NDArray[Any]  # [C], sorted
    moments: ClassMoments
    low: Array  # [D]
    high: Array  # [D]
    sample: Piece  # rows in order, y encoded, weights as in the source
    content: str = ""  # digest of all rows
    judges: Piece | None = None  # rows that judge the model; they count nowhere else

    @property
    def n_rows(self) -> int:
        return int(self.moments.rows.sum())

    @property
    def complete(self) -> bool:
        return len(self.sample.index) == self.n_rows


def survey(
    source: Source,
    seed: Any,
    keep: range | None = None,
    real: bool = False,
    store: StoredRows | None = None,
    apart: Apart | None = None,
) -> Survey:
    """Survey the rows in `keep` (default all) in one pass, and write them to `store`; those set apart are only kept.

    The sample contains all rows if there are at most SAMPLE_ROWS. Otherwise large classes are reduced to equal size first. Rows
    with `real` targets have one class. Surveys of consecutive sections, joined in order, equal
    the survey of the whole table.
    """
    found, rng, hasher = Survey(), np.random.default_rng(seed), hashlib.sha256()
    columns = len(source.names) if source.names is not None else getattr(source, "n_columns", 1)
    size = max(1, min(SURVEY_ROWS, SURVEY_BYTES // (8 * max(1, columns))))
    divided: Any = source
    pieces = source.pieces(size) if keep is None else divided.section(keep, size)
    if keep is not None:
        rng.bit_generator.advance(keep.start)  # type: ignore[attr-defined]  # the key of a row depends only on its number
    for piece in prefetch(check_pieces(map(read_target, pieces) if real else pieces, source.names)):
        keys = rng.random(len(piece.index))
        if apart is not None:
            role = apart.role[piece.index]
            found.judges.append(piece.at(role == JUDGES))
            piece, keys = piece.at(role == TRAINS), keys[role == TRAINS]
        if len(piece.index):
            codes = found.add(piece, keys)
            weight = np.ones(len(codes)) if piece.weight is None else piece.weight
            rows = np.column_stack([piece.X, codes if piece.target is None else piece.target, weight])
            hasher.update(rows.data)
            if store is not None:
                store.add(rows)
    found.content = hasher.hexdigest()
    return found


class Survey:
    """Running summary of rows; classes are numbered in order of appearance."""

    def __init__(self) -> None:
        self.labels: dict[Any, int] = {}
        self.content = ""  # digest of all rows
        self.moments: ClassMoments | None = None
        self.low = self.high = np.empty(0)
        self.sample = _Sample(SAMPLE_ROWS)
        self.judges: list[Piece] = []

    def add(self, piece: Piece, keys: Array) -> NDArray[np.int64]:
        """Add rows, and return the numbers of their classes; the sample keeps those with the smallest random keys."""
        values, place = np.unique(piece.y, return_inverse=True)
        codes = self._number_labels(values.tolist())[place.reshape(-1)]
        self._add_moments(_compute_moments(piece, codes, len(self.labels)), piece.X.min(0), piece.X.max(0))
        self.sample.add(piece._replace(y=codes), keys)
        return codes

    def join(self, other: Survey) -> None:
        """Add the rows of another survey, which follow these."""
        self.judges += other.judges
        if other.moments is None:
            return
        numbers = self._number_labels(list(other.labels))
        self.content = hashlib.sha256((self.content + other.content).encode()).hexdigest()
        self._add_moments(_place(other.moments, numbers, len(self.labels)), other.low, other.high)
        self.sample.level = min(self.sample.level, other.sample.level)
        for piece, keys in other.sample.parts:
            self.sample.add(piece._replace(y=numbers[piece.y]), keys)

    def summary(self) -> Summary:
        if self.moments is None:
            raise BadInput("the source has no rows: check how it was selected.")
        classes, order = _sort_classes(self.labels)
        kept = self.sample.rows()
        kept = kept._replace(y=np.argsort(order)[kept.y])
        moments = ClassMoments._make(x[order] for x in self.moments)
        judges = join(self.judges) if self.judges else None
        return Summary(classes, moments, self.low, self.high, kept, self.content, judges)

    def _number_labels(self, values: list[Any]) -> NDArray[np.int64]:
        numbers = np.array([self.labels.setdefault(v, len(self.labels)) for v in values], dtype=np.int64)
        if len(self.labels) > MAX_CLASSES:
            raise BadInput(
                f"the target has more than {MAX_CLASSES} different values: is it the right column? A classifier needs classes."
            )
        return numbers

    def _add_moments(self, moments: ClassMoments, low: Array, high: Array) -> None:
        if self.moments is None:
            self.moments, self.low, self.high = moments, low, high
            return
        numbers = np.arange(len(self.moments.rows))
        self.moments = _merge(_place(self.moments, numbers, len(self.labels)), moments)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)


def _sort_classes(labels: dict[Any, int]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    names = sort_labels(labels)
    return np.array(names), np.array([labels[name] for name in names], dtype=np.int64)


def _compute_moments(piece: Piece, codes: NDArray[np.int64], n_classes: int) -> ClassMoments:
    weight = np.ones(len(codes)) if piece.weight is None else piece.weight
    order = np.argsort(codes, kind="stable")
    X, w = piece.X[order], weight[order]
    present, start, rows = np.unique(codes[order], return_index=True, return_counts=True)
    total = np.add.reduceat(w, start)
    mean = np.add.reduceat(w[:, None] * X, start) / total[:, None]
    square = np.add.reduceat(w[:, None] * (X - np.repeat(mean, rows, axis=0)) ** 2, start)
    lightest, heaviest = np.minimum.reduceat(w, start), np.maximum.reduceat(w, start)
    return _place(ClassMoments(rows, total, lightest, heaviest, mean, square), present, n_classes)


def _place(found: ClassMoments, numbers: NDArray[np.int64], n_classes: int) -> ClassMoments:
    """Expand moments of some classes to all classes; the others are empty."""
    expanded = [np.zeros((n_classes, *of.shape[1:]), of.dtype) for of in found]
    expanded[ClassMoments._fields.index("lightest")].fill(np.inf)
    for to, of in zip(expanded, found, strict=True):
        to[numbers] = of
    return ClassMoments(*expanded)


def _merge(a: ClassMoments, b: ClassMoments) -> ClassMoments:
    weight, mean, square = merge_spread(*((m.weight[:, None], m.mean, m.square) for m in (a, b)))
    lightest, heaviest = np.minimum(a.lightest, b.lightest), np.maximum(a.heaviest, b.heaviest)
    return ClassMoments(a.rows + b.rows, weight[:, 0], lightest, heaviest, mean, square)


class _Sample:
    """Sample of rows: the `level` rows with the smallest random keys per class, so uniform within each class.

    `level` never increases, so a row that was dropped once would also be dropped at the end.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.level = limit, limit
        self.parts: list[tuple[Piece, Array]] = []
        self.count = 0

    def add(self, piece: Piece, keys: Array) -> None:
        room = max(1, SAMPLE_BYTES // (8 * max(1, piece.X.shape[1])))
        self.limit, self.level = min(self.limit, room), min(self.level, room)
        self.parts.append((piece, keys))
        self.count += len(keys)
        if self.count > 2 * self.limit:
            self._thin()

    def _thin(self) -> None:
        rows, keys = _concatenate(self.parts)
        order = np.lexsort([keys, rows.y])
        start = np.flatnonzero(np.r_[True, np.diff(rows.y[order]) > 0])
        counts = np.diff(np.r_[start, len(order)])
        self.level = min(self.level, _find_level(counts, self.limit))
        rank = np.arange(len(order)) - np.repeat(start, counts)
        keep = np.sort(order[rank < self.level])
        self.parts, self.count = [(rows.at(keep), keys[keep])], len(keep)

    def rows(self) -> Piece:
        if self.count > self.limit or self.level < self.limit:  # after thinning, later rows need it too
            self._thin()
        return _concatenate(self.parts)[0]


def _concatenate(parts: list[tuple[Piece, Array]]) -> tuple[Piece, Array]:
    pieces, keys = zip(*parts, strict=True)
    weight = np.concatenate([np.ones(len(p.y)) if p.weight is None else p.weight for p in pieces])
    index, X, y = (np.concatenate([p[i] for p in pieces]) for i in range(3))
    return Piece(index, X, y, weight), np.concatenate(keys)


def _find_level(counts: NDArray[np.int64], limit: int) -> int:
    """Return the largest L ≥ 1 with Σ min(count, L) ≤ limit."""
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(counts, middle).sum() <= limit else (low, middle - 1)
    return low
