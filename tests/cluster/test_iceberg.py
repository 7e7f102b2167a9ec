"""An Iceberg table is read by its newest snapshot: without deleted rows, with the newest names, file by file."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from cavity import BadInput, GPClassifier, load
from cavity.cli.app import app
from cavity.rows.files.arrow_source import open_dataset
from cavity.rows.files.fragments import Fragments
from pages import run_section
from support import toy

catalogs = pytest.importorskip(
    "pyiceberg.catalog", reason="pyiceberg is not installed: make test-cluster runs these tests"
)
from pyiceberg import manifest  # noqa: E402
from pyiceberg.table import StaticTable  # noqa: E402
from pyiceberg.transforms import IdentityTransform  # noqa: E402
from pyiceberg.types import DoubleType, LongType  # noqa: E402
from pyiceberg.utils.config import Config  # noqa: E402

DELETED = {
    "file_path": b"2147483546",
    "pos": b"2147483545",
}  # columns of a file of deleted rows, and their numbers
X, y = toy(150, 3, seed=2)
ROWS = pa.table({"a": X[:, 0], "b": X[:, 1], "site": np.arange(150) % 3, "label": np.array(list("xyz"))[y]})


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """A catalog of SQLite, configured as a user would: by variables of the environment."""
    place = f"PYICEBERG_CATALOG__{(name := 'local').upper()}__"
    monkeypatch.setenv(f"{place}URI", f"sqlite:///{tmp_path / 'catalog.db'}")
    monkeypatch.setenv(f"{place}WAREHOUSE", (tmp_path / "warehouse").as_uri())
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())  # pyiceberg reads them when it is imported
    found = catalogs.load_catalog(name)
    found.create_namespace("tables")
    return found


@pytest.fixture
def table(catalog):
    """Rows appended twice and partitioned by site, then the rows of a site deleted."""
    made = catalog.create_table("tables.rows", schema=ROWS.schema)
    with made.update_spec() as update:
        update.add_field("site", IdentityTransform())
    for part in (ROWS[:100], ROWS[100:]):
        made.append(part)
    made.delete("site == 1")
    return made


class Deletes(manifest.ManifestWriterV2):
    """Writes a manifest of files with deleted rows; pyiceberg reads such files, and does not write them."""

    def content(self):
        return manifest.ManifestContent.DELETES

    @property
    def _meta(self):
        return super()._meta | {"content": "deletes"}


def delete_on_read(table, path, positions):
    """Add a file that says which rows of a data file are deleted."""
    types = {"file_path": pa.string(), "pos": pa.int64()}
    fields = [pa.field(n, t, False, {"PARQUET:field_id": DELETED[n]}) for n, t in types.items()]
    place = f"{table.location()}/data/deleted-{positions[0]}.parquet"
    with table.io.new_output(place).create() as out:
        pq.write_table(pa.table([[path] * len(positions), positions], schema=pa.schema(fields)), out)
    described = manifest.DataFile.from_args(
        content=manifest.DataFileContent.POSITION_DELETES,
        file_path=place,
        file_format=manifest.FileFormat.PARQUET,
        partition=next(t.file.partition for t in table.scan().plan_files() if t.file.file_path == path),
        record_count=len(positions),
        file_size_in_bytes=len(table.io.new_input(place)),
    )
    described.spec_id = table.spec().spec_id
    with table.transaction() as change, change.update_snapshot().fast_append() as update:
        output, old = update.new_manifest_output, update.new_manifest_writer
        update.new_manifest_writer = lambda spec: Deletes(
            spec, table.schema(), output(), update.snapshot_id, old(spec)._compression
        )
        update.append_data_file(described)


def make():
    return GPClassifier("ep", n_inducing=6, batch_size=None, max_epochs=3, random_state=0)


def test_the_newest_snapshot_is_fitted_and_predicted(table, tmp_path):
    rows = table.scan().to_arrow()
    assert len(rows) == 100
    files = Fragments(open_dataset(table), ROWS.column_names)
    read = pa.concat_tables(chunk.table for chunk in files.chunks(7))
    assert read.sort_by("a").equals(rows.cast(read.schema).sort_by("a"))
    pq.write_table(read, tmp_path / "plain.parquet")
    expected = make().fit(tmp_path / "plain.parquet", target="label").predict_proba(rows)
    for given in (table, "iceberg://local/tables.rows", StaticTable.from_metadata(table.metadata_location)):
        found = make().fit(given, target="label")
        assert list(found.feature_names_in_) == ["a", "b", "site"]
        np.testing.assert_allclose(found.predict_proba(rows), expected, rtol=1e-8)
        assert len(found.predict_proba(given)) == 100


def test_rows_deleted_on_read_are_not_read(table):
    tasks = sorted(table.scan().plan_files(), key=lambda task: task.file.file_path)
    first, second = (task.file.file_path for task in tasks[:2])
    delete_on_read(table, first, [0, 3, 4])
    delete_on_read(table, first, [4, 11])
    delete_on_read(table, second, [2])
    rows = table.scan().to_arrow()
    assert len(rows) == 95
    files = Fragments(open_dataset(table), ["a", "label"])
    assert files.n_rows == 95
    for size in (1, 7, 100):
        read = pa.concat_tables(chunk.table for chunk in files.chunks(size))
        assert read.sort_by("a").equals(rows.select(["a", "label"]).cast(read.schema).sort_by("a"))
    middle = [chunk.table for chunk in files.chunks(3, range(5, 60))]  # as a rank reads its own rows
    assert pa.concat_tables(middle).equals(read[5:60])
    with pytest.raises(BadInput, match=r"folder of an Iceberg table.*'iceberg://CATALOG/NAMESPACE.TABLE'"):
        make().fit(table.location().removeprefix("file://"), target="label")


def test_columns_renamed_added_and_widened_are_those_of_the_newest_schema(catalog):
    old = pa.table({"a": ROWS["a"], "n": pa.array(range(150), pa.int32()), "label": ROWS["label"]})
    table = catalog.create_table("tables.rows", schema=old.schema)
    table.append(old)
    with table.update_schema() as change:
        change.rename_column("a", "first")
        change.update_column("n", LongType())
        change.add_column("b", DoubleType())
    new = pa.table({"first": [0.5], "n": [2**40], "label": ["x"], "b": [1.5]})
    table.append(new)
    rows = table.scan().to_arrow()
    files = Fragments(open_dataset(table), rows.column_names)
    read = pa.concat_tables(chunk.table for chunk in files.chunks(64))
    assert read.sort_by("n").equals(rows.cast(read.schema).sort_by("n"))
    assert read["b"].null_count == 150
    model = make().fit(table, target="label")  # with missing cells, so columns are prepared
    assert model.preparation_.inputs == ("first", "n", "b")


def test_the_command_line_reads_a_table(table, tmp_path):
    options = [
        "--target",
        "label",
        "--out",
        str(tmp_path / "m.cavity"),
        "--method",
        "sep",
        "--max-epochs",
        "2",
    ]
    run = CliRunner().invoke(app, ["fit", "iceberg://local/tables.rows", *options])
    assert run.exit_code == 0, run.output
    assert load(tmp_path / "m.cavity").predict_proba(table).shape == (100, 3)


def test_what_is_not_there_is_named(catalog, table, tmp_path):
    for name, words in (
        ("iceberg://local/tables.none", "iceberg://local/tables.none' cannot be read: Table does not exist"),
        ("iceberg://none/tables.rows", "iceberg://none/tables.rows' cannot be read"),
        ("iceberg://tables.rows", "'iceberg://tables.rows' does not name a table"),
        (str(tmp_path / "v1.metadata.json"), "v1.metadata.json' cannot be read"),
    ):
        with pytest.raises(BadInput, match=words):
            make().fit(name, target="label")
    with pytest.raises(
        BadInput, match="target='kind' is not a column; the columns are 'a', 'b', 'site', 'label'"
    ):
        make().fit(table, target="kind")
    with pytest.raises(BadInput, match="the source lacks 'site', which the model was fitted on"):
        make().fit(table, target="label").predict_proba(table.scan(selected_fields=("a", "b")))
    with pytest.raises(BadInput, match="has a filter or a limit"):
        make().fit(table.scan(row_filter="site == 0"), target="label")
    shutil.rmtree(tmp_path / "warehouse")
    with pytest.raises(BadInput, match=r"the Iceberg table '.*rows' cannot be read"):
        make().fit(table, target="label")


def test_the_page_gives_the_probabilities_of_the_same_rows_in_memory(table):
    names = run_section("clusters.md", "Iceberg")
    rows = pa.concat_tables(
        chunk.table for chunk in Fragments(open_dataset(table), ROWS.column_names).chunks(7)
    )
    np.testing.assert_allclose(names["p"], names["clf"].predict_proba(rows), rtol=1e-8)
