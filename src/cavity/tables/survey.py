"""Read a source in one pass: classes, moments of columns, a random sample of rows."""

from __future__ import annotations

import functools
import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import Triple, merge_spread
from cavity.common.prefetch import prefetch
from cavity.common.ranks import Local, check_same, run_together, shard_range
from cavity.common.slices import slices
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput
from cavity.tables.array_sources import Arrays, StoredRows
from cavity.tables.labels import (
    check_labels,
    check_targets,
    refuse_many_classes,
    sort_labels,
)
from cavity.tables.pieces import (
    PIECE_ROWS,
    Apart,
    Piece,
    check_pieces,
    join,
    rows_per_piece,
)
from cavity.tables.table import Streamed, Table

PROBE_ROWS = 64  # rows that every rank reads at three places before it reads its own
SAMPLE_ROWS = 20_000
SAMPLE_BYTES = 128 << 20  # maximum size of the sample


class Sizes(NamedTuple):
    """How many rows are read at a time, and how many are kept as a sample."""

    piece: int = PIECE_ROWS
    sample: int = SAMPLE_ROWS


SIZES = Sizes()


def survey(
    source: Any,
    seed: int,
    reduce: Local,
    weigh: Callable[[NDArray[Any], Floats], Floats] | None = None,
    apart: Apart | None = None,
    sizes: Sizes = SIZES,
) -> tuple[Streamed, Piece | None]:
    """Read a source once; also return the rows that judge the model.

    Each rank reads its own rows if the source can be divided.

    `weigh` returns one factor per class, given the classes and their total weights.
    Without it, labels are real targets of a single class.
    """
    real = weigh is None
    mine, among = _divide(source, reduce)
    copy = run_together(among, lambda: _copy(source, mine, real, apart, sizes))
    all_rows = _merge(among.gather(copy.summary))
    classes = np.array(all_rows.labels)
    rows, kind = _number_classes(source, copy, classes, len(all_rows.low), real)

    begin = 0 if mine is None else mine.start
    keys = _draw_keys(seed, begin, copy.n_rows, apart)
    if copy.store is None:  # every rank has all rows
        here = slice(begin, begin + copy.n_rows)
        first = 0
    else:
        here = slice(0, len(kind))
        first = begin
        if apart is not None:
            first = int(apart.trains(slice(begin)).sum())

    own_count = np.bincount(kind[here], minlength=len(classes))
    own_total = np.bincount(kind[here], rows.weight[here], len(classes))
    count, total = np.sum(among.gather([own_count, own_total]), axis=0)
    factor = np.ones(1) if weigh is None else weigh(classes, total)
    if not (factor == 1).all():
        rows.weight = rows.weight * factor[kind]
    weight = rows.weight[here]

    sampled = _draw_rows(rows, kind, here, keys, count, among, sizes=sizes)
    moments = None
    if sampled.n_rows < count.sum():
        moments = _find_moments(rows, here, among, sizes)
    streamed = Streamed(
        read=rows,
        first=first,
        classes=classes,
        factor=factor,
        n_rows=int(count.sum()),
        class_totals=total * factor,
        lightest=min(among.gather(weight.min(initial=np.inf))),
        heaviest=max(among.gather(weight.max(initial=0.0))),
        low=all_rows.low,
        high=all_rows.high,
        moments=moments,
        sampled=sampled,
        digest=all_rows.digest,
        apart=apart,
    )
    judges = list(chain.from_iterable(among.in_turn(copy.judges)))
    return streamed, join(judges) if judges else None


def _divide(source: Any, reduce: Local) -> tuple[range | None, Local]:
    """Return the rows of this rank, and the ranks that share the source.

    None: the source cannot be divided, so every rank reads all rows for itself.
    """
    if reduce.world == 1 or not hasattr(source, "section"):
        return None, Local()

    probe = run_together(reduce, lambda: _probe(source))
    check_same(reduce, {"the first, middle and last rows of the source": probe})
    return shard_range(source.n_rows, reduce.rank, reduce.world), reduce


def _probe(source: Any) -> tuple[Any, ...]:
    """Return facts that differ between different sources.

    Ranks that share a source compare them, because no rank reads it as a whole.
    """
    N = source.n_rows
    found = list[Any]()
    for first in sorted({0, N // 2, max(0, N - PROBE_ROWS)}):
        rows = range(first, min(N, first + PROBE_ROWS))
        for piece in source.section(rows, PROBE_ROWS):
            weight = None
            if piece.weight is not None:
                weight = piece.weight.tolist()
            found.append((piece.X.tolist(), piece.y.tolist(), weight))

    return N, source.names, hashlib.sha256(repr(found).encode()).hexdigest()


class _Summary(NamedTuple):
    """What the ranks tell each other about the rows that they read."""

    low: Any  # [D], or a number without rows
    high: Any
    labels: list[Any]  # in the order of their first rows
    digest: str


def _merge(ranks: list[_Summary]) -> _Summary:
    """Merge the summaries of all ranks; their labels are sorted."""
    low = functools.reduce(np.minimum, [rank.low for rank in ranks])
    high = functools.reduce(np.maximum, [rank.high for rank in ranks])
    if not np.ndim(low):
        raise BadInput("the source has no rows: check how it was selected.")

    labels = sort_labels(set().union(*(rank.labels for rank in ranks)))
    digests = "".join(rank.digest for rank in ranks)
    return _Summary(low, high, labels, hashlib.sha256(digests.encode()).hexdigest())


class _Copy(NamedTuple):
    """What a rank has read of a source."""

    # with labels as numbers of `labels`, or targets; None: the source is in memory
    store: StoredRows | None
    n_rows: int
    judges: list[Piece]
    summary: _Summary


def _copy(
    source: Any, keep: range | None, real: bool, apart: Apart | None, sizes: Sizes
) -> _Copy:
    """Read the rows in `keep` (default all), check them and copy them.

    Rows that are set apart as judges are returned in memory.
    """
    store = None
    if not isinstance(source, Arrays) or apart is not None:
        store = StoredRows()
    labels: dict[Any, int] = {}
    n_rows = 0
    low = np.inf
    high = -np.inf
    judges = list[Piece]()
    hasher = hashlib.sha256()
    for piece in prefetch(_read_checked(source, keep, real, sizes)):
        n_rows += len(piece.index)
        if apart is not None:
            judges.append(piece.at(apart.judges(piece.index)))
            piece = piece.at(apart.trains(piece.index))
        if not len(piece.index):
            continue

        low = np.minimum(low, piece.X.min(0))
        high = np.maximum(high, piece.X.max(0))
        y = piece.y if real else _number_labels(piece.y, labels)
        weight = piece.weight
        if weight is None:
            weight = np.ones(len(y))
        rows = np.column_stack([piece.X, y, weight])
        hasher.update(rows.data)
        if store is not None:
            store.add(rows)

    seen = [0] if real else list(labels)
    return _Copy(store, n_rows, judges, _Summary(low, high, seen, hasher.hexdigest()))


def _read_checked(
    source: Any, keep: range | None, real: bool, sizes: Sizes
) -> Iterator[Piece]:
    if source.names is None:
        n_columns = getattr(source, "n_columns", 1)
    else:
        n_columns = len(source.names)

    size = rows_per_piece(n_columns, sizes.piece)
    pieces = source.pieces(size) if keep is None else source.section(keep, size)
    return check_pieces(pieces, source.names, check_targets if real else check_labels)


def _number_labels(y: NDArray[Any], labels: dict[Any, int]) -> Ints:
    """Return the number of each label in `labels`; new labels are added to it."""
    values, place = np.unique(y, return_inverse=True)
    numbers = [labels.setdefault(value, len(labels)) for value in values.tolist()]
    refuse_many_classes(labels)
    return np.array(numbers)[place]


def _number_classes(
    source: Any, copy: _Copy, classes: NDArray[Any], n_columns: int, real: bool
) -> tuple[Arrays, Ints]:
    """Return the rows with classes as labels, or with targets; also each row's class."""
    rows = source if copy.store is None else copy.store.map(n_columns)
    if rows.weight is None:
        weight = np.broadcast_to(1.0, rows.n_rows)
    else:
        weight = np.asarray(rows.weight, np.float64)

    y: NDArray[Any]
    if real:
        kind = np.zeros(rows.n_rows, np.int64)
        y = np.asarray(rows.y, np.float64)
    elif copy.store is None:
        y = kind = np.searchsorted(classes, rows.y)
    else:
        labels = np.array(copy.summary.labels, classes.dtype)
        y = kind = np.searchsorted(classes, labels)[np.asarray(rows.y, np.int64)]

    found = Arrays(rows.X, y, weight)
    found.pages = rows.pages
    return found, kind


def _draw_keys(seed: int, first: int, n_rows: int, apart: Apart | None) -> Floats:
    """Return a random number for each training row, determined by the row's number."""
    rng = np.random.default_rng((seed, 1))
    rng.bit_generator.advance(first)  # type: ignore[attr-defined]
    keys = rng.random(n_rows)
    if apart is None:
        return keys

    return keys[apart.trains(slice(first, first + n_rows))]


class _Drawn(NamedTuple):
    """Candidates of one rank for the sample."""

    X: Floats
    y: Ints
    weight: Floats
    keys: Floats


def _draw_rows(
    rows: Arrays,
    kind: Ints,
    here: slice,
    keys: Floats,
    count: Ints,
    among: Local,
    *,
    sizes: Sizes,
) -> Table:
    """Draw the rows with the smallest keys of each class, all rows of small classes.

    Weights grow so that the sample weighs as much as all rows.
    """
    limit = min(sizes.sample, max(1, SAMPLE_BYTES // (8 * rows.n_columns)))
    level = _find_level(count, limit)
    own = kind[here]
    # A class hardly ever has fewer than `level` keys below this bound, so only these
    # rows need sorting.
    bound = (level + 6 * np.sqrt(level) + 10) / np.maximum(count, 1)
    near = np.flatnonzero(keys < bound[own])
    chosen = near[_choose(own[near], keys[near], level)]
    place = chosen + here.start

    pieces = slices(len(place), rows_per_piece(rows.n_columns, sizes.piece))
    mine = _Drawn(
        np.concatenate([rows.take(place[piece]) for piece in pieces]),
        kind[place],
        rows.weight[place],
        keys[chosen],
    )
    drawn = list(among.in_turn(mine))
    y = np.concatenate([part.y for part in drawn])
    chosen = _choose(y, np.concatenate([part.keys for part in drawn]), level)
    X = np.concatenate([part.X for part in drawn])[chosen]
    y = y[chosen]
    weight = np.concatenate([part.weight for part in drawn])[chosen]
    kept = np.bincount(y, minlength=len(count))
    return Table(X, y, weight * (count / kept)[y], len(count))


def _choose(kind: Ints, keys: Floats, level: int) -> Ints:
    """Return, in order, the `level` rows of each class with the smallest keys."""
    order = np.lexsort([keys, kind])
    _, start, count = np.unique(kind[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(start, count)
    return np.sort(order[rank < level])


def _find_level(counts: Ints, limit: int) -> int:
    """Return the largest L ≥ 1 with Σ min(count, L) ≤ limit."""
    levels = range(2, limit + 1)
    return 1 + bisect_right(levels, limit, key=lambda L: np.minimum(counts, L).sum())


def _find_moments(rows: Arrays, here: slice, among: Local, sizes: Sizes) -> Triple:
    """Return the weight of all rows, and mean and Σ weight · deviation² per column."""
    found: Triple = 0.0, np.zeros(rows.n_columns), np.zeros(rows.n_columns)
    size = rows_per_piece(rows.n_columns, sizes.piece)
    for piece in rows.section(range(here.start, here.stop), size):
        weight: Any = piece.weight
        total = weight.sum()
        mean = weight @ piece.X / total
        square = weight @ (piece.X - mean) ** 2
        found = merge_spread(found, (total, mean, square))

    return functools.reduce(merge_spread, among.gather(found))
