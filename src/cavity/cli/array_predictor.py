"""Predictions of a few rows in NumPy: torch takes longer to load than they take. All else is left to `models`."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.cli.predictors import Extras, RowPredictor
from cavity.prediction.latent import log_probit_probabilities
from cavity.prediction.novelty import find_novelty
from cavity.saving.array_reader import ArrayRecord, read_array_record

MOST_WORK = 50_000  # about a second; with more, torch is faster although it loads slowly
LEAST_ROWS = 10  # that a piece of a table counts as


class ArrayPredictor(RowPredictor):
    """A model in NumPy. Many rows and missing cells are left to torch."""

    def __init__(self, path: str | Path, record: ArrayRecord) -> None:
        self._set(record.features, record.classes)
        self.path, self.record, self.work = path, record, 0.0
        C, M = record.model.mean.shape
        # time and memory that a row takes, in units of about 0.02 ms: the quadrature's, and the projection's
        self.work_per_row = 16.0 + C + 0.01 * C * M

    @cached_property
    def full(self) -> RowPredictor:
        """The same model in torch."""
        from cavity.cli.models import Predictor

        return Predictor.restore(self.record.stored.as_tensors(), self.path)

    def _suits(self, X: NDArray[np.float64]) -> bool:
        """Return whether to predict these rows in NumPy, after those before them."""
        self.work += max(len(X), LEAST_ROWS) * self.work_per_row
        return self.work <= MOST_WORK and len(X) > 0 and bool(np.isfinite(X).all())

    def predict_log_proba(self, X: Any) -> Any:
        found = None
        if self._suits(X):
            mean, var = self.record.model.marginals(X)
            found = log_probit_probabilities(mean, var)
        return self.full.predict_log_proba(X) if found is None else self.record.pool.combine(found, X, var)

    def predict_targets(self, X: Any) -> tuple[Any, Any]:
        if not self._suits(X):
            return self.full.predict_targets(X)
        mean, var = self.record.model.marginals(X)
        if not (np.isfinite(mean).all() and np.isfinite(var).all()):
            return self.full.predict_targets(X)
        shift, scale = self.record.units
        return shift + scale * mean[:, 0], scale * np.sqrt(var[:, 0] + self.record.noise)

    def predict_uncertainty(self, X: Any) -> dict[str, Any]:
        return self.full.predict_uncertainty(X)

    def predict_novelty(self, X: Any) -> Any:
        novelty = find_novelty(self.record.novelty)
        if not self._suits(X):
            return self.full.predict_novelty(X)
        return novelty.at(self.record.model.marginals(X)[1])


def open_predictor(path: str | Path, device: str | None, extras: Extras) -> RowPredictor:
    """Read a classifier or a regressor: in NumPy if its kind allows it, and neither a device nor entropies are asked for."""
    record = None if device is not None or extras.uncertainty else read_array_record(path)
    if record is not None:
        return ArrayPredictor(path, record)
    from cavity.cli.models import Predictor

    return Predictor.read(path, device)
