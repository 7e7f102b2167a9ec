"""Survey of a source: it is read once, for its classes, the moments of its columns, and
a random sample of rows.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import Triple, merge_spread
from cavity.common.prefetch import prefetch
from cavity.common.ranks import Local, check_same, run_together, shard_range
from cavity.common.types import Floats, Ints
from cavity.errors import BadInput
from cavity.tables.array_sources import Arrays, StoredRows
from cavity.tables.labels import (
    check_labels,
    check_targets,
    refuse_many_classes,
    sort_labels,
)
from cavity.tables.pieces import Apart, Piece, check_pieces, join, rows_per_piece
from cavity.tables.table import Streamed, Table

PROBE_ROWS = 64  # that every rank reads at three places before it reads its own
SAMPLE_ROWS = 20_000
SAMPLE_BYTES = 128 << 20  # maximum size of the sample


def survey(
    source: Any,
    seed: int,
    reduce: Local,
    weigh: Callable[[NDArray[Any], Floats], Floats] | None = None,
    apart: Apart | None = None,
) -> tuple[Streamed, Piece | None]:
    """Read a source once; also return its rows that judge.

    Each rank reads its own rows if the source can be divided.

    `weigh` returns factors of the classes, given these and their weights. Without it,
    labels are real targets of one class.
    """
    mine, among = _divide(source, reduce)
    copy = run_together(among, lambda: _copy(source, mine, weigh is None, apart))
    lows, highs, labels, digests = zip(*among.gather(copy[-4:]), strict=True)
    low = functools.reduce(np.minimum, lows)
    high = functools.reduce(np.maximum, highs)
    if not np.ndim(low):
        raise BadInput("the source has no rows: check how it was selected.")
    classes = np.array(sort_labels(set().union(*labels)))
    rows, kind = _number_classes(source, copy, classes, len(low), weigh is None)
    begin = 0 if mine is None else mine.start
    keys = _draw_keys(seed, begin, copy.n_rows, apart)
    here = slice(0, len(kind))
    if apart is None:
        first = begin
    else:
        first = int(apart.trains(slice(begin)).sum())
    if copy.store is None:  # every rank has all rows
        here = slice(begin, begin + copy.n_rows)
        first = 0
    found = [
        np.bincount(kind[here], w, len(classes)) for w in (None, rows.weight[here])
    ]
    count, total = np.sum(among.gather(found), axis=0)
    if weigh is None:
        factor = np.ones(1)
    else:
        factor = weigh(classes, total)
    weight = rows.weight = (
        rows.weight if (factor == 1).all() else rows.weight * factor[kind]
    )
    sampled = _draw_rows(rows, kind, here, keys, count, among)
    streamed = Streamed(
        read=rows,
        first=first,
        classes=classes,
        factor=factor,
        n_rows=int(count.sum()),
        class_totals=total * factor,
        lightest=min(among.gather(weight[here].min(initial=np.inf))),
        heaviest=max(among.gather(weight[here].max(initial=0.0))),
        low=low,
        high=high,
        moments=_find_moments(rows, here, among)
        if sampled.n_rows < count.sum()
        else None,
        sampled=sampled,
        digest=hashlib.sha256("".join(digests).encode()).hexdigest(),
        apart=apart,
    )
    judges = [piece for pieces in among.in_turn(copy.judges) for piece in pieces]
    return streamed, join(judges) if judges else None


def _divide(source: Any, reduce: Local) -> tuple[range | None, Local]:
    """Return the rows that this rank reads, and who shares the others; None: every rank
    reads all rows for itself.
    """
    if reduce.world == 1 or not hasattr(source, "section"):
        return None, Local()
    probe = run_together(reduce, lambda: _probe(source))
    check_same(reduce, {"the first, middle and last rows of the source": probe})
    return shard_range(source.n_rows, reduce.rank, reduce.world), reduce


def _probe(source: Any) -> tuple[Any, ...]:
    """Return what tells sources apart that ranks divide among them, which no rank reads
    as a whole.
    """
    N = source.n_rows
    found = list[Any]()
    for first in sorted({0, N // 2, max(0, N - PROBE_ROWS)}):
        for piece in source.section(
            range(first, min(N, first + PROBE_ROWS)), PROBE_ROWS
        ):
            weight = None
            if piece.weight is not None:
                weight = piece.weight.tolist()
            found.append((piece.X.tolist(), piece.y.tolist(), weight))
    return N, source.names, hashlib.sha256(repr(found).encode()).hexdigest()


class _Copy(NamedTuple):
    """What a rank has read of a source."""

    store: (
        StoredRows | None
    )  # with labels as numbers of `labels`, or targets; None: the source is in memory
    n_rows: int
    judges: list[Piece]
    low: Any  # [D], or a number if there are no rows
    high: Any
    labels: list[Any]  # in order of their first rows
    digest: str


def _copy(source: Any, keep: range | None, real: bool, apart: Apart | None) -> _Copy:
    """Read the rows in `keep` (default all), and check and copy them; those set apart
    are only kept.
    """
    store = None
    if not (isinstance(source, Arrays) and apart is None):
        store = StoredRows()
    labels: dict[Any, int] = {}
    n_rows = 0
    low = np.inf
    high = -np.inf
    judges = list[Piece]()
    hasher = hashlib.sha256()
    size = rows_per_piece(
        len(source.names)
        if source.names is not None
        else getattr(source, "n_columns", 1)
    )
    if keep is None:
        pieces = source.pieces(size)
    else:
        pieces = source.section(keep, size)
    for piece in prefetch(
        check_pieces(pieces, source.names, check_targets if real else check_labels)
    ):
        n_rows += len(piece.index)
        if apart is not None:
            judges.append(piece.at(apart.judges(piece.index)))
            piece = piece.at(apart.trains(piece.index))
        if not len(piece.index):
            continue
        low = np.minimum(low, piece.X.min(0))
        high = np.maximum(high, piece.X.max(0))
        if real:
            y = piece.y
        else:
            y = _number_labels(piece.y, labels)
        if piece.weight is None:
            weight = np.ones(len(y))
        else:
            weight = piece.weight
        rows = np.column_stack([piece.X, y, weight])
        hasher.update(rows.data)
        if store is not None:
            store.add(rows)
    return _Copy(
        store,
        n_rows,
        judges,
        low,
        high,
        [0] if real else list(labels),
        hasher.hexdigest(),
    )


def _number_labels(y: NDArray[Any], labels: dict[Any, int]) -> Ints:
    """Return the number of each label in `labels`, which new ones are added to."""
    values, place = np.unique(y, return_inverse=True)
    numbers = np.array(
        [labels.setdefault(value, len(labels)) for value in values.tolist()]
    )
    refuse_many_classes(labels)
    return numbers[place.reshape(-1)]


def _number_classes(
    source: Any, copy: _Copy, classes: NDArray[Any], n_columns: int, real: bool
) -> tuple[Arrays, Ints]:
    """Return the rows with labels as numbers of classes, or targets; also the class of
    each.
    """
    if copy.store is None:
        rows = source
    else:
        rows = copy.store.map(n_columns)
    if rows.weight is None:
        weight = np.broadcast_to(1.0, rows.n_rows)
    else:
        weight = np.asarray(rows.weight, np.float64)
    if real:
        found = Arrays(rows.X, np.asarray(rows.y, np.float64), weight)
        found.pages = rows.pages
        return found, np.zeros(rows.n_rows, np.int64)
    kind = np.searchsorted(
        classes, rows.y if copy.store is None else np.array(copy.labels, classes.dtype)
    )
    if copy.store is not None:
        kind = kind[np.asarray(rows.y, np.int64)]
    found = Arrays(rows.X, kind, weight)
    found.pages = rows.pages
    return found, kind


def _draw_keys(seed: int, first: int, n_rows: int, apart: Apart | None) -> Floats:
    """Return a random number for each row that trains; it depends on the number of the
    row only.
    """
    rng = np.random.default_rng((seed, 1))
    rng.bit_generator.advance(first)  # type: ignore[attr-defined]
    keys = rng.random(n_rows)
    if apart is None:
        return keys
    return keys[apart.trains(slice(first, first + n_rows))]


def _draw_rows(
    rows: Arrays, kind: Ints, here: slice, keys: Floats, count: Ints, among: Local
) -> Table:
    """Draw the rows with the smallest keys of each class, all of small classes; each
    weighs as much as those that it stands for.
    """
    limit = min(SAMPLE_ROWS, max(1, SAMPLE_BYTES // (8 * rows.n_columns)))
    level = _find_level(count, limit)
    # hardly ever has a class fewer than `level` keys below this: other rows need not be
    # sorted
    near = np.flatnonzero(
        keys < ((level + 6 * np.sqrt(level) + 10) / np.maximum(count, 1))[kind[here]]
    )
    chosen = near[_choose(kind[here][near], keys[near], level)]
    place = chosen + here.start
    size = rows_per_piece(rows.n_columns)
    X = np.concatenate(
        [rows.take(place[i : i + size]) for i in range(0, max(1, len(place)), size)]
    )
    mine = X, kind[place], rows.weight[place], keys[chosen]
    X, y, weight, keys = map(np.concatenate, zip(*among.in_turn(mine), strict=True))
    chosen = _choose(y, keys, level)
    kept = np.bincount(y[chosen], minlength=len(count))
    return Table(
        X[chosen], y[chosen], weight[chosen] * (count / kept)[y[chosen]], len(count)
    )


def _choose(kind: Ints, keys: Floats, level: int) -> Ints:
    """Return, in order, the `level` rows of each class with the smallest keys."""
    order = np.lexsort([keys, kind])
    _, start, count = np.unique(kind[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(start, count)
    return np.sort(order[rank < level])


def _find_level(counts: Ints, limit: int) -> int:
    """Return the largest L ≥ 1 with Σ min(count, L) ≤ limit."""
    low = 1
    high = limit
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(counts, middle).sum() <= limit:
            low = middle
            high = high
        else:
            low = low
            high = middle - 1
    return low


def _find_moments(rows: Arrays, here: slice, among: Local) -> Triple:
    """Return the weight of all rows, and mean and Σ weight · deviation² of each column."""
    found: Triple = 0.0, np.zeros(rows.n_columns), np.zeros(rows.n_columns)
    for piece in rows.section(
        range(here.start, here.stop), rows_per_piece(rows.n_columns)
    ):
        weight: Any = piece.weight
        mean = weight @ piece.X / weight.sum()
        found = merge_spread(
            found, (weight.sum(), mean, weight @ (piece.X - mean) ** 2)
        )
    return functools.reduce(merge_spread, among.gather(found))
