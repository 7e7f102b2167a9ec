"""Cells so extreme that they would dominate the spread of their column."""

import warnings

import numpy as np
import pytest

from cavity.errors import BadInput
from cavity.tables.columns.outliers import (
    FAR,
    LEAST_CELLS,
    limit_column,
    limit_outliers,
)

USUAL = np.arange(21.0)  # the median is 10, the usual distance about 5


def test_a_column_without_outliers_is_the_same_object():
    for column in (USUAL, np.zeros(0), np.append(USUAL, 10 + 5 * FAR)):
        assert limit_column(column) is column


def test_outliers_are_limited_to_the_range_of_the_other_cells():
    column = np.r_[USUAL, 1e9, -1e300]
    assert limit_column(column).tolist() == [*USUAL, 20.0, 0.0]


def test_few_cells_that_differ_do_not_say_what_is_usual():
    """One code beside zeros is a value, not an outlier."""
    column = np.r_[np.zeros(50), np.ones(LEAST_CELLS - 2), 1e12]
    assert limit_column(column) is column


def test_one_warning_names_the_columns_and_the_given_rows_stay():
    X = np.column_stack([USUAL, USUAL])
    X[3, 1] = 1e12
    given = X.copy()
    with pytest.warns(UserWarning, match=r"column 'b': 1 cell") as caught:
        found = limit_outliers(X, ["a", "b"])
    assert len(caught) == 1
    np.testing.assert_array_equal(X, given)
    assert found[3, 1] == 20.0


def test_a_column_without_a_finite_range_is_refused():
    wide = np.array([-1.7e308, 1.7e308] * 11)[:, None]
    with pytest.raises(BadInput, match="column 0"):
        limit_outliers(wide, None)


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
