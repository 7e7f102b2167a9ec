"""URIs are read and written like paths, here with fsspec's memory://; tests/cluster/test_stores.py has a server of S3."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cavity import BadFile, BadInput, BadOption, GPClassifier, callbacks, load
from cavity.common import object_stores
from cavity.options import nest
from cli.running import run
from support import toy

fsspec = pytest.importorskip("fsspec")
X, Y = toy(60, 3, seed=2)


@pytest.fixture
def store(request):
    return f"memory://{request.node.name.partition('[')[0]}"


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
    return GPClassifier("ep", **nest(n_inducing=5, batch_size=20, max_epochs=3, random_state=0, **more))


@pytest.fixture(scope="module")
def alone(folder):
    return make().fit(folder, target="label")


def test_a_partitioned_folder_gives_the_model_of_the_same_files_on_disk(uri, folder, alone):
    model = make().fit(uri, target="label")
    assert list(model.feature_names_in_) == ["a", "b", "site"]
    np.testing.assert_array_equal(model.predict_proba(uri), alone.predict_proba(folder))
    one = f"{uri}/site=0/" + next((folder / "site=0").iterdir()).name
    with pytest.raises(BadInput, match="'site'"):  # which is in the path, and not part of a single file
        alone.predict(one)
    assert list(make().fit(one, target="label").feature_names_in_) == ["a", "b"]


@pytest.mark.parametrize("name", ["clf.cavity", "model.gz"])  # the name of a packed file packs nothing
def test_a_model_is_written_and_read(alone, folder, store, name):
    alone.save(f"{store}/{name}")
    np.testing.assert_array_equal(load(f"{store}/{name}").predict_proba(folder), alone.predict_proba(folder))
    object_stores.write_bytes(f"{store}/{name}", object_stores.read_bytes(f"{store}/{name}")[:-9])
    for path, word in ((name, "truncated"), ("none.cavity", "none")):
        with pytest.raises(BadFile, match=word):
            load(f"{store}/{path}")


@pytest.mark.parametrize("wrong", ["memory://nothing/here", "no-such-scheme://a", "file:///no/such/folder"])
def test_a_place_that_is_not_there_is_named(wrong):
    with pytest.raises(BadInput, match=wrong[-6:]):
        make().fit(wrong, target="label")
    with pytest.raises(BadOption, match="nowhere"):
        make(checkpoint="nowhere://a/b").fit(X, Y)


def test_paths_are_not_uris(folder):
    assert not any(
        map(object_stores.is_uri, [folder, str(folder), "a:b", "C:\\rows", "C:/rows", b"s3://x", None])
    )
    assert all(map(object_stores.is_uri, ["s3://bucket/rows", "abfss://a@b/c"]))
    assert object_stores.add_ending("s3://b/run?region=eu", ".1-of-2") == "s3://b/run.1-of-2?region=eu"
    assert object_stores.get_name("s3://b/rows.csv?region=eu") == "rows.csv"


def test_a_file_is_written_found_moved_and_removed(store, tmp_path):
    for place in (tmp_path / "a.bin", f"{store}/a.bin"):
        other = object_stores.add_ending(place, ".previous")
        object_stores.write_bytes(place, b"old")
        object_stores.write_bytes(other, b"older")
        object_stores.move(place, other)
        assert object_stores.exists(other) and not object_stores.exists(place)
        assert object_stores.read_bytes(other) == b"old" and object_stores.count_bytes(other) == 3
        assert object_stores.get_name(other) == "a.bin.previous" and not object_stores.is_folder(other)
        object_stores.remove(other)
        object_stores.remove(other)
        assert not object_stores.exists(other)


class Stop(callbacks.Callback):
    def epoch(self, run, row):
        if row["epoch"] >= 2:
            raise InterruptedError


def test_a_run_resumes_from_a_checkpoint_in_a_store_to_the_bit(store):
    path = f"{store}/run.ckpt"
    with pytest.raises(InterruptedError):
        make(checkpoint=path, checkpoint_every=0, callbacks=[Stop()]).fit(X, Y)
    found = make(checkpoint=path, resume=True).fit(X, Y)
    assert len(found.history_) == 3
    np.testing.assert_array_equal(found.predict_proba(X), make().fit(X, Y).predict_proba(X))


def test_the_command_line_reads_and_writes_a_store(store):
    lines = ["a,b,label", *(f"{a},{b},{'xyz'[c]}" for (a, b), c in zip(X, Y, strict=True))]
    object_stores.write_bytes(f"{store}/rows.csv", "\n".join(lines).encode())
    model, rows, out = (f"{store}/{name}" for name in ("m.cavity", "rows.csv", "p.csv"))
    quick = ("--method", "sep", "--max-epochs", "3", "--n-inducing", "5")
    assert run("fit", rows, "--target", "label", "--out", model, *quick).exit_code == 0
    assert run("predict", model, rows, "--out", out).exit_code == 0
    assert object_stores.read_bytes(out).decode().count("\n") == 61
    assert json.loads(run("info", model, "--json").output)["bytes"] == object_stores.count_bytes(model)
    for words in (
        ("fit", f"{store}/none.csv", "--target", "label", "--out", model),
        ("info", f"{store}/none"),
    ):
        failed = run(*words)
        assert failed.exit_code == 1 and f"{store}/none" in failed.output
