"""Sources of rows that are not in memory: which one fit's arguments name, and the starting values that one pass gives."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, cast

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from cavity import inducing
from cavity.columns import from_moments
from cavity.data import (
    Arrays,
    Arrow,
    Batches,
    Divided,
    Source,
    Stream,
    Summary,
    Survey,
    shard_range,
    survey,
    survey_section,
)
from cavity.data.fragments import open_dataset
from cavity.data.source import Names
from cavity.distributed import Local
from cavity.errors import BadInput, BadOption
from cavity.estimators.checks import check_labels, weight_of_class
from cavity.estimators.options import Options
from cavity.estimators.tables import Array, Start, Table

# methods that read every row at once; a memory map is then read whole
WHOLE = ("laplace", "exact", "fitc", "pp", "sr", "nystrom", "sd", "bcm", "cg")


def find(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    target: Any,
    weight: Any,
    fitted: bool = False,
    check: Any = check_labels,
) -> Source | None:
    """The source that these arguments of `fit` name; None for a table in memory. Once `fitted`, with the columns of then.

    `check` looks at a y in memory.
    """
    path = path_of(X)
    if path.endswith(".npy") or _is_readable_map(estimator, X, sample_weight):
        _refuse("this source", target=target, weight=weight)
        return Arrays(X, _read(y, check), sample_weight)
    if hasattr(X, "pieces") and hasattr(X, "scattered"):
        _refuse("a source", y=y, sample_weight=sample_weight, target=target, weight=weight)
        source: Source = X
        return source
    if path or (type(X).__module__.startswith("pyarrow") and y is None):
        _refuse("files that hold their labels", y=y, sample_weight=sample_weight)
        return known_columns(estimator, X, target, weight) if fitted else Arrow(X, target, weight)
    if y is None and is_batches(X):
        _refuse("batches", sample_weight=sample_weight, target=target, weight=weight)
        return Batches(X)
    _refuse("a table in memory", target=target, weight=weight)
    return None


def path_of(X: Any) -> str:
    """Where X is a path, that path."""
    return os.fspath(X) if isinstance(X, str | os.PathLike) else ""


def known_columns(
    estimator: Any, X: Any, target: Any = None, weight: Any = None, labelled: bool = True
) -> Arrow:
    """Files or Arrow tables with the columns that the model was fitted on, by name where it knows names.

    A model that the command line fitted knows how its columns were prepared, and prepares these alike.
    """
    data = open_dataset(X)
    prepare = getattr(estimator, "preparation_", None)
    if prepare is not None:
        prepare.check(data.schema.names)
        return Arrow(data, target, weight, prepare, labelled=labelled)
    rest = [name for name in data.schema.names if name not in (target, weight)]
    names = getattr(estimator, "feature_names_in_", None)
    names = rest if names is None else [str(name) for name in names]
    absent = [name for name in names if name not in rest]
    if absent:
        raise BadInput(
            f"there is no column {', '.join(map(repr, absent))}, which the model was fitted on, among "
            f"{', '.join(map(repr, data.schema.names))}."
        )
    if len(names) != estimator.n_features_in_:
        raise BadInput(
            f"X has {len(names)} features ({', '.join(map(repr, names))}), but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input. The model was fitted on columns without names: give files that have "
            "these columns alone, in that order."
        )
    return Arrow(data, target, weight, features=names, labelled=labelled)


def _read(y: Any, check: Any) -> Any:
    """A path stays one; a y in memory is looked at now."""
    if isinstance(y, str | os.PathLike):
        return y
    return check(y, len(y) if hasattr(y, "__len__") else 0)


def is_map(X: Any) -> bool:
    """A memory map with rows and columns of numbers."""
    return isinstance(X, np.memmap) and X.ndim == 2 and 0 not in X.shape and X.dtype.kind in "fiub"


def _is_readable_map(estimator: Any, X: Any, sample_weight: Any) -> bool:
    """A memory map that need not be read whole: that takes positive weights, and a schedule that reads in pieces."""
    if not is_map(X):
        return False
    schedule = getattr(estimator, "schedule", "inner-approx")
    whole = schedule == "inner-exact" or estimator.method in WHOLE or estimator.inducing is None
    return not whole and (sample_weight is None or bool((np.asarray(sample_weight) > 0).all()))


def is_batches(X: Any) -> bool:
    """Something to call or to iterate that is not itself a table."""
    if isinstance(X, list | tuple):
        return bool(X) and all(
            isinstance(b, tuple) and len(b) in (2, 3) and np.ndim(b[0]) == 2 for b in X[:1]
        )
    return (callable(X) or hasattr(X, "__iter__")) and not hasattr(X, "shape") and not hasattr(X, "columns")


def _refuse(what: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise BadOption(
                f"{name}= has no meaning for {what}; target= and weight= name columns of Parquet and Arrow files, y and "
                "sample_weight belong to arrays and .npy files."
            )


class Streamed(NamedTuple):
    """A source after its first pass: what the engine needs to know of its rows, and the rows themselves when asked."""

    source: Source
    summary: Summary
    factor: Array  # [C], what class_weight multiplies weights with

    @property
    def n_rows(self) -> int:
        return self.summary.n_rows

    @property
    def n_classes(self) -> int:
        return len(self.summary.classes)

    @property
    def n_latent(self) -> int:
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def class_totals(self) -> Array:
        return self.summary.moments.weight * self.factor

    @property
    def lightest(self) -> float:
        return float((self.summary.moments.lightest * self.factor).min())

    @property
    def heaviest(self) -> float:
        return float((self.summary.moments.heaviest * self.factor).max())

    def sample(self) -> tuple[Any, ...]:
        return self.summary.low, self.summary.high, self.class_totals, self.summary.sample.X

    def start(self, rng: np.random.Generator) -> Start:
        """As of a table in memory while the sample is the whole of it; else exact columns, the rest from the sample."""
        sample = self._sample()
        if self.summary.complete:
            return sample.start(rng)
        center, var = self._center_and_var()
        low, high = self.summary.low, self.summary.high
        columns = from_moments(low, high, center, var, sample.X, sample.weight, rng)
        pool = inducing.candidates(
            sample.X, sample.y, sample.weight, self.n_classes, columns, rng, limit=len(sample.X)
        )
        return Start(columns, pool)

    def _sample(self) -> Table:
        """The sampled rows, each standing for as many of its class as were left out."""
        rows, moments = self.summary.sample, self.summary.moments
        kept = np.bincount(rows.y, minlength=self.n_classes)
        weight = np.asarray(rows.weight) * (self.factor * moments.rows / kept)[rows.y]
        return Table(rows.X, rows.y, weight, self.n_classes)

    def _center_and_var(self) -> tuple[Array, Array]:
        """Mean and variance of the columns: Σ_c within and between classes."""
        moments, total = self.summary.moments, self.class_totals
        share = (total / total.sum())[:, None]
        center = (share * moments.mean).sum(0)
        within = (self.factor[:, None] * moments.square).sum(0) / total.sum()
        return center, within + (share * (moments.mean - center) ** 2).sum(0)

    def rows(self, options: Options) -> Stream:
        return Stream(
            self.source,
            self.summary.classes,
            self.factor,
            self.n_rows,
            self.summary.low.shape[0],
            options.dtype,
            options.device,
        )


def read(estimator: Any, source: Source, seed: int, reduce: Local) -> Streamed:
    """The first pass; sets what scikit-learn asks an estimator to remember of its columns and classes."""
    summary = surveyed(source, (seed, 1), reduce)
    classes = summary.classes
    check_classification_targets(classes)
    if len(classes) < 2:
        raise BadInput(
            f"the source has only one class, {str(classes[0])!r}: a classifier needs at least two; "
            "look at how the rows were selected."
        )
    estimator.classes_ = classes
    remember(estimator, source.names, len(summary.low))
    factor = np.ones(len(classes))
    if estimator.class_weight is not None:
        factor = weight_of_class(estimator.class_weight, classes, summary.moments.weight)
    if not (factor > 0).all():
        raise BadOption("class_weight gives a class the weight 0: filter its rows out of the source instead.")
    return Streamed(source, summary, factor)


def remember(estimator: Any, names: Names, n_columns: int) -> None:
    """What scikit-learn asks an estimator to know of its columns."""
    estimator.n_features_in_ = n_columns
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def surveyed(source: Source, seed: tuple[int, int], reduce: Local) -> Summary:
    """Every rank looks at its own rows where the source can be divided; what one refuses, all refuse in the same words."""
    if reduce.world == 1 or not hasattr(source, "section"):
        return survey(source, seed)
    found: Survey | BadInput
    try:
        mine = shard_range(cast(Divided, source).n_rows, reduce.rank, reduce.world)
        found = survey_section(source, seed, mine)
    except BadInput as error:
        found = error
    together = Survey()
    for part in reduce.in_turn(found):
        if isinstance(part, BadInput):
            raise part
        together.join(part)
    return together.summary()
