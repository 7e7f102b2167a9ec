"""Rows that are not in memory: find the source that `fit`'s arguments name, and read it in one pass."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cavity.errors import BadInput, BadOption
from cavity.rows.arrow_tables import is_arrow, is_large, is_sparse, is_stream
from cavity.rows.batches.array_sources import Arrays, Batches
from cavity.rows.batches.source import Source, shard_range
from cavity.rows.batches.source_survey import TRAINS, Apart, Summary, Survey, survey
from cavity.rows.batches.stored_rows import StoredRows
from cavity.rows.files.arrow_source import Arrow
from cavity.rows.labels import check_labels, encode, weight_of_class
from cavity.rows.validation import Features, prepared_features

if TYPE_CHECKING:  # they load torch
    from cavity.distributed import Local
    from cavity.rows.labelled_tables import LabelledTable
    from cavity.rows.tables import GivenRows

PROBE_ROWS = 64  # that every rank reads at three places before it reads its own


def find_source(
    raw: GivenRows,
    *,
    reads_whole_table: bool = False,
    features: Features | None = None,
    check: Callable[[Any, int], Any] = check_labels,
) -> Source | None:
    """Return the source that these arguments of `fit` name, or None for a table in memory.

    Rows are read only to prepare mixed columns. With `features`, those of a fitted model, the source must have them.
    `check` validates a y in memory.
    """
    X, y, sample_weight, target, weight, _, _, groups = raw
    path = path_of(X)
    files = path != "" or is_table(X)
    batches = y is None and not files and is_batches(X)
    if is_sparse(X) and is_large(X) and not reads_whole_table and _are_positive(sample_weight):
        _refuse("a sparse table", target=target, weight=weight)
        return Arrays(X, check(y, X.shape[0]), sample_weight, groups)
    if hasattr(type(X), "pieces"):  # not of X: a frame may have a column of that name
        _refuse("a source", y=y, sample_weight=sample_weight, target=target, weight=weight, groups=groups)
        source: Source = X
        return source
    if batches:
        _refuse("batches", sample_weight=sample_weight, target=target, weight=weight, groups=groups)
        return Batches(X)
    if path or (files and y is None):
        _refuse("files that hold their labels", y=y, sample_weight=sample_weight)
        return Arrow(X, target, weight, groups, learn=features is None, model=features)
    _refuse("a table in memory", target=target, weight=weight)
    return None


def path_of(X: Any) -> str:
    return os.fspath(X) if isinstance(X, str | os.PathLike) else ""


def is_table(X: Any) -> bool:
    """Return whether X is a table, dataset or reader of pyarrow, or another stream of Arrow batches."""
    return is_arrow(X) or is_stream(X)


def _are_positive(weight: Any) -> bool:
    return weight is None or bool((np.asarray(weight) > 0).all())


def is_batches(X: Any) -> bool:
    """Return whether X can be called or iterated, and is not itself a table."""
    if isinstance(X, list | tuple):
        return bool(X) and isinstance(X[0], tuple) and len(X[0]) in (2, 3) and np.ndim(X[0][0]) == 2
    is_table = isinstance(X, dict) or hasattr(X, "shape") or hasattr(X, "columns")
    return (callable(X) or hasattr(X, "__iter__")) and not is_table


def _refuse(what: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise BadOption(
                f"{name}= has no meaning for {what}; target=, weight= and groups= name columns of Parquet and Arrow files, y, "
                "sample_weight and groups belong to tables in memory."
            )


def features_of_source(source: Source, owner: str, n: int) -> Features:
    prepare: Any = getattr(source, "prepare", None)
    return Features(owner, n, source.names) if prepare is None else prepared_features(owner, prepare)


def read_source(
    source: Source, class_weight: Any, owner: str, seed: int, reduce: Local, apart: Apart | None = None
) -> LabelledTable:
    """Read a labelled source in one pass; rows that are set apart judge the model."""
    from sklearn.utils.multiclass import check_classification_targets

    from cavity.rows.labelled_tables import LabelledTable
    from cavity.rows.tables import Streamed, Table

    read = survey_ranks(source, (seed, 1), reduce, apart=apart)
    summary, classes = read.summary, read.summary.classes
    check_classification_targets(classes)
    if len(classes) < 2:
        raise BadInput(
            f"the source has only one class, {str(classes[0])!r}: a classifier needs at least two; "
            "check how the rows were selected."
        )
    factor = np.ones(len(classes))
    if class_weight is not None:
        factor = weight_of_class(class_weight, classes, summary.moments.weight)
    if not (factor > 0).all():
        raise BadOption("class_weight gives a class the weight 0: filter its rows out of the source instead.")
    features = features_of_source(source, owner, len(summary.low))
    held, found = None, summary.judges
    if apart is not None and found is not None:
        y, weight = encode(found.y, classes), np.ones(len(found.y)) if found.weight is None else found.weight
        held = Table(found.X, y, weight * factor[y], len(classes), group=apart.group)
    return LabelledTable(Streamed(*read, factor, apart=apart), features, classes, held)


def _probe(source: Any) -> tuple[Any, ...]:
    """Return what tells sources apart that ranks divide among them, which no rank reads as a whole."""
    N, found = source.n_rows, list[Any]()
    for first in sorted({0, N // 2, max(0, N - PROBE_ROWS)}):
        for piece in source.section(range(first, min(N, first + PROBE_ROWS)), PROBE_ROWS):
            weight = None if piece.weight is None else piece.weight.tolist()
            found.append((piece.X.tolist(), piece.y.tolist(), weight))
    return N, source.names, hashlib.sha256(repr(found).encode()).hexdigest()


class ReadRows(NamedTuple):
    """A source after its only pass."""

    summary: Summary
    rows: Arrays  # those of this rank, with labels as numbers of classes, or targets
    first: int  # number of the first of them


def survey_ranks(
    source: Any, seed: tuple[int, int], reduce: Local, real: bool = False, apart: Apart | None = None
) -> ReadRows:
    """Read a source once; each rank reads its own rows if the source can be divided. All ranks raise the same error."""
    from cavity.distributed import check_same, run_together

    store = None if isinstance(source, Arrays) and apart is None else StoredRows()
    mine = None
    if reduce.world > 1 and hasattr(source, "section"):
        probe = run_together(reduce, lambda: _probe(source))
        check_same(reduce, {"the first, middle and last rows of the source": probe})
        mine = shard_range(source.n_rows, reduce.rank, reduce.world)
    found: Survey | BadInput
    try:
        found = survey(source, seed, mine, real, store, apart)
    except BadInput as error:
        if mine is None:
            raise
        found = error
    if mine is None:
        assert isinstance(found, Survey)
        together = found
    else:
        together = Survey()
        for part in reduce.in_turn(found):
            if isinstance(part, BadInput):
                raise part
            together.join(part)
    assert isinstance(found, Survey)
    summary = together.summary()
    if store is None:
        y = np.asarray(source.y, np.float64) if real else np.searchsorted(summary.classes, source.y)
        return ReadRows(summary, Arrays(source.X, y, source.weight), 0)
    rows = store.map(len(summary.low))
    if not real:
        place = np.searchsorted(summary.classes, np.array(list(found.labels), summary.classes.dtype))
        rows.y = place[rows.y.astype(np.int64)]
    first = 0 if mine is None else mine.start
    return ReadRows(summary, rows, first if apart is None else int((apart.role[:first] == TRAINS).sum()))
