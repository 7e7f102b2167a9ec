"""Any table of Arrow is a table: one of pyarrow, a dataset, a reader, or an object with
`__arrow_c_stream__`.
"""

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cavity import BadInput, GPClassifier, GPRegressor
from support import toy

X, y = toy(60, 3, seed=1)
COLUMNS = {"a": X[:, 0], "b": X[:, 1], "shade": np.where(X[:, 0] > 0, "light", "dark")}
KINDS = np.array(list("pqr"))[y]
TABLE = pa.table(COLUMNS | {"label": KINDS})


class Stream:
    """As relations of DuckDB give their rows: each call gives all of them."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.to_reader(max_chunksize=25).__arrow_c_stream__(
            requested_schema
        )


CONTAINERS = {
    "table": lambda table, folder: table,
    "batch": lambda table, folder: table.combine_chunks().to_batches()[0],
    "reader": lambda table, folder: table.to_reader(max_chunksize=25),
    "stream": lambda table, folder: Stream(table),
    "dataset in memory": lambda table, folder: ds.dataset(table),
    "dataset": lambda table, folder: ds.dataset(folder),
    "filtered dataset": lambda table, folder: ds.dataset(folder).filter(
        ds.field("a") > -1e9
    ),
}


OPTIONS = {"n_inducing": 6, "batch_size": None, "max_epochs": 2, "random_state": 0}


def fit_classes(rows, *labels, **names):
    return GPClassifier("sep", **OPTIONS).fit(rows, *labels, **names)


def fit_targets(rows, **names):
    return GPRegressor("vi", **OPTIONS).fit(rows, **names)


@pytest.fixture(params=CONTAINERS)
def wrap(request, tmp_path):
    pq.write_table(TABLE, tmp_path / "rows.parquet", row_group_size=25)
    return lambda table=TABLE: CONTAINERS[request.param](table, tmp_path)


@pytest.fixture(scope="module")
def expected():
    return fit_classes(TABLE, target="label").predict_proba(TABLE)


@pytest.fixture(scope="module")
def expected_with_labels():
    rows = pa.table(COLUMNS)
    return fit_classes(rows, KINDS).predict_proba(rows)


def test_it_is_fitted_and_predicted(wrap, expected):
    model = fit_classes(wrap(), target="label")
    np.testing.assert_allclose(model.predict_proba(wrap()), expected, rtol=1e-8)
    assert model.score(wrap(), target="label") == np.mean(model.predict(TABLE) == KINDS)
    numbers = fit_targets(wrap(), target="a")
    np.testing.assert_allclose(
        numbers.predict(wrap()), numbers.predict(TABLE), rtol=1e-8
    )


@pytest.mark.parametrize("kind", ["table", "batch", "reader", "stream"])
def test_a_table_in_memory_takes_labels_of_its_own(kind, expected_with_labels):
    rows = pa.table(COLUMNS)
    wrap = lambda: CONTAINERS[kind](rows, None)
    model = fit_classes(wrap(), KINDS)
    np.testing.assert_array_equal(model.predict_proba(wrap()), expected_with_labels)
    assert model.score(wrap(), KINDS) > 0.3


def test_a_stream_of_something_else_is_not_a_table():
    with pytest.raises(BadInput, match="table"):
        fit_classes(pa.chunked_array([[1.0, 2.0]]), [0, 1])


@pytest.mark.parametrize("sign", ["_delta_log/0.json", "metadata/v1.metadata.json"])
def test_a_folder_that_also_has_deleted_rows_is_refused(tmp_path, sign):
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    (tmp_path / sign).parent.mkdir()
    (tmp_path / sign).write_text("{}")
    with pytest.raises(BadInput, match="deleted"):
        fit_classes(tmp_path, target="label")
