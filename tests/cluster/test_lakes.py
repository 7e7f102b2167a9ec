"""Tables of Delta Lake and Iceberg are read through the Arrow data that their libraries
give, without rows that were deleted.
"""

import numpy as np
import pyarrow as pa
import pytest

from cavity import BadInput, GPClassifier
from pages import run_section
from support import toy

X, y = toy(150, 3, seed=2)
ROWS = pa.table(
    {
        "a": X[:, 0],
        "b": X[:, 1],
        "site": np.arange(150) % 3,
        "label": np.array(list("xyz"))[y],
    }
)
LEFT = ROWS.filter(pa.compute.not_equal(ROWS["site"], 1))
MISSING = "{} is not installed: make test-cluster runs this test"


def make():
    return GPClassifier(
        "ep", n_inducing=6, batch_size=None, max_epochs=3, random_state=0
    )


def check_section(name, folder, rows):
    """The page's classifier is that of the rows that are left; the folder itself, which
    has others, is refused.
    """
    rows = rows.select(ROWS.column_names)
    assert rows.sort_by("a").to_pydict() == LEFT.sort_by("a").to_pydict()
    clf = run_section("clusters.md", name, clf=make(), folder=folder)["clf"]
    expected = make().fit(rows, target="label")
    np.testing.assert_allclose(
        clf.predict_proba(ROWS), expected.predict_proba(ROWS), rtol=1e-8
    )
    with pytest.raises(BadInput, match="deleted"):
        make().fit(folder, target="label")


def test_the_newest_version_of_a_delta_table(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason=MISSING.format("deltalake"))
    for part in (ROWS[:100], ROWS[100:]):
        deltalake.write_deltalake(
            tmp_path / "rows", part, mode="append", partition_by=["site"]
        )
    table = deltalake.DeltaTable(tmp_path / "rows")
    table.delete("site = 1")
    check_section("Delta Lake", tmp_path / "rows", table.to_pyarrow_table())


def test_the_newest_snapshot_of_an_iceberg_table(tmp_path, monkeypatch):
    catalogs = pytest.importorskip(
        "pyiceberg.catalog", reason=MISSING.format("pyiceberg")
    )
    from pyiceberg.utils.config import Config

    monkeypatch.setenv(
        "PYICEBERG_CATALOG__LOCAL__URI", f"sqlite:///{tmp_path / 'catalog.db'}"
    )
    monkeypatch.setenv(
        "PYICEBERG_CATALOG__LOCAL__WAREHOUSE", (tmp_path / "warehouse").as_uri()
    )
    monkeypatch.setattr(
        catalogs, "_ENV_CONFIG", Config()
    )  # pyiceberg reads them when it is imported
    catalog = catalogs.load_catalog("local")
    catalog.create_namespace("tables")
    table = catalog.create_table("tables.rows", schema=ROWS.schema)
    table.append(ROWS)
    table.delete("site == 1")
    check_section(
        "Iceberg", table.location().removeprefix("file://"), table.scan().to_arrow()
    )
