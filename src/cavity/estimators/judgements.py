"""What a fitted classifier tells of itself and of rows: its quality, suspect labels,
rows to label, draws, uncertainty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.namespaces import NUMPY
from cavity.common.types import Floats
from cavity.estimators.argument_types import Seed, TableLike
from cavity.estimators.base import GPEstimator
from cavity.explain.partial_dependence import Average
from cavity.explain.permutation_importance import Losses
from cavity.fitting.options.value_checks import draw_seed, whole
from cavity.pool.pool import normalised
from cavity.prediction import uncertainty
from cavity.prediction.estimate import Estimate
from cavity.prediction.predict import predict_moments
from cavity.prediction.ranked_rows import RankedRows, rank
from cavity.tables.arrow_tables import to_host
from cavity.tables.validation import Prepared

if TYPE_CHECKING:  # they load torch
    from cavity.tables.table import GivenRows

N_DRAWS = 50  # of the latent functions, for the intervals of partial dependence


class Judges(GPEstimator):
    """The part of GPClassifier that judges models and rows."""

    classes_: NDArray[Any]
    predict_proba: Callable[[TableLike], Floats]
    predict_log_proba: Callable[[TableLike], Floats]
    _loo_log_proba: Floats | None

    @property
    def estimate_(self) -> Estimate:
        """How good the model is on new rows, estimated from the rows of the fit."""
        result = self._result if hasattr(self, "_result") else None
        if result is not None and isinstance(result.estimate, Estimate):
            return result.estimate
        if result is None or result.loo is None or result.class_prior is None:
            raise AttributeError(
                "estimate_ exists after fit(), not after partial_fit() or where "
                "classes are coupled; a file has it if it was "
                "read before save(), or comes from held-out rows."
            )
        loo = result.loo.without_lone_rows().sample()
        if not len(loo.y):
            raise AttributeError(
                "there is no estimate_: each class has a single row, which nothing "
                "else speaks for. Give more rows."
            )
        log_p = self._temper(loo.log_proba(self._fitted))
        found: Estimate = loo.estimate(
            self._fitted, log_p, result.class_prior, "leave-one-out"
        )
        self._result = result._replace(estimate=found)
        return found

    def _temper(self, log_p: Floats) -> Floats:
        return normalised(self._fitted.pool.weight * log_p)

    @property
    def loo_log_proba_(self) -> Floats:
        """Leave-one-out log-probabilities of the training rows."""
        loo = None
        if hasattr(self, "_result"):
            loo = self._result.loo
        if loo is None or not loo.complete:
            raise AttributeError(
                "loo_log_proba_ exists after fit() of a table in memory, unless it is "
                "very large or time was up: "
                "fit again, without validation_fraction or with more time."
            )
        if self._loo_log_proba is None:
            self._loo_log_proba = self._temper(loo.log_proba(self._fitted))
        return self._loo_log_proba

    def suspect_labels(self, n: int | None = None) -> RankedRows:
        """Rank training rows by how unlikely their own label is given all other rows.

        Look at all rows below 0.01, or below your own guess of the share of wrong
        labels.

        Parameters
        ----------
        n : int or None
            Return only the first n. With fewer rows it returns all of them and warns.

        Returns
        -------
        RankedRows
            `rows`, row numbers of the table given to `fit`, the most suspect first, and
            `scores`, the leave-one-out probability of each of these labels.
        """
        most = None
        if n is not None:
            most = whole("n", n, 1)
        log_p = self.loo_log_proba_
        loo = self._result.loo
        assert loo is not None
        own = log_p[np.arange(len(loo.y)), loo.y]
        found = rank(loo.rows, own, most)
        return RankedRows(found.rows, np.exp(found.scores))

    def predict_latent(self, X: TableLike) -> tuple[Floats, Floats]:
        """Predict the latent values, noise included.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `predict`.

        Returns
        -------
        mean, variance : ndarray of shape (n, C)
            (n, 1) for two classes.
        """
        return self._predict(X, predict_moments)

    latent_mean_and_variance = (
        predict_latent  # as scikit-learn's GaussianProcessClassifier calls it
    )

    def sample_latent(
        self, X: TableLike, n: int = 1, *, random_state: Seed = 0
    ) -> Floats:
        """Draw the latent functions at rows X from their posterior, all rows of a draw
        jointly.

        Draws are those of the Gaussian process, without noise, temperature and pool.
        n_rows rows take O(n_rows³).

        Parameters
        ----------
        X : array-like of shape (n_rows, D)
            Rows with the features of the fit.
        n : int
            Number of draws.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        ndarray of shape (n, n_rows, C)
            (n, n_rows, 1) for two classes.
        """
        from cavity.prediction.draws import Normals, draw_latent

        draws = whole("n", n, 1)
        normals = Normals(self._fitted, draw_seed(random_state))
        (f,) = draw_latent(self._fitted, [self._read_raw(X).X], draws, normals)
        return np.asarray(f.cpu().numpy())

    def predict_uncertainty(self, X: TableLike) -> uncertainty.Uncertainty:
        """Split the entropy of each row's label into an aleatoric and an epistemic
        part.

        Aleatoric entropy would remain if the latent functions were known; epistemic
        entropy is the mutual information of label and latent functions (BALD): what
        labels nearby could teach. They are those of the Gaussian process, scaled to add
        up to `total`, the entropy of `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n, D), or a source
            As for `predict`.

        Returns
        -------
        Uncertainty
            Arrays `total`, `aleatoric` and `epistemic` of shape (n,), in nats.
        """
        return uncertainty.Uncertainty(
            *self._predict(X, uncertainty.predict_uncertainty)
        )

    def rank_for_labeling(self, X: TableLike, n: int | None = None) -> RankedRows:
        """Rank rows by how much their labels would teach the model: by epistemic
        uncertainty.

        Parameters
        ----------
        X : array-like of shape (n_rows, D), or a source
            As for `predict`.
        n : int or None
            Return only the best n. With fewer rows it returns all of them and warns.

        Returns
        -------
        RankedRows
            `rows`, row numbers, the most informative first, and `scores`, their
            epistemic uncertainty in nats.
        """
        most = None
        if n is not None:
            most = whole("n", n, 1)
        epistemic = self.predict_uncertainty(to_host(X)).epistemic
        return rank(np.arange(len(epistemic)), epistemic, most, descending=True)

    def _row_losses(self, raw: GivenRows) -> tuple[Floats, Floats, Losses]:
        from cavity.tables.labelled import read_table_of_fit

        table = read_table_of_fit(raw, None, self._features(), self.classes_)
        own = np.arange(len(table.y)), table.y
        return (
            table.X,
            table.weight,
            lambda X: -self.predict_log_proba(Prepared(X))[own],
        )

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
            return np.array(mean), np.array(
                [np.exp(log_p).mean(1).std(0, ddof=1) for log_p in draws]
            )

        return average
