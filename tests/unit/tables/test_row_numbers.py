"""Row numbers: consecutive, or different whole numbers within a small span."""

import numpy as np
import pandas as pd
import pytest

from cavity.tables.columns.row_numbers import ROW_NUMBER, RowNumbers, has_row_numbers


def are_row_numbers(*batches):
    found = RowNumbers()
    for batch in batches:
        found.add(np.asarray(batch, float))
    return found.decide()


def test_numbers_in_order_are_row_numbers_from_any_start():
    assert are_row_numbers(range(5, 30), range(30, 40))
    assert not are_row_numbers([7])


def test_shuffled_numbers_and_those_of_a_sample_are_row_numbers():
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(100)
    assert are_row_numbers(shuffled[:30], shuffled[30:])
    assert are_row_numbers(rng.choice(300, 100, replace=False))


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3, 2, 5],  # one occurs twice
        [0.5, 1.0, 2.0, 3.0],
        [-3, 5, 2, 0, 1],
        [3, 10_000, 77, 512, 4095],  # measurements that happen to differ
    ],
)
def test_other_numbers_are_not(value):
    assert not are_row_numbers(value)


def test_a_frame_needs_the_name_and_the_cells():
    rows = pd.DataFrame({"id": [3, 1, 2, 0], "x": [0.1, 0.2, 0.3, 0.4]})
    assert has_row_numbers(rows)
    assert not has_row_numbers(rows.rename(columns={"id": "rooms"}))
    assert not has_row_numbers(rows[["id"]])
    assert not has_row_numbers(rows.assign(id=[1, 1, 2, 3]))
    assert not has_row_numbers(rows.to_numpy())


def test_usual_names_are_known():
    for name in ("id", "Unnamed: 0", "row_id", "PassengerId", "obs", "No.", "#"):
        assert ROW_NUMBER.fullmatch(name), name
    for name in ("paid", "rows of seats", "price", "width"):
        assert not ROW_NUMBER.fullmatch(name), name
