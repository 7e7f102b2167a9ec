"""Rows with real targets, in memory and of sources, whose last column they are: code for class labels can read it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.column_statistics import distinct_rows
from cavity.distributed import Local
from cavity.errors import BadInput
from cavity.kernels import inducing
from cavity.rows.batches.checksums import Content
from cavity.rows.batches.in_memory import Batch
from cavity.rows.batches.shuffle import Encoded
from cavity.rows.batches.source import Names, Piece, Source, TensorOptions, Visit, describe_place
from cavity.rows.batches.source_survey import Summary
from cavity.rows.batches.stream import Stream
from cavity.rows.columns.outliers import limit_outliers
from cavity.rows.labels import check_targets, check_weights, read_numbers
from cavity.rows.sources import Streamed, features_of_source, survey_ranks
from cavity.rows.tables import Array, InMemory, Request, Start, Table
from cavity.rows.validation import Features, check_rows, read_rows


@dataclass(frozen=True)
class Targets(InMemory):
    """Rows in memory with targets in units of their spread, (y − shift)/scale."""

    shift: float
    scale: float
    member: NDArray[np.int64] | None = None  # [N], of a committee

    @property
    def n_classes(self) -> int:
        return 1

    @property
    def n_latent(self) -> int:
        """Number of latent functions: one, or one per member of a committee."""
        return 1 if self.member is None else int(self.member.max()) + 1

    @property
    def class_totals(self) -> Array:
        return np.array([self.weight.sum()])

    def content(self) -> str:
        return hashlib.sha256(f"{super().content()} {self.shift!r} {self.scale!r}".encode()).hexdigest()

    def start(self, rng: np.random.Generator) -> Start:
        return Table(self.X, np.zeros(len(self.y), dtype=np.int64), self.weight, 1).start(rng)

    def engine_y(self) -> NDArray[Any]:
        return self.y if self.member is None else np.column_stack([self.member, self.y])


def read_targets(request: Request, owner: str, merge: bool, normalize: bool) -> tuple[Targets, Features]:
    """Read a table with targets; rows of weight 0 are dropped, equal rows are merged if `merge`."""
    rows, features = read_rows(request.X, owner, request.y)
    values = check_targets(request.y, len(rows))
    weight = check_weights(request.sample_weight, rows)
    present = weight > 0
    rows, values, weight = limit_outliers(rows[present], features.names), values[present], weight[present]
    if merge and len(rows) <= inducing.CANDIDATES:
        rows, values, weight = _merged(rows, values, weight)
    shift, scale = _units(values, weight) if normalize else (0.0, 1.0)
    return Targets(rows, (values - shift) / scale, weight, shift, scale), features


def read_targets_of_fit(request: Request, features: Features, units: tuple[float, float]) -> Targets:
    """Read the rows of an earlier fit again, as that fit saw them."""
    rows = check_rows(request.X, features)
    values, weight = check_targets(request.y, len(rows)), check_weights(request.sample_weight, rows)
    (shift, scale), present = units, weight > 0
    rows = limit_outliers(rows[present], features.names)
    return Targets(rows, (values[present] - shift) / scale, weight[present], shift, scale)


def _merged(X: Array, y: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Merge rows that are equal in everything, in a canonical order: repeating is weighting, to the last bit."""
    distinct, place = distinct_rows(np.column_stack([X, y]))
    total = np.asarray(np.bincount(place, weights=weight), dtype=np.float64)
    return np.ascontiguousarray(distinct[:, :-1]), distinct[:, -1].copy(), total


def _units(y: Array, weight: Array) -> tuple[float, float]:
    shift = float(np.average(y, weights=weight))
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        off = y - shift
        largest = float(np.abs(off).max()) or 1.0  # in its units squares neither vanish nor overflow
        return shift, spread(shift, largest * math.sqrt(np.average((off / largest) ** 2, weights=weight)))


def spread(mean: float, deviation: float) -> float:
    """Return the standard deviation; 1 if it is only rounding."""
    if not deviation < 1e150:  # whose square is a variance
        raise BadInput("y is too large for its spread to be computed: divide it by its largest value.")
    return deviation if deviation > 1e-12 * abs(mean) else 1.0


class TargetColumn:
    """Source with (y − shift)/scale as its last column and the label 0 in every row.

    Other attributes (row numbers, sections, visits) are those of the wrapped source.
    """

    def __init__(self, source: Source, shift: float = 0.0, scale: float = 1.0) -> None:
        self.source, self.shift, self.scale = source, shift, scale

    @property
    def names(self) -> Names:
        names = self.source.names
        return None if names is None else (*names, "the target")

    @property
    def numbered(self) -> bool:
        return self.source.numbered

    def pieces(self, size: int) -> Iterator[Piece]:
        return map(self._append_target, self.source.pieces(size))

    def scattered(self, size: int, rng: np.random.Generator) -> Iterator[Piece]:
        return map(self._append_target, self.source.scattered(size, rng))

    def __getattr__(self, name: str) -> Any:
        if name == "source":  # a copy in the making has no attributes yet
            raise AttributeError(name)
        found = getattr(self.source, name)
        if name == "take":
            return lambda *arguments: self._append_target(found(*arguments))
        if name == "section":
            return lambda *arguments: map(self._append_target, found(*arguments))
        if name == "visits":
            return lambda *arguments: (
                Visit(v.numbers, self._append_target(v.piece)) for v in found(*arguments)
            )
        return found

    def _append_target(self, piece: Piece) -> Piece:
        y = (_read_targets(piece) - self.shift) / self.scale
        return piece._replace(X=np.column_stack([piece.X, y]), y=np.zeros(len(y), dtype=np.int64))


def _read_targets(piece: Piece) -> Array:
    if piece.X.ndim != 2 or piece.y.shape != (len(piece.X),):
        raise BadInput(
            f"{describe_place(piece)}: X has shape {piece.X.shape} and y has shape {piece.y.shape}. "
            "Give X of shape (n, D) and one target per row, y of shape (n,)."
        )
    return read_numbers(np.asarray(piece.y), f"{describe_place(piece)}: ")


class TargetStream(Stream):
    """Stream of a `TargetColumn`; splits the last column off again and returns it as y."""

    def _send(self, rows: Iterator[Encoded]) -> Iterator[Batch]:
        for batch in super()._send(rows):
            y = batch.X[:, -1].to(torch.float64)
            yield batch._replace(X=batch.X[:, :-1].contiguous(), y=y)


class StreamedTargets(Streamed):
    """A source of one class that carries its targets as an extra column; `summary` is of the other columns."""

    member = None
    source: TargetColumn

    @property
    def shift(self) -> float:
        return float(self.source.shift)

    @property
    def scale(self) -> float:
        return float(self.source.scale)

    def rows(self, config: TensorOptions) -> TargetStream:
        # in other units than in the survey: the first pass of the training sets the checksum
        rows = super().rows(config)._replace(content=Content(self.summary.classes))
        return TargetStream(*rows._replace(n_columns=len(self.summary.low) + 1))


def read_target_source(
    source: Source, normalize: bool, owner: str, seed: int, reduce: Local
) -> tuple[StreamedTargets, Features]:
    """Survey a source with real targets in one pass."""
    summary = survey_ranks(TargetColumn(source), (seed, 1), reduce)
    moments = summary.moments
    units = (0.0, 1.0)
    if normalize:
        mean, square = float(moments.mean[0, -1]), float(moments.square[0, -1] / moments.weight[0])
        units = mean, spread(mean, math.sqrt(square))
    features = features_of_source(source, owner, len(summary.low) - 1)
    return StreamedTargets(TargetColumn(source, *units), _without_last(summary), np.ones(1)), features


def _without_last(summary: Summary) -> Summary:
    moments, sample = summary.moments, summary.sample
    return summary._replace(
        moments=moments._replace(mean=moments.mean[:, :-1], square=moments.square[:, :-1]),
        low=summary.low[:-1],
        high=summary.high[:-1],
        sample=sample._replace(X=np.ascontiguousarray(sample.X[:, :-1])),
    )
