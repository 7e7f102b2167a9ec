"""Explanations: importance, partial dependence, contributions to single predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cavity.common.types import Floats
from cavity.errors import CavityError
from cavity.estimators.argument_types import Column, Seed, TableLike
from cavity.explain import contributions
from cavity.explain.partial_dependence import (
    Average,
    PartialDependence,
    compute_partial_dependence,
)
from cavity.explain.permutation_importance import (
    Importance,
    Losses,
    permutation_importance,
)
from cavity.explain.raw_rows import (
    RawRows,
    choose_rows,
    count_affordable,
    read_raw_rows,
)
from cavity.fitting.options.value_checks import draw_seed, read_level, whole
from cavity.prediction.result import Result
from cavity.tables.table import GivenRows
from cavity.tables.validation import Features, Prepared


class Explains:
    """Explanations of an estimator.

    Subclasses define the methods declared below.
    """

    _result: Result

    # columns of the fit; raises NotFittedError
    _features: Callable[[], Features]
    # seed → average over groups of rows
    _average: Callable[[int], Average]
    # features → log p [n C], or means and standard deviations [n 2]
    _predict_outcome: contributions.Predict
    # predictions, predictions with other cells [n B ...] → contributions [n C] or [n]
    _compare: contributions.Compare
    # the same → divergence from the mean over other cells [n]
    _information: contributions.Compare
    # rows → features, weights, losses
    _row_losses: Callable[[GivenRows], tuple[Floats, Floats, Losses]]

    def explain(
        self,
        X: TableLike,
        y: Column,
        sample_weight: Column | None = None,
        *,
        n_repeats: int = 5,
        groups: Mapping[str, str | int | Sequence[str | int]] | None = None,
        random_state: Seed = 0,
    ) -> Importance:
        """Compute permutation importance: the increase in loss if a column is shuffled.

        The loss is the negative log-probability of the label, or the negative log
        density of the target. Give rows that were not used for training.

        Importance measures what the model reads. If two columns are copies, it may read
        both: put correlated columns into one group.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Rows with the columns of the fit.
        y : array-like of shape (n_samples,)
            Labels or targets.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weights of the rows.
        n_repeats : int, default=5
            Number of times each column is shuffled.
        groups : dict of str to columns or None, default=None
            Columns to shuffle together, by the name of their group, such as
            `{"size": ["width", "height"]}`.
        random_state : int, RandomState or None, default=0
            Random seed.

        Returns
        -------
        Importance
            `names`, `importance` and `standard_error`, one entry per column or group;
            `print` shows them sorted.
        """
        features = self._features()
        repeats = whole("n_repeats", n_repeats, 1)
        given = Prepared(self._read_raw(X).X)
        rows, weight, losses = self._row_losses(GivenRows(given, y, sample_weight))
        return permutation_importance(
            losses,
            rows,
            weight,
            features,
            n_repeats=repeats,
            seed=draw_seed(random_state),
            groups=groups,
        )

    @property
    def feature_importance_(self) -> Floats:
        """Importance of each column of X, in nats.

        It measures how much predictions change with cells of other rows in the column.
        """
        found = self._find_importance() if hasattr(self, "_result") else None
        if found is None:
            raise AttributeError(
                "feature_importance_ exists after fit(), not after partial_fit() or in "
                "files of older versions: "
                "use explain(X, y), which also tells how far to trust it."
            )

        return found

    @property
    def feature_importances_(self) -> Floats:
        """Alias of `feature_importance_`, the name in scikit-learn."""
        return self.feature_importance_

    def _find_importance(self) -> Floats | None:
        """Compute the importance once, from rows that the fit keeps in memory."""
        result = self._result
        if result.importance is not None or result.background is None:
            return result.importance

        try:
            found = contributions.compute_importance(
                result.background,
                result.features,
                self._predict_outcome,
                self._information,
                cost=result.model.cost,
                relevance=result.relevance,
            )
        except CavityError:
            # a user's kernel may overflow with other cells: saving must not fail
            return None

        self._result = result._replace(importance=found)
        return found

    def partial_dependence(
        self,
        X: TableLike,
        column: str | int,
        *,
        n_values: int = 20,
        n_rows: int | None = None,
        level: float = 0.95,
        random_state: Seed = 0,
    ) -> PartialDependence:
        """Compute how predictions depend on one column.

        For each value, the column is set to it in all rows, and predictions are
        averaged over the rows. Intervals show how well this average over all rows is
        known, not how much rows vary around it. If columns are strongly correlated,
        some of these rows are unlike any real row.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Rows with the columns of the fit.
        column : str or int
            Name or number of a column.
        n_values : int, default=20
            Maximum number of values: quantiles of numbers and dates, the most frequent
            levels of a category.
        n_rows : int or None, default=None
            Maximum number of rows to average over, a random sample of X. None averages
            over all rows, or as many as about ten seconds allow; `rows` of the result
            is their number.
        level : float, default=0.95
            Probability of the intervals.
        random_state : int, RandomState or None, default=0
            Random seed of the sample and of posterior draws.

        Returns
        -------
        PartialDependence
            `values` in the user's units, `mean`, `low` and `high`; `print` shows them
            as a table.
        """
        most_values = whole("n_values", n_values, 1)
        level = read_level(level)
        rows = self._read_raw(X)
        j = rows.find(column)
        seed = draw_seed(random_state)
        if n_rows is None:
            most_rows = count_affordable(self._predict_outcome, rows.X, most_values)
        else:
            most_rows = whole("n_rows", n_rows, 1)
        return compute_partial_dependence(
            rows,
            j,
            choose_rows(len(rows.X), most_rows, seed),
            self._average(seed),
            n_values=most_values,
            classes=getattr(self, "classes_", None),
            level=level,
        )

    def explain_rows(
        self,
        X: TableLike,
        background: TableLike,
        *,
        n_background: int = 50,
        random_state: Seed = 0,
    ) -> contributions.Contributions:
        """Compute what each column contributes to the predictions of single rows.

        The contribution of a column to class c is the log-odds of p(c | x) minus the
        log-odds of the mean of p(c | x') over background rows, where x' is the row x
        with the background row's cell in that column: +0.69 means twice the odds that a
        typical cell gives. For a regressor it is the predicted mean at x minus the mean
        prediction over x'.

        Parameters
        ----------
        X : array-like or frame of shape (n_samples, n_features)
            Rows to explain.
        background : array-like or frame of shape (n_others, n_features)
            Rows to compare with, such as the training rows.
        n_background : int, default=50
            Maximum number of background rows, a random sample of `background`.
        random_state : int, RandomState or None, default=0
            Random seed.

        Returns
        -------
        Contributions
            `contributions` with the rows' cells in `values`; `print` shows the largest
            ones for the predicted classes.
        """
        most = whole("n_background", n_background, 1)
        rows = self._read_raw(X)
        others = self._read_raw(background).X
        chosen = choose_rows(len(others), most, draw_seed(random_state))
        return contributions.compute_contributions(
            rows,
            others[chosen],
            self._predict_outcome,
            self._compare,
            getattr(self, "classes_", None),
        )

    def _read_raw(self, X: Any) -> RawRows:
        return read_raw_rows(X, self._features(), self._result.model)
