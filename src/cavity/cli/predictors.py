"""What all models of the command line share: the preparation of columns, and the columns of the output."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.scoring import NORMAL_95
from cavity.errors import BadInput, BadOption
from cavity.rows.columns.encoder import ColumnEncoder
from cavity.rows.files.table_files import TableFile
from cavity.rows.validation import Features
from cavity.saving.json_checks import format_label


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

    def _set(self, features: Features, classes: NDArray[Any] | None) -> None:
        """Store the columns, with a preparation where they have names."""
        self.features, self.classes, self.prepare = features, classes, features.preparation
        if self.prepare is None and features.names is not None:
            self.prepare = ColumnEncoder.identity([str(name) for name in features.names])

    @property
    def target(self) -> str | None:
        return None if self.prepare is None or self.prepare.target_ is None else self.prepare.target_.name

    def choose_preparation(self, file: TableFile, target: str | None) -> ColumnEncoder:
        """Return the preparation for a file. If the model has no column names, the order of the columns counts."""
        if self.prepare is not None:
            self.prepare.check(file.names)
            return self.prepare
        names = [name for name in file.names if name != target]
        if len(names) != self.features.n:
            raise BadInput(
                f"{file.path} has {len(names)} columns, but the model was trained with {self.features.n} "
                "columns without names: give the same columns in the same order."
            )
        return ColumnEncoder.identity(names)

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
        columns = {"label": self.classes[P.argmax(1)]} | {
            f"p_{format_label(c)}": P[:, i] for i, c in enumerate(self.classes)
        }
        return columns | self.predict_uncertainty(X) if uncertainty else columns

    def predict_log_proba(self, X: Any) -> Any:
        """Return logarithms of the class probabilities of prepared rows, [n C]."""
        raise NotImplementedError

    def predict_targets(self, X: Any) -> tuple[Any, Any]:
        """Return mean and standard deviation of new values at prepared rows, each [n]."""
        raise NotImplementedError

    def predict_uncertainty(self, X: Any) -> dict[str, Any]:
        """Return the entropies of prepared rows by name, each [n]."""
        raise NotImplementedError

    def predict_novelty(self, X: Any) -> Any:
        """Return how unlike the training rows each prepared row is, [n]."""
        raise NotImplementedError
