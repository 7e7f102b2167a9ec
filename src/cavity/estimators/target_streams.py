"""Sources with real targets: what the engine needs to know of them after one pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cavity.data import Source, Summary, TargetColumn, TargetStream
from cavity.distributed import Local
from cavity.errors import BadOption
from cavity.estimators import streams
from cavity.estimators.options import Options
from cavity.estimators.regression import check_targets, spread

METHODS = ("svi", "vi")  # keep nothing of a row, and see each batch by itself


class StreamedTargets(streams.Streamed):
    """A source of one class with its targets beside it; `summary` is of the other columns."""

    member = None

    @property
    def shift(self) -> float:
        return float(self._beside.shift)

    @property
    def scale(self) -> float:
        return float(self._beside.scale)

    @property
    def _beside(self) -> TargetColumn:
        assert isinstance(self.source, TargetColumn)
        return self.source

    def rows(self, options: Options) -> TargetStream:
        return TargetStream(*super().rows(options)._replace(n_columns=len(self.summary.low) + 1))


def find(estimator: Any, X: Any, y: Any, sample_weight: Any, target: Any, weight: Any) -> Source | None:
    """The source that these arguments of a regressor's `fit` name; None for a table in memory."""
    source = streams.find(estimator, X, y, sample_weight, target, weight, check=check_targets)
    if source is not None and estimator.method not in METHODS:
        raise BadOption(
            f"method={estimator.method!r} goes back to rows that a source does not hold in memory: use method='svi' or 'vi', or "
            "give the table as an array."
        )
    if source is not None and estimator.inducing is None:
        raise BadOption(
            "inducing=None has a point at every row, and a source may have any number: use n_inducing=."
        )
    return source


def read(estimator: Any, source: Source, seed: int, reduce: Local) -> StreamedTargets:
    """The first pass; sets what scikit-learn asks an estimator to remember of its columns."""
    summary = streams.surveyed(TargetColumn(source), (seed, 1), reduce)
    moments = summary.moments
    units = (0.0, 1.0)
    if estimator.normalize_y:
        mean, square = float(moments.mean[0, -1]), float(moments.square[0, -1] / moments.weight[0])
        units = mean, spread(mean, math.sqrt(square))
    streams.remember(estimator, source.names, len(summary.low) - 1)
    return StreamedTargets(TargetColumn(source, *units), _without_last(summary), np.ones(1))


def _without_last(summary: Summary) -> Summary:
    moments, sample = summary.moments, summary.sample
    return summary._replace(
        moments=moments._replace(mean=moments.mean[:, :-1], square=moments.square[:, :-1]),
        low=summary.low[:-1],
        high=summary.high[:-1],
        sample=sample._replace(X=np.ascontiguousarray(sample.X[:, :-1])),
    )
