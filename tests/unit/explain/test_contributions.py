"""Rows with the cells of other rows: all pairs, equal rows predicted once."""

import numpy as np

from cavity.explain.contributions import replace_cells


def test_every_pair_of_row_and_cell_is_predicted_and_equal_rows_once():
    rng = np.random.default_rng(0)
    rows, cells = (
        rng.integers(0, 2, (30, 4)).astype(float),
        rng.integers(0, 3, (20, 4)).astype(float),
    )
    rows[:, 3] = cells[:, 3] = 5.0  # a constant cannot change a row
    owner = np.array([0, 0, 2, 3])  # column 0 has two features, column 1 none
    weight, asked = rng.normal(size=(4, 2)), []

    def predict(X):
        asked.append(X)
        return np.sin(X @ weight)

    found = {
        j: (values, moved)
        for j, values, moved in replace_cells(rows, owner, 4, cells, predict)
    }
    assert sorted(found) == [0, 2]
    for j, (values, moved) in found.items():
        for n, row in enumerate(rows):
            pairs = np.where(
                owner == j, cells, row
            )  # row n with the cells of every other row
            np.testing.assert_allclose(values[n], np.sin(pairs @ weight), atol=1e-12)
            assert moved[n] == (pairs != row).any()
    distinct = (
        2**3
    )  # of rows; column 0 has at most 9 distinct pairs of cells, column 2 has 3
    assert all(
        len(X) <= most
        for X, most in zip(asked, (distinct, 9 * distinct, 3 * distinct), strict=True)
    )
