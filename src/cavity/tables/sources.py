"""Rows that are not in memory: find the source that `fit`'s arguments name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cavity.errors import BadOption
from cavity.tables.array_sources import Arrays, Batches
from cavity.tables.arrow_tables import is_arrow, is_large, is_sparse, is_stream
from cavity.tables.files.arrow_source import Arrow
from cavity.tables.labels import check_labels
from cavity.tables.pieces import Source
from cavity.tables.validation import Features, prepared_features

if TYPE_CHECKING:  # it loads torch
    from cavity.tables.table import GivenRows


def find_source(
    raw: GivenRows,
    *,
    reads_whole_table: bool = False,
    features: Features | None = None,
    check: Callable[[Any, int], Any] = check_labels,
) -> Source | None:
    """Return the source that these arguments of `fit` name, or None for a table in
    memory.

    Rows are read only to prepare mixed columns. With `features`, those of a fitted
    model, the source must have them. `check` validates a y in memory.
    """
    X, y, sample_weight, target, weight, _, _, groups = raw
    files = is_files(X)
    is_path = isinstance(X, str | os.PathLike)
    if (
        is_sparse(X)
        and is_large(X)
        and not reads_whole_table
        and _are_positive(sample_weight)
    ):
        _refuse("a sparse table", target=target, weight=weight)
        return Arrays(X, check(y, X.shape[0]), sample_weight, groups)
    if hasattr(type(X), "pieces"):  # not of X: a frame may have a column of that name
        _refuse(
            "a source",
            y=y,
            sample_weight=sample_weight,
            target=target,
            weight=weight,
            groups=groups,
        )
        source: Source = X
        return source
    if y is None and not files and is_batches(X):
        _refuse(
            "batches",
            sample_weight=sample_weight,
            target=target,
            weight=weight,
            groups=groups,
        )
        return Batches(X)
    if is_path or (files and y is None):
        _refuse("files that hold their labels", y=y, sample_weight=sample_weight)
        return Arrow(X, target, weight, groups, learn=features is None, model=features)
    _refuse("a table in memory", target=target, weight=weight)
    return None


def is_files(X: Any) -> bool:
    """Return whether X is a path, a table, dataset or reader of pyarrow, or another
    stream of Arrow batches.
    """
    return isinstance(X, str | os.PathLike) or is_arrow(X) or is_stream(X)


def _are_positive(weight: Any) -> bool:
    return weight is None or bool((np.asarray(weight) > 0).all())


def is_batches(X: Any) -> bool:
    """Return whether X can be called or iterated, and is not itself a table."""
    if isinstance(X, list | tuple):
        return (
            bool(X)
            and isinstance(X[0], tuple)
            and len(X[0]) in (2, 3)
            and np.ndim(X[0][0]) == 2
        )
    is_table = isinstance(X, dict) or hasattr(X, "shape") or hasattr(X, "columns")
    return (callable(X) or hasattr(X, "__iter__")) and not is_table


def _refuse(what: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise BadOption(
                f"{name}= has no meaning for {what}; target=, weight= and groups= name "
                f"columns of Parquet and Arrow files, y, "
                "sample_weight and groups belong to tables in memory."
            )


def features_of_source(source: Source, owner: str, n: int) -> Features:
    prepare: Any = getattr(source, "prepare", None)
    if prepare is None:
        return Features(owner, n, source.names)
    return prepared_features(owner, prepare)
