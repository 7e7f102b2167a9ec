"""Saved models as commands see them: columns and predictions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from cavity.common.scoring import NORMAL_95
from cavity.common.text_tables import format_label
from cavity.errors import BadInput
from cavity.prediction.blocks import predict_blocks
from cavity.prediction.novelty import find_novelty
from cavity.prediction.predict import predict_log_proba
from cavity.prediction.result import Result
from cavity.prediction.target_estimate import TargetEstimate, choose_half_width
from cavity.prediction.target_spread import EVEN, Spread
from cavity.prediction.targets import predict_targets, target_noise
from cavity.prediction.uncertainty import (
    Uncertainty,
    predict_novelty,
    predict_uncertainty,
)
from cavity.tables.columns.encoder import ColumnEncoder, check_columns, leave_unchanged
from cavity.tables.files.table_files import TableFile
from cavity.tables.validation import Prepared


class Extras(NamedTuple):
    """Optional parts of a prediction."""

    uncertainty: bool = False  # entropies of a classifier
    novelty: bool = False
    interval: float | None = None  # share of new values inside a regressor's interval


class Predictor:
    """A fitted model with the preparation of its columns.

    It needs neither torch nor scikit-learn.
    """

    def __init__(self, result: Result) -> None:
        self.result = result
        self.features = result.features
        self.classes = result.classes
        self.labels = list[str]()
        if self.classes is not None:
            self.labels = [format_label(c) for c in self.classes]
        self.prepare = self.features.encoder
        self.has_names = self.features.names is not None
        self.target = self.features.target

    def expect_rows(self, n: int) -> None:
        """Choose how to predict about n rows.

        Triangular solves are faster for few rows, precomputed matrices for many.
        """
        model = self.result.model
        model = model._replace(by_solves=n < model.mean.shape[1])
        self.result = self.result._replace(model=model)

    def choose_preparation(self, file: TableFile, target: str | None) -> ColumnEncoder:
        """Return the preparation for a file.

        If the model has no column names, the order of the columns counts.
        """
        if self.has_names:
            check_columns(self.prepare, file.names, file.path)
            return self.prepare

        names = [name for name in file.names if name != target]
        if len(names) != self.features.n:
            raise BadInput(
                f"{file.path} has {len(names)} columns, but the model has "
                f"{self.features.n} without names: give the same columns in order."
            )

        return leave_unchanged(names)

    def predict(self, X: Any, extras: Extras) -> dict[str, Any]:
        """Predict prepared rows.

        Classifiers give `probabilities`, [n C], and entropies in nats, regressors mean,
        std and interval of a new value; all others are [n]. The interval is that of
        `GPRegressor.predict_interval` if `extras` have its share of new values, or else
        the normal one of 95%.
        """
        if self.classes is None:
            mean, std = self.predict_targets(X)
            half = NORMAL_95 * std
            if extras.interval is not None:
                _, wide = self.predict_targets(X, self.result.spread)
                half = self._choose_half_width(extras.interval) * wide
            found = {"mean": mean, "std": std, "low": mean - half, "high": mean + half}
        else:
            found = {"probabilities": np.exp(self.predict_log_proba(X))}
            if extras.uncertainty:
                found |= Uncertainty(*self._predict(X, predict_uncertainty))._asdict()

        if extras.novelty:
            found["novelty"] = self.predict_novelty(X)

        return found

    def predict_novelty(self, X: Any) -> Any:
        """Return how unlike the training rows each prepared row is, [n]."""
        novelty = find_novelty(self.result.novelty)
        (found,) = self._predict(X, partial(predict_novelty, novelty=novelty))
        return found

    def _choose_half_width(self, coverage: float) -> float:
        """Return the half-width of intervals in standard deviations."""
        estimate = self.result.estimate
        assert estimate is None or isinstance(estimate, TargetEstimate)
        return choose_half_width(estimate, coverage)

    def predict_log_proba(self, X: Any) -> Any:
        """Return logarithms of the class probabilities of prepared rows, [n C]."""
        (log_p,) = self._predict(X, predict_log_proba)
        return log_p

    def predict_targets(self, X: Any, spread: Spread = EVEN) -> tuple[Any, Any]:
        """Return mean and standard deviation of new values, each [n].

        `spread` scales the standard deviation.
        """
        result = self.result
        predict = partial(
            predict_targets,
            rows=result.rows,
            with_residual=result.predicts_residual,
            units=result.units,
            noise=target_noise(result.model),
            spread=spread,
        )
        mean, std = self._predict(X, predict)
        return mean, std

    def _predict(
        self, X: Any, predict: Callable[..., tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        return predict_blocks(self.result.model, self.features, Prepared(X), predict)


class Model(Predictor):
    """A predictor with its estimator, for commands that do more than predict."""

    def __init__(self, classifier: Any) -> None:
        from cavity.estimators import view_fit

        super().__init__(view_fit(classifier))
        self.classifier = classifier

    @classmethod
    def open(cls, path: str | Path, device: str | None = None) -> Self:
        from cavity.estimators import load

        return cls(load(path, device))
