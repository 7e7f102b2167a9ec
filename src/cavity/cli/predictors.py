"""Predictions of the command line: the columns of the output, and a model in NumPy for a few rows, since torch loads slowly."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.scoring import NORMAL_95
from cavity.errors import BadInput, BadOption
from cavity.prediction.latent import log_probit_probabilities
from cavity.prediction.novelty import find_novelty
from cavity.rows.columns.encoder import ColumnEncoder, check_columns, leave_unchanged
from cavity.rows.files.table_files import TableFile
from cavity.rows.validation import Features
from cavity.saving.array_reader import ArrayRecord
from cavity.saving.json_checks import format_label

MOST_WORK = 50_000  # about a second; with more, torch is faster although it loads slowly
LEAST_ROWS = 10  # that a piece of a table counts as
ENTROPY_WORK = 70.0  # per row and class, if the entropy is split: 1,021 latent values with 14 terms each


class Extras(NamedTuple):
    """Columns of a prediction that are computed on request."""

    uncertainty: bool = False  # entropies of a classifier
    novelty: bool = False


NO_EXTRAS = Extras()


class RowPredictor:
    """A model with the preparation of its columns."""

    features: Features
    classes: NDArray[Any] | None  # None for a regressor
    prepare: ColumnEncoder | None  # None for a model saved from Python whose columns have no names
    # of prepared rows [n D]:
    predict_log_proba: Callable[[Any], Any]  # logarithms of the class probabilities, [n C]
    predict_targets: Callable[[Any], tuple[Any, Any]]  # mean and standard deviation of new values, each [n]
    predict_uncertainty: Callable[[Any], dict[str, Any]]  # entropies by name, each [n]
    predict_novelty: Callable[[Any], Any]  # how unlike the training rows each row is, [n]

    def __init__(self, features: Features, classes: NDArray[Any] | None) -> None:
        self.features, self.classes, self.prepare = features, classes, features.preparation
        if self.prepare is None and features.names is not None:
            self.prepare = leave_unchanged([str(name) for name in features.names])

    @property
    def target(self) -> str | None:
        return None if self.prepare is None or self.prepare.target_ is None else self.prepare.target_.name

    def choose_preparation(self, file: TableFile, target: str | None) -> ColumnEncoder:
        """Return the preparation for a file. If the model has no column names, the order of the columns counts."""
        if self.prepare is not None:
            check_columns(self.prepare, file.names, file.path)
            return self.prepare
        names = [name for name in file.names if name != target]
        if len(names) != self.features.n:
            raise BadInput(
                f"{file.path} has {len(names)} columns, but the model was trained with {self.features.n} "
                "columns without names: give the same columns in the same order."
            )
        return leave_unchanged(names)

    def predict_columns(self, X: Any, extras: Extras = NO_EXTRAS) -> dict[str, Any]:
        """Predict prepared rows and return the columns of the output.

        Classifier: the label, one probability per class and, on request, entropies in nats. Regressor: mean, standard deviation
        and 95 % interval of a new value, noise included. Both, on request: the novelty.
        """
        found = self._predict_outcome(X, extras.uncertainty)
        return found | {"novelty": self.predict_novelty(X)} if extras.novelty else found

    def _predict_outcome(self, X: Any, uncertainty: bool) -> dict[str, Any]:
        if self.classes is None:
            if uncertainty:
                raise BadOption(
                    "--uncertainty applies to classifiers only; for a regressor, see the column std."
                )
            mean, std = self.predict_targets(X)
            return {"mean": mean, "std": std, "low": mean - NORMAL_95 * std, "high": mean + NORMAL_95 * std}
        P = np.exp(self.predict_log_proba(X))
        columns = {"label": self.classes[P.argmax(1)]}
        columns |= {f"p_{format_label(c)}": P[:, i] for i, c in enumerate(self.classes)}
        return columns | self.predict_uncertainty(X) if uncertainty else columns


class ArrayPredictor(RowPredictor):
    """A model in NumPy. Many rows and missing cells are left to torch."""

    def __init__(self, record: ArrayRecord, make_full: Callable[[], RowPredictor]) -> None:
        super().__init__(record.features, record.classes)
        self.record, self.work, self._make_full = record, 0.0, make_full
        C, M = record.model.mean.shape
        # time and memory that a row takes, in units of about 0.02 ms: the quadrature's, and the projection's
        self.work_per_row = 16.0 + C + 0.01 * C * M

    @cached_property
    def full(self) -> RowPredictor:
        """The same model in torch."""
        return self._make_full()

    def _marginals(self, X: NDArray[np.float64]) -> tuple[Any, Any] | None:
        """Return means and variances of the latent functions; None if torch should predict these rows, after those before."""
        self.work += max(len(X), LEAST_ROWS) * self.work_per_row
        suits = self.work <= MOST_WORK and len(X) > 0 and bool(np.isfinite(X).all())
        return self.record.model.marginals(X) if suits else None

    def predict_log_proba(self, X: Any) -> Any:
        marginals = self._marginals(X)
        found = None if marginals is None else log_probit_probabilities(*marginals)
        if marginals is None or found is None:
            return self.full.predict_log_proba(X)
        return self.record.pool.combine(found, X, marginals[1])

    def predict_targets(self, X: Any) -> tuple[Any, Any]:
        marginals = self._marginals(X)
        if marginals is None or not np.isfinite(marginals).all():
            return self.full.predict_targets(X)
        (mean, var), (shift, scale) = marginals, self.record.units
        return shift + scale * mean[:, 0], scale * np.sqrt(var[:, 0] + self.record.noise)

    def predict_uncertainty(self, X: Any) -> dict[str, Any]:
        from cavity.prediction.entropy import share_entropy, split_probit

        model = self.record.model
        self.work += len(X) * ENTROPY_WORK * len(model.mean)
        marginals = self._marginals(X)
        log_p = None if marginals is None else log_probit_probabilities(*marginals)
        if marginals is None or log_p is None:
            return self.full.predict_uncertainty(X)
        pooled = self.record.pool.combine(log_p, X, marginals[1])
        return share_entropy(pooled, *split_probit(*marginals, log_p, model.noise))._asdict()

    def predict_novelty(self, X: Any) -> Any:
        novelty, marginals = find_novelty(self.record.novelty), self._marginals(X)
        return self.full.predict_novelty(X) if marginals is None else novelty.at(marginals[1])
