"""Training rows: what the engine needs to know about them, and the starting values they give."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cavity.common.column_statistics import Columns, distinct_rows, share_units, summarize
from cavity.errors import BadInput
from cavity.kernels import inducing
from cavity.rows.batches.in_memory import Rows
from cavity.rows.batches.memory_maps import Arrays
from cavity.rows.batches.source import Divisible, TensorOptions
from cavity.rows.batches.stream import Stream
from cavity.rows.columns.feature_groups import group_features
from cavity.rows.columns.group_shares import Labels, find_groups, replace_shares
from cavity.rows.columns.outliers import limit_outliers
from cavity.rows.labels import encode, read_labels
from cavity.rows.validation import Features, check_rows, prepared_features, read_rows

Array = NDArray[np.float64]

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

    def rows(self, config: TensorOptions) -> Divisible: ...


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
class InMemory:
    """Rows in memory, with labels or targets."""

    X: Array  # [N D]
    y: NDArray[Any]  # [N]
    weight: Array  # [N], positive

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def lightest(self) -> float:
        return float(self.weight.min())

    @property
    def heaviest(self) -> float:
        return float(self.weight.max())

    def sample(self) -> tuple[Any, ...]:
        return self.X, self.y, self.weight

    def content(self) -> str:
        hasher = hashlib.sha256()
        for array in self.sample():
            hasher.update(np.ascontiguousarray(array).data)
        return hasher.hexdigest()

    def engine_y(self) -> NDArray[Any]:
        """Return y as the likelihood takes it."""
        return self.y

    def rows(self, config: TensorOptions) -> Divisible:
        return self.on_device(config)

    def on_device(self, config: TensorOptions) -> Rows:
        X = torch.tensor(self.X, dtype=config.dtype, device=config.device)
        y, weight = (torch.tensor(a, device=config.device) for a in (self.engine_y(), self.weight))
        return Rows(X, y, weight)


@dataclass(frozen=True)
class Table(InMemory):
    """Rows with encoded labels, 0..C−1."""

    n_classes: int
    given: NDArray[np.int64] | None = None  # row numbers in the table that the user gave; None: 0..N−1

    @property
    def numbers(self) -> NDArray[np.int64]:
        return np.arange(self.n_rows) if self.given is None else self.given

    @property
    def n_latent(self) -> int:
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def class_totals(self) -> Array:
        totals = np.bincount(self.y, weights=self.weight, minlength=self.n_classes)
        return np.asarray(totals, dtype=np.float64)

    def select(self, rows: NDArray[Any]) -> Table:
        return Table(self.X[rows], self.y[rows], self.weight[rows], self.n_classes, self.numbers[rows])

    def rows(self, config: TensorOptions) -> Divisible:
        """Return the rows on the device, or batch by batch through pinned memory if a GPU lacks room for them."""
        if has_room(config.device, self.X.size * config.dtype.itemsize):
            return self.on_device(config)
        source = Arrays(self.X, self.y, self.weight)
        classes, factor = np.arange(self.n_classes), np.ones(self.n_classes)
        N, D = self.X.shape
        return Stream(source, classes, factor, N, D, config.dtype, config.device)

    def start(self, rng: np.random.Generator) -> Start:
        """Return column statistics and candidate rows. Neither row order nor repeating versus weighting matters."""
        many = len(self.X) > inducing.CANDIDATES
        distinct, place = (self.X, np.arange(self.n_rows)) if many else distinct_rows(self.X)
        weight = np.bincount(place, weights=self.weight, minlength=len(distinct)).astype(np.float64)
        columns = summarize(distinct, weight, rng)
        pool = inducing.candidates(self.X, self.y, self.weight, self.n_classes, columns, rng)
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
        features = prepared_features(owner, prepare.replace_columns(columns))
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
