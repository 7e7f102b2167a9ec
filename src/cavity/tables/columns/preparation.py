"""Preparation of tables with mixed columns, as a scikit-learn transformer.

It is learned in one pass and applied to any table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cavity.tables.arrow_tables import Chunk, to_chunk
from cavity.tables.columns.blocks import LabelledCells, cut_blocks
from cavity.tables.columns.encoder import ColumnEncoder, encode_table
from cavity.tables.columns.inspection import Inspection
from cavity.tables.columns.text_columns import to_label_cells


class Preparation(TransformerMixin, BaseEstimator, ColumnEncoder):  # type: ignore[misc]
    """Encode tables with mixed columns as numbers.

    Numbers are standardised, categories are one-hot, dates are split into parts, and
    missing cells are marked. `fit` stores what it learns about each column, so new rows
    are treated like the training rows. `GPClassifier` and `GPRegressor` prepare data
    frames with it; a fitted model has its preparation as `preparation_`.

    Parameters
    ----------
    target : str, optional
        Name of the column of the labels, if the table has one. It is not a feature.
    ignore : sequence of str, optional
        Names of columns to ignore.
    kinds : dict, optional
        Kind of a column, "number", "category" or "ignore", by name. Other columns are
        inspected. The target has classes; "number" makes it a quantity for regression,
        and "auto" decides by its values.
    strict : bool, default=False
        Raise an error instead of guessing the meaning of dates, formatted numbers,
        identifiers, free text, nested cells and missing labels, and of texts in numeric
        columns of new rows.

    Attributes
    ----------
    columns_, inputs : tuple of Number, Category, Text, Date or Unchanged, tuple of str
        The columns to read, with what was learned about each; their names.
    target_, ignored_ : Target or None, tuple of Ignored
        The column of the labels, and the columns that are not used, with the reasons.
    feature_names_in_, n_features_in_ : ndarray, int
        Names and number of the columns of the table, without the target.
    names : tuple of str
        Names of the features, the columns of `transform`.

    Examples
    --------
    >>> from cavity import Preparation
    >>> table = {
    ...     "mass": [3.0, 5.0, None, 4.0],
    ...     "island": ["Dream", "Biscoe", "Dream", "Dream"],
    ...     "y": [0, 1, 0, 1],
    ... }
    >>> prepare = Preparation(target="y").fit(table)
    >>> prepare.names
    ('mass', 'mass missing', 'island=Biscoe', 'island=Dream')
    >>> prepare.transform(table)[:2].round(2)
    array([[-1.22,  0.  ,  0.  ,  1.  ],
           [ 1.22,  0.  ,  1.  ,  0.  ]])
    >>> prepare.labels(table)
    array([0, 1, 0, 1])
    """

    def __init__(
        self,
        target: str | None = None,
        *,
        ignore: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(target, strict=strict)
        self.ignore = ignore
        self.kinds = kinds

    def fit(self, X: Any, y: Any = None) -> Preparation:
        """Learn the preparation of a table.

        Parameters
        ----------
        X : data frame, pyarrow table, record batch, dict of columns, or array
            The rows. The columns of an array have the names x0, x1, ...
        y : array-like of shape (n,), optional
            Labels or targets. They decide whether columns of many different texts are
            used; nothing else depends on them.

        Returns
        -------
        self : Preparation
            The fitted preparation.
        """
        return self.fit_batches([(X, y)])

    def fit_batches(self, batches: Iterable[Any]) -> Preparation:
        """Learn the preparation in one pass over the consecutive parts of a table.

        Parameters
        ----------
        batches : iterable of tables, or of pairs (X, y)
            Consecutive rows, in any form that `fit` takes. All must have the same
            columns.

        Returns
        -------
        self : Preparation
            The fitted preparation.
        """
        inspection = Inspection(self.target, self.ignore, self.kinds or {}, self.strict)
        for block in cut_blocks(map(_read_batch, batches)):
            inspection.add(block.table, block.labels)

        columns, target, ignored = inspection.decide()
        names = [name for name in inspection.names or () if name != self.target]
        return self._store(columns, target, ignored, names)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features.

        Parameters
        ----------
        input_features : ignored
            As in scikit-learn.

        Returns
        -------
        ndarray of str
            The columns of `transform`.
        """
        check_is_fitted(self, "columns_")
        return np.array(self.names, dtype=object)

    def transform(self, X: Any, notes: Counter[str] | None = None) -> Any:
        """Encode rows as numbers.

        Parameters
        ----------
        X : data frame, pyarrow table, record batch, dict of columns, or array
            The rows. Columns may come in any order, and columns that the training rows
            did not have are ignored. An array must have the columns of the training
            rows, in the same order.
        notes : collections.Counter, optional
            Counts cells that differ from the training rows (new categories, unexpected
            missing cells), by message.

        Returns
        -------
        ndarray of shape (n, len(names))
            The features; a frame if `set_output` asks for one.
        """
        check_is_fitted(self, "columns_")
        if notes is None:
            notes = Counter()
        return encode_table(self, self._to_chunk(X), notes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def _read_batch(batch: Any) -> LabelledCells:
    """Read a table, or a pair of a table and its labels."""
    if isinstance(batch, tuple) and not isinstance(batch, Chunk):
        X, y = batch
    else:
        X = batch
        y = None

    table = to_chunk(X).table
    return LabelledCells(table, to_label_cells(y, table.num_rows))
