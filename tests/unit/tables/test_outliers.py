"""Outliers of a table are those of its columns."""

import warnings

import numpy as np

from cavity.tables.columns.outliers import FAR, limit_column, limit_outliers


def test_a_table_is_limited_as_its_columns_are():
    """Columns: usual, one far cell up or down, nearly constant, constant, all far."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25_000, 7))
    X[:, 3] = 0
    X[:5, 3] = 1e9  # too few cells differ to know what is usual
    X[:, 4] = 2.5
    X[11, 1] = 2 * FAR
    X[12, 2] = -2 * FAR
    X[:, 5] *= 1e200
    X[13, 6] = 1e-300
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = limit_outliers(X, None)
    assert len(caught) == 1
    assert "column 1: 1 cell; column 2: 1 cell" in str(caught[0].message)
    np.testing.assert_array_equal(found, np.column_stack([*map(limit_column, X.T)]))
    assert X[11, 1] == 2 * FAR  # the given rows stay


def test_rows_without_outliers_are_not_copied():
    X = np.random.default_rng(0).normal(size=(300, 3))
    assert limit_outliers(X, None) is X
