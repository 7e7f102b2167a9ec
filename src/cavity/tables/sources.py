"""Rows that are not in memory: find the source that the arguments of `fit` name."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from cavity.errors import BadOption
from cavity.tables.array_sources import Arrays, Batches
from cavity.tables.arrow_tables import is_arrow, is_large, is_sparse, is_stream
from cavity.tables.files.arrow_source import Arrow
from cavity.tables.labels import check_labels
from cavity.tables.pieces import Source
from cavity.tables.table import GivenRows
from cavity.tables.validation import Features, prepared_features


def find_source(
    raw: GivenRows,
    *,
    reads_whole_table: bool = False,
    features: Features | None = None,
    check: Callable[[Any, int], Any] = check_labels,
) -> Source | None:
    """Return the source that these arguments of `fit` name; None: a table in memory.

    Rows are read only to prepare mixed columns. A source must have the `features` of a
    fitted model, if given. `check` validates labels in memory.
    """
    X = raw.X
    columns = {"target": raw.target, "weight": raw.weight}
    if is_sparse(X) and is_large(X) and not reads_whole_table:
        weight = raw.sample_weight
        if weight is None or (np.asarray(weight) > 0).all():
            _refuse("a sparse table", columns)
            return Arrays(X, check(raw.y, X.shape[0]), weight, raw.groups)

    arrays = {"y": raw.y, "sample_weight": raw.sample_weight}
    groups = {"groups": raw.groups}
    files = is_files(X)
    if hasattr(type(X), "pieces"):  # not of X: a frame may have a column of that name
        _refuse("a source", arrays | columns | groups)
        source: Source = X
        return source
    if raw.y is None and not files and is_batches(X):
        _refuse("batches", arrays | columns | groups)
        return Batches(X)
    if isinstance(X, str | os.PathLike) or (files and raw.y is None):
        _refuse("files that hold their labels", arrays)
        return Arrow(
            X,
            raw.target,
            raw.weight,
            raw.groups,
            learn=features is None,
            model=features,
        )

    _refuse("a table in memory", columns)
    return None


def is_files(X: Any) -> bool:
    """Return whether X is a path, an object of pyarrow, or a stream of Arrow batches."""
    return isinstance(X, str | os.PathLike) or is_arrow(X) or is_stream(X)


def is_batches(X: Any) -> bool:
    """Return whether X can be called or iterated, and is not itself a table."""
    if isinstance(X, list | tuple):
        if not X or not isinstance(X[0], tuple) or len(X[0]) not in (2, 3):
            return False

        rows = X[0][0]
        return np.ndim(rows) == 2

    is_table = isinstance(X, dict) or hasattr(X, "shape") or hasattr(X, "columns")
    return (callable(X) or hasattr(X, "__iter__")) and not is_table


def _refuse(what: str, arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise BadOption(
                f"{name}= has no meaning for {what}. target=, weight= and groups= name "
                "columns of Parquet and Arrow files; y, sample_weight and groups belong "
                "to tables in memory, as in fit(X.drop(columns='label'), X['label'])."
            )


def features_of_source(source: Source, owner: str, n: int) -> Features:
    prepare: Any = getattr(source, "prepare", None)
    if prepare is None:
        return Features(owner, n, source.names)

    return prepared_features(owner, prepare)
