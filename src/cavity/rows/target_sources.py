"""Sources with real targets: what the engine needs to know about them after one pass."""

from __future__ import annotations

import math

import numpy as np

from cavity.distributed import Local
from cavity.rows import sources
from cavity.rows.batches.checksums import Content
from cavity.rows.batches.source import Source, TensorOptions
from cavity.rows.batches.source_survey import Summary
from cavity.rows.batches.target_column import TargetColumn, TargetStream
from cavity.rows.targets import spread
from cavity.rows.validation import Features


class StreamedTargets(sources.Streamed):
    """A source of one class that carries its targets as an extra column; `summary` is of the other columns."""

    member = None

    @property
    def shift(self) -> float:
        return float(self._column.shift)

    @property
    def scale(self) -> float:
        return float(self._column.scale)

    @property
    def _column(self) -> TargetColumn:
        assert isinstance(self.source, TargetColumn)
        return self.source

    def rows(self, config: TensorOptions) -> TargetStream:
        # in other units than in the survey: the first pass of the training sets the checksum
        rows = super().rows(config)._replace(content=Content(self.summary.classes))
        return TargetStream(*rows._replace(n_columns=len(self.summary.low) + 1))


def read_target_source(
    source: Source, normalize: bool, owner: str, seed: int, reduce: Local
) -> tuple[StreamedTargets, Features]:
    """Survey a source with real targets in one pass."""
    summary = sources.survey_ranks(TargetColumn(source), (seed, 1), reduce)
    moments = summary.moments
    units = (0.0, 1.0)
    if normalize:
        mean, square = float(moments.mean[0, -1]), float(moments.square[0, -1] / moments.weight[0])
        units = mean, spread(mean, math.sqrt(square))
    features = sources.features_of_source(source, owner, len(summary.low) - 1)
    return StreamedTargets(TargetColumn(source, *units), _without_last(summary), np.ones(1)), features


def _without_last(summary: Summary) -> Summary:
    moments, sample = summary.moments, summary.sample
    return summary._replace(
        moments=moments._replace(mean=moments.mean[:, :-1], square=moments.square[:, :-1]),
        low=summary.low[:-1],
        high=summary.high[:-1],
        sample=sample._replace(X=np.ascontiguousarray(sample.X[:, :-1])),
    )
