"""Rows with real targets in memory."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import distinct_rows
from cavity.errors import BadInput
from cavity.kernels import inducing
from cavity.rows.batches.source import refuse_masked
from cavity.rows.tables import Array, InMemory, Request, Start, Table
from cavity.rows.validation import Features, check_rows, check_weights, read_rows


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
        """Return a digest of every row and of the units of y."""
        return hashlib.sha256(f"{super().content()} {self.shift!r} {self.scale!r}".encode()).hexdigest()

    def start(self, rng: np.random.Generator) -> Start:
        return Table(self.X, np.zeros(len(self.y), dtype=np.int64), self.weight, 1).start(rng)

    def engine_y(self) -> NDArray[Any]:
        return self.y if self.member is None else np.column_stack([self.member, self.y])


def read_targets(request: Request, owner: str, merge: bool, normalize: bool) -> tuple[Targets, Features]:
    """Read a table with targets; rows of weight 0 are dropped, equal rows are merged if `merge`."""
    rows, features = read_rows(request.X, owner)
    values = check_targets(request.y, len(rows))
    weight = check_weights(request.sample_weight, rows)
    present = weight > 0
    rows, values, weight = rows[present], values[present], weight[present]
    if merge and len(rows) <= inducing.CANDIDATES:
        rows, values, weight = _merged(rows, values, weight)
    shift, scale = _units(values, weight) if normalize else (0.0, 1.0)
    return Targets(rows, (values - shift) / scale, weight, shift, scale), features


def read_targets_of_fit(request: Request, features: Features, units: tuple[float, float]) -> Targets:
    """Read the rows of an earlier fit again, as that fit saw them."""
    rows = check_rows(request.X, features)
    values, weight = check_targets(request.y, len(rows)), check_weights(request.sample_weight, rows)
    (shift, scale), present = units, weight > 0
    return Targets(rows[present], (values[present] - shift) / scale, weight[present], shift, scale)


def _merged(X: Array, y: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Merge rows that are equal in everything, in a canonical order: repeating is weighting, to the last bit."""
    distinct, place = distinct_rows(np.column_stack([X, y]))
    total = np.asarray(np.bincount(place, weights=weight), dtype=np.float64)
    return np.ascontiguousarray(distinct[:, :-1]), distinct[:, -1].copy(), total


def _units(y: Array, weight: Array) -> tuple[float, float]:
    """Return weighted mean and standard deviation."""
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


def check_targets(y: Any, n_rows: int) -> Array:
    """Return y as a one-dimensional array of finite numbers, one per row."""
    from sklearn.utils.validation import column_or_1d

    if y is None:
        raise BadInput("This regressor requires y to be passed, but the target y is None.")
    refuse_masked(y, "y")
    if getattr(getattr(y, "dtype", None), "kind", "") == "c":
        raise BadInput("Complex data not supported: y must hold real numbers.")
    y = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if y.ndim != 1 and y.shape != (n_rows, 1):
        raise BadInput(
            f"y should be a 1d array, got an array of shape {y.shape} instead: give one target per row; for several targets fit "
            "one model each, for example with sklearn.multioutput.MultiOutputRegressor."
        )
    y = column_or_1d(y, warn=True)
    if len(y) != n_rows:
        raise BadInput(f"X has {n_rows} rows and y has {len(y)}: give one target per row.")
    try:
        values = np.asarray(y, dtype=np.float64)
        if y.dtype.kind in "USmM":
            raise TypeError
    except (TypeError, ValueError):
        odd = next(v for v in y.tolist() if not isinstance(v, int | float))
        raise BadInput(
            f"y must contain numbers, and {odd!r} is not one: for class labels use GPClassifier, or convert y first."
        ) from None
    if not np.isfinite(values).all():
        bad = int((~np.isfinite(values)).sum())
        raise BadInput(f"y contains NaN or infinity in {bad} rows: drop these rows.")
    return values
