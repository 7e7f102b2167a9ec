"""What explains a fit: importance of columns, partial dependence, contributions to the
predictions of single rows.
"""

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
from cavity.explain.raw_rows import RawRows, choose_rows, read_raw_rows
from cavity.fitting.options.value_checks import draw_seed, read_level, whole
from cavity.prediction.result import Result
from cavity.tables.table import GivenRows
from cavity.tables.validation import Features


class Explains:
    """The explanations of an estimator, which says by private methods what it predicts."""

    _result: Result

    _features: Callable[[], Features]  # the columns of the fit; raises NotFittedError
    _average: Callable[[int], Average]  # of a seed
    # features to log p [n C], or to means and standard deviations [n 2]
    _predict_outcome: contributions.Predict
    # predictions, and those with other cells [n B ...], to contributions, [n C] or [n]
    _compare: contributions.Compare
    # the same to the divergence from the mean over other cells, [n]
    _information: contributions.Compare
    _row_losses: Callable[
        [GivenRows], tuple[Floats, Floats, Losses]
    ]  # rows to features, weights, losses

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
        """Estimate which columns matter: by how much the loss increases without the
        cells of one column.

        The loss is the negative log-probability of the label, or the negative log
        density of the target. Give rows that were not used for training. It says what
        the model reads: of two equal columns, both; put such columns into one group.

        Parameters
        ----------
        X, y, sample_weight : array-like
            Rows with the columns of the fit, as for `fit`.
        n_repeats : int
            How often each column is shuffled.
        groups : None or dict of str to columns
            Columns that are shuffled together, by the name of their group, such as
            `{"size": ["width", "height"]}`.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        Importance
            `names`, `importance` and `standard_error`, one entry per column or group;
            `print` shows them sorted.
        """
        features = self._features()
        repeats = whole("n_repeats", n_repeats, 1)
        rows, weight, losses = self._row_losses(GivenRows(X, y, sample_weight))
        seed = draw_seed(random_state)
        return permutation_importance(
            losses, rows, weight, features, repeats, seed, groups
        )

    @property
    def feature_importance_(self) -> Floats:
        """Importance of each column of X in nats: how much a cell of another row in it
        changes the prediction.
        """
        found = None
        if hasattr(self, "_result"):
            found = self._find_importance()
        if found is None:
            raise AttributeError(
                "feature_importance_ exists after fit(), not after partial_fit() or in "
                "files of older versions: "
                "use explain(X, y), which also tells how far to trust it."
            )
        return found

    @property
    def feature_importances_(self) -> Floats:
        """`feature_importance_`, by the name that scikit-learn gives it."""
        return self.feature_importance_

    def _find_importance(self) -> Floats | None:
        """Compute the importance of the columns once, from rows that the fit keeps in
        memory.
        """
        result = self._result
        if result.importance is None and result.background is not None:
            X = result.background
            features = result.features
            cost = result.model.cost
            calls = self._predict_outcome, self._information
            try:
                found = contributions.compute_importance(
                    X, features, *calls, cost, result.relevance
                )
            except (
                CavityError
            ):  # a kernel of the user's own overflows; saving must not fail for it
                return None
            self._result = result._replace(importance=found)
        return self._result.importance

    def partial_dependence(
        self,
        X: TableLike,
        column: str | int,
        *,
        n_values: int = 20,
        n_rows: int = 50,
        level: float = 0.95,
        random_state: Seed = 0,
    ) -> PartialDependence:
        """Compute how predictions depend on one column: the mean over rows in which all
        its cells are set to one value.

        Intervals say how well the model knows this mean, not how much rows differ from
        it. If columns are strongly correlated, some rows will be unlike any real row.

        Parameters
        ----------
        X : array-like of shape (n, D), or a frame
            Rows with the columns of the fit, raw cells as they are.
        column : str or int
            Name or number of a column of the table.
        n_values, n_rows : int
            At most so many values, quantiles of a number or date, the most frequent
            levels of a category; predictions are averaged over a random sample of so
            many rows.
        level : float
            Probability of the intervals.
        random_state : int, RandomState or None
            Random seed of the sample and the draws.

        Returns
        -------
        PartialDependence
            `values` in the user's units, `mean`, `low` and `high`; `print` shows them
            as a table.
        """
        values = whole("n_values", n_values, 1)
        most = whole("n_rows", n_rows, 1)
        level = read_level(level)
        rows = self._read_raw(X)
        classes = getattr(self, "classes_", None)
        j = rows.find(column)
        seed = draw_seed(random_state)
        chosen = choose_rows(len(rows.X), most, seed)
        return compute_partial_dependence(
            rows, j, chosen, values, self._average(seed), classes, level
        )

    def explain_rows(
        self,
        X: TableLike,
        background: TableLike,
        *,
        n_background: int = 50,
        random_state: Seed = 0,
    ) -> contributions.Contributions:
        """Tell what moves the predictions of single rows: for each column, what its
        cell does compared with cells of other rows.

        The contribution of a column to a class is log p(c | x) minus the log of the
        mean of p(c | x') over background rows, where x' is the row with the background
        row's cell in that column; for a regressor, the same of predicted means, without
        logs.

        Parameters
        ----------
        X, background : array-like of shape (n, D), or a frame
            Rows to explain, and rows to compare them with, such as the training rows.
        n_background : int
            A random sample of so many background rows is used.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        Contributions
            `contributions` with the rows' cells in `values`; `print` shows the largest
            for the predicted classes.
        """
        most = whole("n_background", n_background, 1)
        rows = self._read_raw(X)
        others = self._read_raw(background)
        chosen = others.X[choose_rows(len(others.X), most, draw_seed(random_state))]
        classes = getattr(self, "classes_", None)
        calls = self._predict_outcome, self._compare
        return contributions.compute_contributions(rows, chosen, *calls, classes)

    def _read_raw(self, X: Any) -> RawRows:
        return read_raw_rows(X, self._features(), self._result.model)
