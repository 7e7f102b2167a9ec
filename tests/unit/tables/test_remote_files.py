"""Rows are read from URIs like from paths, here with fsspec's memory://;
tests/cluster/test_stores.py has a server of S3.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cavity import BadFile, BadInput, BadOption, GPClassifier, load
from cavity.common.files import is_uri
from cavity.fitting.options import nest
from cli.running import run
from support import toy

fsspec = pytest.importorskip("fsspec")
X, Y = toy(60, 3, seed=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Partitioned files, and what the store must leave out."""
    folder = tmp_path_factory.mktemp("rows") / "rows"
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "site": Y % 2, "label": Y})
    pq.write_to_dataset(table, folder, partition_cols=["site"])
    (folder / "_SUCCESS").touch()
    (folder / "_logs").mkdir()
    (folder / "_logs" / "log.parquet").write_bytes(b"not a table")
    return folder


@pytest.fixture(params=["file", "memory"])  # pyarrow knows the first, fsspec both
def uri(request, folder):
    if request.param == "file":
        return folder.as_uri()
    store = fsspec.filesystem("memory")
    store.put(str(folder), "/rows", recursive=True)
    request.addfinalizer(lambda: store.rm("/rows", recursive=True))
    return "memory://rows"


def make(**more):
    return GPClassifier(
        "ep", **nest(n_inducing=5, batch_size=20, max_epochs=3, random_state=0, **more)
    )


@pytest.fixture(scope="module")
def alone(folder):
    return make().fit(folder, target="label")


def test_a_partitioned_folder_gives_the_model_of_the_same_files_on_disk(
    uri, folder, alone
):
    model = make().fit(uri, target="label")
    assert list(model.feature_names_in_) == ["a", "b", "site"]
    np.testing.assert_array_equal(model.predict_proba(uri), alone.predict_proba(folder))
    one = f"{uri}/site=0/" + next((folder / "site=0").iterdir()).name
    with pytest.raises(
        BadInput, match="'site'"
    ):  # which is in the path, and not part of a single file
        alone.predict(one)
    assert list(make().fit(one, target="label").feature_names_in_) == ["a", "b"]


@pytest.mark.parametrize(
    "wrong", ["memory://nothing/here", "no-such-scheme://a", "file:///no/such/folder"]
)
def test_a_place_that_is_not_there_is_named(wrong):
    with pytest.raises(BadInput, match=wrong[-6:]):
        make().fit(wrong, target="label")


def test_paths_are_not_uris(folder):
    assert not any(
        map(
            is_uri, [folder, str(folder), "a:b", "C:\\rows", "C:/rows", b"s3://x", None]
        )
    )
    assert all(map(is_uri, ["s3://bucket/rows", "abfss://a@b/c"]))


def test_models_and_checkpoints_are_files(alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadFile, match="store"):
        alone.save("memory://clf.cavity")
    with pytest.raises(BadFile, match="is not a file"):
        load("memory://clf.cavity")
    with pytest.raises(BadOption, match="is a URI"):
        make(checkpoint="memory://run.ckpt").fit(X, Y)
    assert not list(tmp_path.iterdir())


def test_the_command_line_reads_a_store(tmp_path):
    lines = [
        "a,b,label",
        *(f"{a},{b},{'xyz'[c]}" for (a, b), c in zip(X, Y, strict=True)),
    ]
    fsspec.filesystem("memory").pipe("/rows.csv", "\n".join(lines).encode())
    model, rows, out = tmp_path / "m.cavity", "memory://rows.csv", tmp_path / "p.csv"
    quick = ("--method", "sep", "--max-epochs", "3", "--n-inducing", "5")
    assert run("fit", rows, "--target", "label", "--out", model, *quick).exit_code == 0
    assert run("predict", model, rows, "--out", out).exit_code == 0
    assert out.read_text().count("\n") == 61
    for words, said in (
        (
            ("fit", "memory://none.csv", "--target", "label", "--out", model),
            "memory://none",
        ),
        (("predict", model, rows, "--out", "memory://p.csv"), "to a store"),
    ):
        failed = run(*words)
        assert failed.exit_code and said in failed.output
