"""URIs are read and written like paths. tests/cluster/test_stores.py has the same for a server of S3."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cavity import BadFile, BadInput, GPClassifier, load
from cavity.common.object_stores import is_uri
from support import toy

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Partitioned files, and what the store must leave out."""
    folder = tmp_path_factory.mktemp("rows")
    X, y = toy(60, 3, seed=2)
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "site": y % 2, "label": y})
    pq.write_to_dataset(table, folder / "rows", partition_cols=["site"])
    (folder / "rows" / "_SUCCESS").touch()
    (folder / "rows" / "_logs").mkdir()
    (folder / "rows" / "_logs" / "log.parquet").write_bytes(b"not a table")
    return folder / "rows"


def fit(rows):
    return GPClassifier("sep", n_inducing=6, max_epochs=2, random_state=0).fit(rows, target="label")


@pytest.fixture(scope="module")
def alone(folder):
    return fit(folder)


@pytest.fixture(params=["file", "memory"])  # pyarrow knows the first, fsspec both
def uri(request, folder):
    if request.param == "file":
        return folder.as_uri()
    store = fsspec.filesystem("memory")
    store.put(str(folder), "/rows", recursive=True)
    request.addfinalizer(lambda: store.rm("/rows", recursive=True))
    return "memory://rows"


def test_a_partitioned_folder_gives_the_model_of_the_same_files_on_disk(uri, folder, alone):
    model = fit(uri)
    assert list(model.feature_names_in_) == ["a", "b", "site"]
    np.testing.assert_array_equal(model.predict_proba(uri), alone.predict_proba(folder))


def test_a_single_file_is_read(uri, folder, alone):
    inside = "site=0/" + next((folder / "site=0").iterdir()).name
    with pytest.raises(BadInput, match="'site'"):  # which is in the path, and not part of a single file
        alone.predict(f"{uri}/{inside}")
    two = GPClassifier("sep", n_inducing=6, max_epochs=2).fit(f"{uri}/{inside}", target="label")
    assert list(two.feature_names_in_) == ["a", "b"]


def test_a_model_is_written_and_read(alone, folder):
    alone.save("memory://models/clf.cavity")
    np.testing.assert_array_equal(
        load("memory://models/clf.cavity").predict_proba(folder), alone.predict_proba(folder)
    )
    store = fsspec.filesystem("memory")
    store.pipe("/models/clf.cavity", store.cat("/models/clf.cavity")[:-9])
    with pytest.raises(BadFile, match=r"memory://models/clf.cavity is truncated"):
        load("memory://models/clf.cavity")
    with pytest.raises(BadFile, match=r"memory://models/none.cavity cannot be read"):
        load("memory://models/none.cavity")


@pytest.mark.parametrize(
    "wrong, message",
    [
        ("memory://nothing/here", "memory://nothing/here' cannot be read|does not exist"),
        ("no-such-scheme://a", "neither pyarrow nor fsspec can open it"),
        ("file:///no/such/folder", "no/such/folder"),
    ],
)
def test_a_place_that_is_not_there_is_named(wrong, message):
    with pytest.raises(BadInput, match=message):
        fit(wrong)


def test_paths_are_not_uris(folder):
    assert not any(map(is_uri, [folder, str(folder), "a:b", "C:\\rows", "C:/rows", b"s3://x", None]))
    assert all(map(is_uri, ["s3://bucket/rows", "abfss://a@b/c"]))
