"""What is learned of columns depends on the rows, not on how a file divides them."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cavity import Preparation
from cavity.tables.columns.blocks import MOST_ROWS, LabelledCells, cut_blocks
from cavity.tables.files.arrow_source import Arrow

N = 1500
rng = np.random.default_rng(0)
PRICES = rng.lognormal(4, 2, N).round(3)
PRICES[5] = 1e12  # an outlier, which is limited to the range of the other cells
TABLE = pa.table(
    {
        "price": PRICES,
        "mass": pa.array(rng.normal(size=N), mask=rng.random(N) < 0.1),
        "kind": pa.array(["p", "q", "r"] * (N // 3)).dictionary_encode(),
        "y": np.array(["a", "b"])[rng.integers(2, size=N)],
    }
)


def row_groups(folder, size):
    pq.write_table(TABLE, folder / "t.parquet", row_group_size=size)
    return folder / "t.parquet"


def files(folder):
    pq.write_table(TABLE.slice(0, 700), folder / "0.parquet")
    pq.write_table(TABLE.slice(700), folder / "1.parquet")
    return folder


def chunks(folder):
    bounds = zip([0, 10, 11, 900], [10, 11, 900, N], strict=True)
    return pa.concat_tables([TABLE.slice(i, j - i) for i, j in bounds])


def dictionaries(folder):
    """Files with other codes of the same categories."""
    for i, part in enumerate([TABLE.slice(0, 2), TABLE.slice(2)]):
        kind = part.column("kind").cast("string").dictionary_encode()
        part = part.set_column(2, "kind", kind)
        pq.write_table(part, folder / f"{i}.parquet")
    return folder


def decimals(folder):
    cells = [Decimal(repr(price)) for price in PRICES.tolist()]
    return TABLE.set_column(0, "price", pa.array(cells, pa.decimal128(20, 3)))


@pytest.mark.parametrize(
    "divide",
    [
        lambda folder: row_groups(folder, 400),
        lambda folder: row_groups(folder, 37),
        files,
        chunks,
        dictionaries,
        decimals,
    ],
    ids=["400", "37", "files", "chunks", "codes", "decimals"],
)
def test_the_same_rows_have_the_same_features_to_the_bit(divide, tmp_path):
    whole = Preparation(target="y").fit(TABLE)
    source = Arrow(divide(tmp_path), "y", learn=True)
    assert source.prepare.columns_ == whole.columns_
    X = np.concatenate([piece.X for piece in source.pieces(100)])
    np.testing.assert_array_equal(X, whole.transform(TABLE))


def test_blocks_have_the_rows_in_order_whatever_the_batches():
    n = 2 * MOST_ROWS + 5
    rows = pa.table({"x": np.arange(n)})
    labels = pa.array(np.arange(n) % 3)
    for bounds in ([0, n], [0, 7, MOST_ROWS, MOST_ROWS, MOST_ROWS + 1, n]):
        batches = [
            LabelledCells(rows.slice(i, j - i), labels.slice(i, j - i))
            for i, j in pairwise(bounds)
        ]
        found = list(cut_blocks(batches))
        assert [part.table.num_rows for part in found] == [MOST_ROWS, MOST_ROWS, 5]
        assert pa.concat_tables([part.table for part in found]).equals(rows)
        assert pa.concat_arrays([part.labels for part in found]).equals(labels)


def test_a_batch_of_other_types_begins_a_block():
    whole = LabelledCells(pa.table({"x": [1, 2]}), None)
    real = LabelledCells(pa.table({"x": [0.5]}), None)
    found = [part.table.column("x").to_pylist() for part in cut_blocks([whole, real])]
    assert found == [[1, 2], [0.5]]
