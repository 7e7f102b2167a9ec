"""A Delta table is read by its log: files of older versions in the same folder do not count."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cavity import BadInput, GPClassifier
from pages import run_section
from support import toy

deltalake = pytest.importorskip(
    "deltalake", reason="deltalake is not installed: make test-cluster runs these tests"
)


@pytest.fixture
def table(tmp_path):
    """Three versions: rows of two sites, more rows, and the rows of one site deleted."""
    X, y = toy(150, 3, seed=2)
    rows = pa.table({"a": X[:, 0], "b": X[:, 1], "site": np.arange(150) % 3, "label": y})
    folder = tmp_path / "delta"
    for part in (rows[:100], rows[100:]):
        deltalake.write_deltalake(folder, part, mode="append", partition_by=["site"])
    deltalake.DeltaTable(folder).delete("site = 1")
    return folder


def test_the_newest_version_of_a_table_is_fitted_and_predicted(table, tmp_path):
    rows = deltalake.DeltaTable(table).to_pyarrow_table().select(["a", "b", "site", "label"])
    assert len(rows) == 100 and len(pq.read_table(table)) == 150
    pq.write_table(rows, tmp_path / "plain.parquet")
    make = lambda: GPClassifier("ep", n_inducing=6, batch_size=None, max_epochs=3, random_state=0)
    found, expected = (make().fit(path, target="label") for path in (table, tmp_path / "plain.parquet"))
    assert list(found.feature_names_in_) == ["a", "b", "site"]
    np.testing.assert_allclose(found.predict_proba(table), expected.predict_proba(rows), rtol=1e-8)


def test_a_damaged_log_is_named(table):
    for file in (table / "_delta_log").glob("*.json"):
        file.write_text("{")
    with pytest.raises(BadInput, match=r"the Delta table .*delta' cannot be read"):
        GPClassifier().fit(table, target="label")


def test_what_is_not_there_is_named(table):
    with pytest.raises(
        BadInput, match="target='kind' is not a column; the columns are 'a', 'b', 'site', 'label'"
    ):
        GPClassifier().fit(table, target="kind")
    with pytest.raises(BadInput, match=r"file or folder '.*none' does not exist"):
        GPClassifier().fit(table.with_name("none"), target="label")


def test_the_page_gives_the_probabilities_of_the_same_rows_in_memory(table):
    names = run_section("clusters.md", "Delta Lake", folder=table)
    rows = deltalake.DeltaTable(table).to_pyarrow_table().select(["a", "b", "site", "label"])
    np.testing.assert_allclose(names["p"], names["clf"].predict_proba(rows), rtol=1e-8)
