"""Read rows with class labels or real targets, in memory or from a source.

They are read for a new fit, or again as an earlier fit saw them.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import distinct_rows
from cavity.common.ranks import Local, shard_range
from cavity.common.types import Floats
from cavity.errors import BadInput, BadOption, name_in_errors
from cavity.tables import inducing_points
from cavity.tables.columns.column_kinds import Category
from cavity.tables.columns.feature_groups import find_blocks
from cavity.tables.columns.outliers import limit_outliers
from cavity.tables.columns.text_kind import Text
from cavity.tables.labels import (
    check_labels,
    check_targets,
    check_weights,
    encode,
    find_places,
    read_groups,
    read_labels,
    refuse_one_class,
    warn_of_light_rows,
    warn_of_single_rows,
    weight_of_class,
)
from cavity.tables.pieces import Apart, Source
from cavity.tables.repeats import divide_copies, has_cells
from cavity.tables.sources import features_of_source
from cavity.tables.survey import survey
from cavity.tables.table import Facts, GivenRows, Streamed, Table
from cavity.tables.validation import Features, check_rows, read_rows

FAR = 1e5  # a fit warns of larger values of y that are not normalised


class LabelledTable(NamedTuple):
    """A table with class labels, its features and its classes."""

    table: Facts
    features: Features
    classes: NDArray[Any]
    held: Table | None = None  # rows of eval_set
    drawn_from: int | None = None  # rows of the user's table, if time is short

    @property
    def blocks(self) -> list[slice]:
        """Slices of the features that encode one category each."""
        return find_blocks(self.features.encoder.columns_, Category)

    @property
    def texts(self) -> list[slice]:
        """Slices of the features that encode one column of texts each."""
        return find_blocks(self.features.encoder.columns_, Text)

    @property
    def class_prior(self) -> Floats:
        totals = self.table.class_totals
        return np.asarray(totals / totals.sum())


def read_table(raw: GivenRows, class_weight: Any, owner: str) -> LabelledTable:
    """Read a labelled table in memory; rows of weight 0 are dropped."""
    rows, features = read_rows(raw.X, owner, raw.y)
    labels, weight = read_labels(raw.y, raw.sample_weight, class_weight, rows)
    warn_of_light_rows(raw.sample_weight)
    warn_of_single_rows(labels)
    present = weight > 0
    classes, encoded = np.unique(labels[present], return_inverse=True)
    refuse_one_class(classes, "y")
    group = None
    if raw.groups is not None:
        group = read_groups(raw.groups, len(labels))[present]
        if len(np.unique(group)) < 2:
            raise BadInput(
                "`groups` contains only one group (rows of weight 0 do not count); at "
                "least two are needed."
            )

    given = None
    if not present.all():
        rows = rows[present]
        weight = weight[present]
        given = np.flatnonzero(present)

    rows = limit_outliers(rows, features.names)
    table = Table(rows, encoded, weight, len(classes), given, group=group)
    if has_cells(table):  # otherwise the table keeps its words
        table = replace(table, cells=True)
    return LabelledTable(table, features, classes)


def read_source(
    source: Source,
    class_weight: Any,
    owner: str,
    seed: int,
    reduce: Local,
    apart: Apart | None = None,
) -> LabelledTable:
    """Read a labelled source in one pass; rows set `apart` judge the model."""
    from sklearn.utils.multiclass import check_classification_targets

    def weigh(classes: NDArray[Any], total: Floats) -> Floats:
        check_classification_targets(classes)
        refuse_one_class(classes, "the source")
        if class_weight is None:
            return np.ones(len(classes))

        factor = weight_of_class(class_weight, classes, total)
        if not (factor > 0).all():
            raise BadOption(
                "class_weight gives a class the weight 0: remove its rows from the "
                "source."
            )

        return factor

    table, judges = survey(source, seed, reduce, weigh, apart)
    features = features_of_source(source, owner, len(table.low))
    held = None
    if apart is not None and judges is not None:
        y = encode(judges.y, table.classes)
        weight = table.factor[y]
        if judges.weight is not None:
            weight = judges.weight * weight
        held = Table(judges.X, y, weight, table.n_classes, group=apart.group)

    return LabelledTable(table, features, table.classes, held)


def read_table_of_fit(
    raw: GivenRows,
    class_weight: Any,
    features: Features,
    classes: NDArray[Any],
    order: tuple[Any, ...] | None = None,
) -> Table:
    """Read the rows of an earlier fit again, as that fit saw them."""
    raw = raw.with_arrays()
    rows = check_rows(raw.X, features)
    labels, weight = read_labels(raw.y, raw.sample_weight, class_weight, rows)
    present = weight > 0
    rows = limit_outliers(rows[present], features.names)
    weight = weight[present]
    y = encode(labels[present], classes)
    return Table(rows, y, weight, len(classes), order=find_places(order, classes))


def with_order(
    table: Facts, order: tuple[Any, ...] | None, classes: NDArray[Any]
) -> Facts:
    """Return the table with the places of its classes, if the user orders them."""
    places = find_places(order, classes)
    if isinstance(table, Table):
        return replace(table, order=places)

    return table._replace(order=places)


def read_eval_labels(
    raw: GivenRows, features: Features, classes: NDArray[Any]
) -> Table:
    with name_in_errors("eval_set"):
        rows = check_rows(raw.X, features)
        labels = check_labels(raw.y, len(rows))
    y = encode(labels, classes, "eval_set")
    table = Table(rows, y, np.ones(len(rows)), len(classes))
    return replace(table, cells=has_cells(table))


def read_targets(
    raw: GivenRows, owner: str, merge: bool, normalize: bool
) -> tuple[Table, Features]:
    """Read a table with targets; drops rows of weight 0.

    With `merge`, equal rows become one row.
    """
    rows, features = read_rows(raw.X, owner, raw.y)
    found = _read_values(raw, rows, features)
    warn_of_light_rows(raw.sample_weight)
    if merge and len(found.X) <= inducing_points.CANDIDATES:
        found = _merge(found)
    if normalize:
        units = _find_units(found.y, found.weight)
    else:
        units = 0.0, 1.0
        largest = np.abs(found.y).max()
        if largest > FAR:
            warnings.warn(
                f"y has values up to {largest:.3g}, but normalize_y=False assumes a "
                "mean of 0 and a variance of 1: predictions may be far off. Use "
                "normalize_y=True, or scale y.",
                stacklevel=2,
            )

    return found.to_table(units), features


def read_targets_of_fit(
    raw: GivenRows, features: Features, units: tuple[float, float]
) -> Table:
    """Read the rows of an earlier fit again, as that fit saw them."""
    rows = check_rows(raw.X, features)
    return _read_values(raw.with_arrays(), rows, features).to_table(units)


def read_eval_targets(
    raw: GivenRows, features: Features, units: tuple[float, float]
) -> Table:
    with name_in_errors("eval_set"):
        return read_targets_of_fit(raw, features, units)


class _Values(NamedTuple):
    """Rows with targets in the user's units."""

    X: Floats
    y: Floats
    weight: Floats

    def to_table(self, units: tuple[float, float]) -> Table:
        shift, scale = units
        return Table(self.X, (self.y - shift) / scale, self.weight, 1, units=units)


def _read_values(raw: GivenRows, rows: Floats, features: Features) -> _Values:
    values = check_targets(raw.y, len(rows))
    weight = check_weights(raw.sample_weight, rows)
    present = weight > 0
    X = limit_outliers(rows[present], features.names)
    return _Values(X, values[present], weight[present])


def _merge(rows: _Values) -> _Values:
    """Merge rows with equal features and targets, in a canonical order.

    A repeated row and a weighted row then give the same result, to the last bit. If all
    weights are multiples of g, the table is g copies of a smaller one. Counted g times,
    targets would seem to have no noise.
    """
    distinct, place = distinct_rows(np.column_stack([rows.X, rows.y]))
    weight = np.bincount(place, weights=rows.weight).astype(np.float64)
    X = np.ascontiguousarray(distinct[:, :-1])
    return _Values(X, distinct[:, -1].copy(), divide_copies(weight))


def _find_units(y: Floats, weight: Floats) -> tuple[float, float]:
    shift = float(np.average(y, weights=weight))
    with np.errstate(over="ignore", invalid="ignore"):  # refused by `spread`
        off = y - shift
        # in units of the largest value squares neither vanish nor overflow
        largest = float(np.abs(off).max()) or 1.0
        variance = np.average((off / largest) ** 2, weights=weight)
        return shift, spread(shift, largest * math.sqrt(variance))


def spread(mean: float, deviation: float) -> float:
    """Return the standard deviation; 1 if it is only a rounding error."""
    if not deviation < 1e150:  # its square, the variance, must be finite
        raise BadInput(
            "y is too large for its spread to be computed: divide it by its largest "
            "value."
        )
    if deviation > 1e-12 * abs(mean):
        return deviation

    return 1.0


def read_target_source(
    source: Source, normalize: bool, owner: str, seed: int, reduce: Local
) -> tuple[Streamed, Features]:
    """Read a source with real targets in one pass."""
    table, _ = survey(source, seed, reduce)
    features = features_of_source(source, owner, len(table.low))
    if not normalize:
        return table, features

    own = shard_range(table.n_rows, reduce.rank, reduce.world)
    here = slice(own.start - table.first, own.stop - table.first)
    y = table.read.y[here]
    weight = table.read.weight[here]
    with np.errstate(over="ignore", invalid="ignore"):  # refused by `spread`
        total, moment = np.sum(reduce.gather((weight.sum(), weight @ y)), axis=0)
        mean = float(moment / total)
        square = np.sum(reduce.gather(weight @ (y - mean) ** 2))
        variance = float(square / total)

    units = mean, spread(mean, math.sqrt(variance))
    return table._replace(units=units), features
