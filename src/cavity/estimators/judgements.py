"""Rows to label, draws, uncertainty, and explanations of a fitted classifier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cavity.common.namespaces import NUMPY
from cavity.common.types import Floats
from cavity.estimators.argument_types import Seed, TableLike
from cavity.estimators.held_out import JudgedByRows
from cavity.explain.partial_dependence import Average
from cavity.explain.permutation_importance import Losses
from cavity.fitting.options.value_checks import draw_seed, whole
from cavity.prediction import uncertainty
from cavity.prediction.predict import predict_moments
from cavity.prediction.ranked_rows import RankedRows, rank
from cavity.tables.arrow_tables import to_host
from cavity.tables.validation import Prepared

if TYPE_CHECKING:  # they load torch
    from cavity.tables.table import GivenRows

N_DRAWS = 50  # draws of the latent functions for intervals of partial dependence


class Origin(JudgedByRows):
    """Methods of GPClassifier that judge the model and rows."""

    predict_proba: Callable[[TableLike], Floats]
    predict_log_proba: Callable[[TableLike], Floats]

    def predict_latent(self, X: TableLike) -> tuple[Floats, Floats]:
        """Predict mean and variance of the latent functions, noise included.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features), or a source
            Rows to predict, as for `predict`.

        Returns
        -------
        mean : ndarray of shape (n_samples, n_classes)
            Posterior means; shape (n_samples, 1) for two classes.
        variance : ndarray of shape (n_samples, n_classes)
            Posterior variances, of the same shape.
        """
        return self._predict(X, predict_moments)

    # the name in scikit-learn's GaussianProcessClassifier
    latent_mean_and_variance = predict_latent

    def sample_latent(
        self, X: TableLike, n: int = 1, *, random_state: Seed = 0
    ) -> Floats:
        """Draw samples of the latent functions, jointly at all rows.

        The draws describe the Gaussian process, without noise, temperature and pool.
        The cost is O(n_rows³).

        Parameters
        ----------
        X : array-like or frame of shape (n_rows, n_features)
            Rows at which the functions are drawn.
        n : int, default=1
            Number of draws.
        random_state : int, RandomState or None, default=0
            Random seed.

        Returns
        -------
        ndarray of shape (n, n_rows, n_classes)
            Draws; shape (n, n_rows, 1) for two classes.
        """
        from cavity.prediction.draws import Normals, draw_latent

        draws = whole("n", n, 1)
        normals = Normals(self._fitted, draw_seed(random_state))
        (f,) = draw_latent(self._fitted, [self._read_raw(X).X], draws, normals)
        return np.asarray(f.cpu().numpy())

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
        return np.asarray(own - NUMPY.logsumexp(others, 1) + np.log(others.shape[1]))

    def _information(self, own: Floats, others: Floats) -> Floats:
        return np.asarray((np.exp(own) * self._compare(own, others)).sum(1))

    def _average(self, seed: int) -> Average:
        def average(groups: list[Floats]) -> tuple[Floats, Floats]:
            from cavity.prediction.draws import draw_log_proba

            mean = [self.predict_proba(Prepared(rows)).mean(0) for rows in groups]
            draws = draw_log_proba(self._fitted, groups, N_DRAWS, seed)
            spread = [np.exp(log_p).mean(1).std(0, ddof=1) for log_p in draws]
            return np.array(mean), np.array(spread)

        return average
