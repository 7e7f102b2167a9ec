"""A random sample of the rows of a long file."""

import numpy as np
import pyarrow as pa

from cavity.cli.model_rows import Reservoir


def fill(most, n, size):
    found = Reservoir(most)
    for start in range(0, n, size):
        rows = np.arange(start, min(start + size, n))
        found.add(rows, pa.table({"row": rows}))
    return found


def test_a_short_file_is_kept_whole():
    numbers, table = fill(50, 30, 7).columns
    assert numbers.tolist() == table["row"].to_pylist() == list(range(30))


def test_a_sample_is_in_file_order_and_its_columns_belong_together():
    found = fill(100, 5000, 130)
    numbers, table = found.columns
    assert found.total == 5000 and len(numbers) == 100
    assert (np.diff(numbers) > 0).all()
    assert numbers.tolist() == table["row"].to_pylist()


def test_every_row_has_the_same_chance():
    """The mean row number of a uniform sample, within four standard errors."""
    numbers, _ = fill(400, 20_000, 333).columns
    assert abs(numbers.mean() - 10_000) < 4 * 20_000 / np.sqrt(12 * 400)
