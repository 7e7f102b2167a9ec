"""What held-out rows say of a fitted classifier, and of the labels it was fitted to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.types import Floats
from cavity.errors import BadInput
from cavity.estimators.base import GPEstimator
from cavity.fitting.options.value_checks import whole
from cavity.pool.pool import normalised
from cavity.prediction.estimate import Estimate
from cavity.prediction.held_out_rows import HeldOutRows
from cavity.prediction.member_scores import MemberScores
from cavity.prediction.ranked_rows import SuspectLabels, rank
from cavity.prediction.result import Result

if TYPE_CHECKING:  # it loads torch
    from cavity.fitting.options.configuration import ClassifierConfig

NOT_IN_FILES = "A loaded or unpickled model holds no values of single rows."
WHOLE_MODEL = (
    "exists only without a pool (ensemble=None, or a named method): it describes the "
    "Gaussian process, and the pool predicts. held_out_ has the log-probabilities of "
    "the whole model for rows that it did not see, members_ the weights."
)


class JudgedByRows(GPEstimator):
    """Attributes and methods of GPClassifier that held-out rows answer."""

    classes_: NDArray[Any]
    _config: Callable[[], ClassifierConfig]
    _loo_log_proba: Floats | None

    @property
    def estimate_(self) -> Estimate:
        """Log loss and accuracy expected on new rows, estimated from the fit's rows."""
        found = self._judged("estimate_").estimate
        if isinstance(found, Estimate):
            return found

        loo = self._result.loo
        if loo is not None and not len(loo.without_lone_rows().y):
            raise AttributeError(
                "there is no estimate_: each class has a single row, which the other "
                "rows cannot predict. Give more rows."
            )

        raise AttributeError(
            "estimate_ exists after fit(), not after partial_fit() or if classes are "
            "coupled. A file has it if it was read before save(), or comes from "
            "held-out rows."
        )

    @property
    def held_out_(self) -> HeldOutRows:
        """Held-out rows with the log-probabilities of the pool and of its members."""
        found = self._judged("held_out_").held_out
        if found is None:
            raise AttributeError(
                "held_out_ exists after fit(), not after partial_fit(), if classes are "
                f"coupled, or if rows times classes are many millions. {NOT_IN_FILES}"
            )

        return found

    @property
    def members_(self) -> MemberScores:
        """Classifiers of the pool on held-out rows: weight, log loss, gain, seconds."""
        found = self._judged("members_").members
        if found is None:
            raise AttributeError(
                "members_ exists after fit(), not after partial_fit() or if classes "
                "are coupled. Files of older versions lack it."
            )

        return found

    def _judged(self, name: str) -> Result:
        """Return the result, judged by leave-one-out if nothing else has judged it."""
        result = self._find_result(name)
        if result.loo is not None:
            from cavity.fitting.classification import judge_recorded

            result = self._result = judge_recorded(result)
        return result

    @property
    def temperature_(self) -> float:
        """1/w of softmax(w log p): above 1 if the model was too confident."""
        self._find_result("temperature_")
        self._refuse_pool("temperature_")
        return 1 / self._fitted.pool.weight

    @property
    def loo_log_proba_(self) -> Floats:
        """Leave-one-out log-probabilities of the training rows, without a pool."""
        loo = self._result.loo if hasattr(self, "_result") else None
        if hasattr(self, "_result"):
            self._refuse_pool("loo_log_proba_")
        if loo is None or not loo.complete:
            raise AttributeError(
                "loo_log_proba_ exists after fit() on a table in memory, unless the "
                "table is very large or time was up: fit again, without "
                "validation_fraction or with more time."
            )

        if self._loo_log_proba is None:
            log_p = loo.log_proba(self._fitted)
            self._loo_log_proba = normalised(self._fitted.pool.weight * log_p)
        return self._loo_log_proba

    def _refuse_pool(self, name: str) -> None:
        if self._fitted.pool.members:
            raise AttributeError(f"{name} {WHOLE_MODEL}")

    def suspect_labels(self, n: int | None = None, folds: int = 5) -> SuspectLabels:
        """Rank training rows by how improbable their label is to models without them.

        The scores are probabilities of the whole model, so they can be compared with a
        threshold: check all rows below 0.01, or below the share of wrong labels that
        you expect. Rows in `held_out_` are known already. The others are predicted by
        fits with `effort="fast"`, each without a part of the rows; groups and rows with
        equal features stay together. Without a pool, leave-one-out scores all rows.

        Parameters
        ----------
        n : int or None, default=None
            Number of rows to return; None returns all rows. Warns if there are fewer.
        folds : int, default=5
            A fit leaves out one of so many parts of the rows.

        Returns
        -------
        SuspectLabels
            `rows`, row numbers in the table given to `fit`, the most suspect first;
            `scores`, probabilities of their labels; `labels`, and `suggested`, the most
            probable labels. The only case of a class is not ranked, because no model
            can be fitted without it.
        """
        most = None if n is None else whole("n", n, 1)
        parts = whole("folds", folds, 2)
        rows, y, log_p = self._predict_labels_left_out(parts)
        own = log_p[np.arange(len(y)), y]
        known = np.flatnonzero(~np.isnan(own))
        found = rank(known, own[known], most)
        place = found.rows
        return SuspectLabels(
            rows[place],
            np.exp(found.scores),
            self.classes_[y[place]],
            self.classes_[log_p[place].argmax(1)],
        )

    def _predict_labels_left_out(
        self, folds: int
    ) -> tuple[NDArray[Any], NDArray[Any], Floats]:
        """Return row numbers, numbers of classes and log-probabilities without the rows."""
        features = self._features()  # first: raises NotFittedError
        result = self._result
        loo = result.loo
        if loo is not None and loo.complete and not result.model.pool.members:
            return loo.rows, loo.y, self.loo_log_proba_

        rows = result.trained
        if rows is None:
            raise BadInput(
                "suspect_labels needs the rows of fit() in memory, with at most 16 "
                f"million features in all ({features.n} per row). {NOT_IN_FILES} "
                "Fit again, to a part of the rows if there are more."
            )

        from cavity.fitting.suspects import predict_left_out

        table: Any = rows.table
        log_p = np.full((table.n_rows, table.n_classes), np.nan)
        held = result.held_out
        if held is not None and held.of_table:
            place = np.searchsorted(table.numbers, held.rows)
            log_p[place] = held.log_proba
        known = ~np.isnan(log_p[:, 0])
        judging = result.plan.judging
        more = predict_left_out(self._config(), rows, known, judging, folds)
        return table.numbers, table.y, np.where(known[:, None], log_p, more)
