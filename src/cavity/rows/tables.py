"""Training rows: what the engine needs to know about them, and the starting values they give."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.column_statistics import Columns, distinct_rows, share_units, summarize
from cavity.errors import BadInput, BadOption
from cavity.kernels import inducing
from cavity.rows.batches.array_sources import Arrays
from cavity.rows.batches.in_memory import Rows
from cavity.rows.batches.source import Data, TensorOptions
from cavity.rows.batches.stream import Stream
from cavity.rows.columns.feature_groups import group_features
from cavity.rows.columns.group_shares import Labels, find_groups, replace_shares
from cavity.rows.columns.outliers import limit_outliers
from cavity.rows.labels import check_labels, encode, read_labels
from cavity.rows.validation import Features, check_rows, prepared_features, read_rows

Array = NDArray[np.float64]

ADVICE = "give one pair, eval_set=(X_val, y_val)."
ROOM = 0.5  # share of a GPU's free memory that a table may take


class Request(NamedTuple):
    """The arguments of `fit`."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    target: Any = None
    weight: Any = None
    eval_set: Any = None
    time_limit: Any = None


class Facts(Protocol):
    """What the engine needs to know about the training rows. Their weights are positive."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_classes(self) -> int: ...

    @property
    def n_latent(self) -> int:
        """Number of latent functions: one per class, a single one for two classes."""
        ...

    @property
    def class_totals(self) -> Array:
        """Sum of weights of each class, [C]."""
        ...

    @property
    def lightest(self) -> float: ...

    @property
    def heaviest(self) -> float: ...

    def sample(self) -> tuple[Any, ...]:
        """Arrays that tell this table from others."""
        ...

    def content(self) -> str:
        """Digest of every row."""
        ...

    def start(self, rng: np.random.Generator) -> Start: ...

    def rows(self, config: TensorOptions) -> Data: ...


class Start(NamedTuple):
    """Starting values that depend on the rows but not on the method."""

    columns: Columns
    pool: inducing.Candidates


def share_lengthscales(begin: Start, features: Features, rng: np.random.Generator) -> Start:
    """Let the features of each raw column share a lengthscale; features that nothing prepared stay as they are."""
    prepare = features.preparation
    if prepare is None or (begin.columns.group is not None and begin.columns.constant is None):
        return begin
    sharing, _ = group_features(prepare.columns_)
    if len(np.unique(sharing.group)) == len(sharing.group):
        return begin
    columns, U = share_units(begin.columns, sharing, begin.pool.U, begin.pool.weight, rng)
    return Start(columns, begin.pool._replace(U=U, distance=columns.distance))


class LabelledTable(NamedTuple):
    """A table with class labels, its features and the classes that its numbers stand for."""

    table: Facts
    features: Features
    classes: NDArray[Any]
    numbered: bool = True  # a row has the same number in every pass


@dataclass(frozen=True)
class Table:
    """Rows in memory with encoded labels, 0..C−1, or with real targets in units of their spread, (y − shift)/scale."""

    X: Array  # [N D]
    y: NDArray[Any]  # [N]
    weight: Array  # [N], positive
    n_classes: int  # 1 with targets
    given: NDArray[np.int64] | None = None  # row numbers in the table that the user gave; None: 0..N−1
    units: tuple[float, float] | None = None  # shift and scale of targets
    member: NDArray[np.int64] | None = None  # [N], of a committee
    place: NDArray[np.int64] | None = None  # row of each unmerged row; None: no rows were merged

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def n_latent(self) -> int:
        if self.member is not None:
            return int(self.member.max()) + 1
        return self.n_classes if self.n_classes > 2 else 1

    @property
    def class_totals(self) -> Array:
        return np.bincount(self._classes, weights=self.weight, minlength=self.n_classes).astype(np.float64)

    @property
    def lightest(self) -> float:
        return float(self.weight.min())

    @property
    def heaviest(self) -> float:
        return float(self.weight.max())

    @property
    def numbers(self) -> NDArray[np.int64]:
        return np.arange(self.n_rows) if self.given is None else self.given

    @cached_property
    def distinct(self) -> tuple[Array, NDArray[np.int64]]:
        """The distinct rows of X, and each row's index in them."""
        return distinct_rows(self.X)

    @cached_property
    def equal_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each distinct row with its label and weight first occurs, and each row's index in them."""
        cells = (
            np.ascontiguousarray(np.column_stack([self.X, self.y, self.weight])) + 0.0
        )  # minus zero is zero
        rows = cells.view(np.dtype((np.void, cells.itemsize * cells.shape[1]))).reshape(-1)
        _, first, place = np.unique(rows, return_index=True, return_inverse=True)
        return first, place.reshape(-1)

    @cached_property
    def merged(self) -> Table:
        """The table with equal rows of equal labels and weights as one row that weighs as much as all of them."""
        first, place = self.equal_rows
        weight = np.bincount(place) * self.weight[first]
        return replace(self, X=self.X[first], y=self.y[first], weight=weight, given=None, place=place)

    @property
    def _classes(self) -> NDArray[Any]:
        return self.y if self.units is None else np.zeros(self.n_rows, dtype=np.int64)

    def select(self, rows: NDArray[Any]) -> Table:
        return Table(self.X[rows], self.y[rows], self.weight[rows], self.n_classes, self.numbers[rows])

    def sample(self) -> tuple[Any, ...]:
        return self.X, self.y, self.weight

    def content(self) -> str:
        hasher = hashlib.sha256()
        for array in self.sample():
            hasher.update(np.ascontiguousarray(array).data)
        if self.units is not None:
            hasher.update(np.array(self.units).data)
        return hasher.hexdigest()

    def rows(self, config: TensorOptions) -> Data:
        """Return the rows on the device, or batch by batch through pinned memory if a GPU lacks room for them."""
        if self.units is not None or has_room(config.device, self.X.size * config.dtype.itemsize):
            return self.on_device(config)
        source, (N, D) = Arrays(self.X, self.y, self.weight), self.X.shape
        classes, factor = np.arange(self.n_classes), np.ones(self.n_classes)
        return Stream(source, classes, factor, N, D, config.dtype, config.device)

    def on_device(self, config: TensorOptions) -> Rows:
        X = torch.tensor(self.X, dtype=config.dtype, device=config.device)
        y = self.y if self.member is None else np.column_stack([self.member, self.y])
        return Rows(X, torch.tensor(y, device=config.device), torch.tensor(self.weight, device=config.device))

    def start(self, rng: np.random.Generator) -> Start:
        """Return column statistics and candidate rows. Neither row order nor repeating versus weighting matters."""
        many = len(self.X) > inducing.CANDIDATES
        distinct, place = (self.X, np.arange(self.n_rows)) if many else self.distinct
        weight = np.bincount(place, weights=self.weight, minlength=len(distinct)).astype(np.float64)
        columns = summarize(distinct, weight, rng)
        pool = inducing.candidates(self.X, self._classes, self.weight, self.n_classes, columns, rng)
        return Start(columns, pool)


def has_room(device: torch.device, size: int) -> bool:
    """Return whether a table of this many bytes leaves a device room to work."""
    return device.type != "cuda" or size <= ROOM * torch.cuda.mem_get_info(device)[0]


def read_table(request: Request, class_weight: Any, owner: str, groups: bool = False) -> LabelledTable:
    """Read a labelled table in memory; rows of weight 0 are dropped. `groups`: look for numbers that name groups of rows."""
    rows, features = read_rows(request.X, owner, request.y)
    labels, weight = read_labels(request.y, request.sample_weight, class_weight, rows)
    present = weight > 0
    classes, encoded = np.unique(labels[present], return_inverse=True)
    if len(classes) < 2:
        raise BadInput(
            f"y has only one class, {str(classes[0])!r} (rows of weight 0 do not count): a classifier needs at least two; "
            "check how the rows were selected."
        )
    given = None
    if not present.all():
        rows, weight, given = rows[present], weight[present], np.flatnonzero(present)
    rows = limit_outliers(rows, features.names)
    encoded = encoded.reshape(-1)
    prepare = features.preparation
    if groups and prepare is not None:
        rows, columns = find_groups(rows, prepare.columns_, Labels(encoded, weight, tuple(map(str, classes))))
        prepare = copy(prepare)
        prepare.columns_ = columns
        features = prepared_features(owner, prepare)
    return LabelledTable(Table(rows, encoded, weight, len(classes), given), features, classes)


def read_table_of_fit(
    request: Request, class_weight: Any, features: Features, classes: NDArray[Any]
) -> Table:
    """Read the rows of an earlier fit again, as that fit saw them."""
    rows = check_rows(request.X, features)
    labels, weight = read_labels(request.y, request.sample_weight, class_weight, rows)
    present = weight > 0
    rows, weight = limit_outliers(rows[present], features.names), weight[present]
    encoded = encode(labels[present], classes)
    if features.preparation is not None:
        given = Labels(encoded, weight, tuple(map(str, classes)))
        rows = replace_shares(rows, features.preparation.columns_, given)
    return Table(rows, encoded, weight, len(classes))


def unpack_pair(eval_set: Any) -> tuple[Any, Any]:
    """Return X and y of `(X, y)` or `[(X, y)]`."""
    found = eval_set
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, tuple | list):
        raise BadOption(f"eval_set is a {type(eval_set).__name__}: {ADVICE}")
    if len(found) != 2:
        raise BadOption(f"eval_set has {len(found)} parts instead of 2: {ADVICE}")
    if all(isinstance(part, tuple) for part in found):
        raise BadOption(f"eval_set has {len(found)} pairs, but one set decides when training stops: {ADVICE}")
    return found[0], found[1]


def read_eval_labels(pair: tuple[Any, Any], features: Features, classes: NDArray[Any]) -> Table:
    with name_eval_set():
        rows = check_rows(pair[0], features)
        labels = check_labels(pair[1], len(rows))
    return Table(rows, encode(labels, classes, "eval_set"), np.ones(len(rows)), len(classes))


@contextmanager
def name_eval_set() -> Iterator[None]:
    """Name the argument in errors about its rows."""
    try:
        yield
    except ValueError as error:  # of scikit-learn, too
        raise BadInput(f"eval_set: {error}") from error
