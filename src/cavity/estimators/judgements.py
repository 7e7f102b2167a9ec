"""Rows to label, draws, uncertainty, and explanations of a fitted classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cavity.common.namespaces import NUMPY
from cavity.common.types import Floats
from cavity.estimators.argument_types import TableLike
from cavity.estimators.held_out import JudgedByRows
from cavity.estimators.latent import LatentFunctions
from cavity.explain.contributions import compute_log_odds
from cavity.explain.partial_dependence import Average, Averages, thin
from cavity.explain.permutation_importance import Losses
from cavity.fitting.options.value_checks import whole
from cavity.prediction import uncertainty
from cavity.prediction.ranked_rows import RankedRows, rank
from cavity.tables.arrow_tables import to_host
from cavity.tables.validation import Prepared

if TYPE_CHECKING:  # they load torch
    from cavity.tables.table import GivenRows

N_DRAWS = 50  # draws of the latent functions for intervals of partial dependence
MOST_DRAWN = 50  # rows of a joint draw


class Origin(JudgedByRows, LatentFunctions):
    """Methods of GPClassifier that judge the model and rows."""

    predict_proba: Callable[[TableLike], Floats]
    predict_log_proba: Callable[[TableLike], Floats]

    def predict_uncertainty(self, X: TableLike) -> uncertainty.Uncertainty:
        """Split the entropy of each prediction into aleatoric and epistemic parts.

        Aleatoric entropy would remain if the latent functions were known. Epistemic
        entropy is the mutual information of the label and the latent functions (BALD):
        labels of similar rows would reduce it. Both are computed for the Gaussian
        process and scaled to add up to `total`, the entropy of `predict_proba`.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict, as for `predict`.

        Returns
        -------
        Uncertainty
            Arrays `total`, `aleatoric` and `epistemic` of shape (n_samples,), in nats.
        """
        parts = self._predict(X, uncertainty.predict_uncertainty)
        return uncertainty.Uncertainty(*parts)

    def rank_for_labeling(self, X: TableLike, n: int | None = None) -> RankedRows:
        """Rank unlabelled rows by epistemic uncertainty, to choose what to label next.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Candidate rows, as for `predict`.
        n : int or None, default=None
            Number of rows to return; None returns all rows. Warns if there are fewer.

        Returns
        -------
        RankedRows
            `rows`, row numbers in X, the most informative first, and `scores`, their
            epistemic uncertainty in nats. It can be used as an index: `X[ranked]`.
        """
        most = None if n is None else whole("n", n, 1)
        epistemic = self.predict_uncertainty(to_host(X)).epistemic
        return rank(np.arange(len(epistemic)), epistemic, most, descending=True)

    def _row_losses(self, raw: GivenRows) -> tuple[Floats, Floats, Losses]:
        from cavity.tables.labelled import read_table_of_fit

        table = read_table_of_fit(raw, None, self._features(), self.classes_)
        own = np.arange(len(table.y)), table.y

        def losses(X: Floats) -> Floats:
            return -self.predict_log_proba(Prepared(X))[own]

        return table.X, table.weight, losses

    def _predict_outcome(self, X: Floats) -> Floats:
        return self.predict_log_proba(Prepared(X))

    def _compare(self, own: Floats, others: Floats) -> Floats:
        return compute_log_odds(own) - compute_log_odds(_average_log(others))

    def _information(self, own: Floats, others: Floats) -> Floats:
        return np.asarray((np.exp(own) * (own - _average_log(others))).sum(1))

    def _average(self, seed: int) -> Average:
        def average(groups: list[Floats]) -> Averages:
            from cavity.prediction.draws import draw_log_proba

            P = [self.predict_proba(Prepared(rows)) for rows in groups]
            mean = np.array([p.mean(0) for p in P])
            between = np.array([p.std(0) for p in P])
            fewer = [thin(rows, MOST_DRAWN) for rows in groups]
            draws = draw_log_proba(self._fitted, fewer, N_DRAWS, seed)
            spread = [np.exp(log_p).mean(1).std(0, ddof=1) for log_p in draws]
            return Averages(mean, np.array(spread), between)

        return average


def _average_log(log_p: Floats) -> Floats:
    """Return the log of the mean probabilities over the rows b of [n B C]."""
    return np.asarray(NUMPY.logsumexp(log_p, 1) - np.log(log_p.shape[1]))
