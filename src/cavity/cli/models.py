"""Models of the command line in torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

from cavity.cli.predictors import RowPredictor
from cavity.fitting.results import Result
from cavity.prediction.blocks import predict_blocks
from cavity.prediction.model import FittedModel, predict_log_proba
from cavity.prediction.novelty import find_novelty
from cavity.prediction.regression import predict_targets, target_noise
from cavity.prediction.uncertainty import Uncertainty, predict_novelty, predict_uncertainty
from cavity.rows.frames import Prepared


class Predictor(RowPredictor):
    """What a model file holds. It predicts without scikit-learn, which loads slowly."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.features, result.classes)
        self.result = result

    def predict_log_proba(self, X: Any) -> Any:
        return self._predict(X, predict_log_proba)[0]

    def predict_targets(self, X: Any) -> tuple[Any, Any]:
        mean, std = self._predict(X, self._predict_targets)
        return mean, std

    def predict_uncertainty(self, X: Any) -> dict[str, Any]:
        return Uncertainty(*self._predict(X, predict_uncertainty))._asdict()

    def predict_novelty(self, X: Any) -> Any:
        return self._predict(X, partial(predict_novelty, novelty=find_novelty(self.result.novelty)))[0]

    def _predict(self, X: Any, predict: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
        return predict_blocks(self.result.model, self.result.features, Prepared(X), predict)

    def _predict_targets(self, model: FittedModel, rows: Any) -> tuple[Any, Any]:
        inside, residual, units = self.result.rows, self.result.predicts_residual, self.result.units
        noise = target_noise(model)
        return predict_targets(model, rows, rows=inside, with_residual=residual, units=units, noise=noise)


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
