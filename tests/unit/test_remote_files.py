"""Files in stores, here in the memory that fsspec offers as memory://: the same contents as on a disk."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from cavity import BadInput, BadOption, GPClassifier, callbacks, load
from cavity.cli.app import app
from cavity.common import object_stores
from cavity.options import nest
from support import toy

pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")


@pytest.fixture
def store(request):
    return f"memory://{request.node.name.partition('[')[0]}"


def make(**more):
    return GPClassifier("ep", **nest(n_inducing=5, batch_size=20, max_epochs=3, random_state=0, **more))


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


def test_an_ending_goes_before_the_options_of_a_uri():
    assert object_stores.add_ending("s3://b/run?region=eu", ".1-of-2") == "s3://b/run.1-of-2?region=eu"
    assert object_stores.get_name("s3://b/rows.csv?region=eu") == "rows.csv"


def test_the_name_of_a_packed_file_does_not_pack_a_model(store, tmp_path):
    X, y = toy(40, 2, seed=0)
    model = make().fit(X, y)
    model.save(f"{store}/model.gz")
    np.testing.assert_array_equal(load(f"{store}/model.gz").predict_proba(X), model.predict_proba(X))


class Stop(callbacks.Callback):
    def epoch(self, run, row):
        if row["epoch"] >= 2:
            raise InterruptedError


def test_a_run_resumes_from_a_checkpoint_in_a_store_to_the_bit(store):
    X, y = toy(60, 3, seed=1)
    path = f"{store}/run.ckpt"
    with pytest.raises(InterruptedError):
        make(checkpoint=path, checkpoint_every=0, callbacks=[Stop()]).fit(X, y)
    assert object_stores.exists(path)
    found = make(checkpoint=path, resume=True).fit(X, y)
    assert len(found.history_) == 3
    np.testing.assert_array_equal(found.predict_proba(X), make().fit(X, y).predict_proba(X))


def test_npy_files_of_a_store_are_those_of_the_disk(store, tmp_path):
    X, y = toy(60, 3, seed=1)
    np.save(tmp_path / "X.npy", X)
    object_stores.write_bytes(f"{store}/X.npy", (tmp_path / "X.npy").read_bytes())
    found, expected = (make().fit(path, y) for path in (f"{store}/X.npy", tmp_path / "X.npy"))
    np.testing.assert_array_equal(found.predict_proba(f"{store}/X.npy"), expected.predict_proba(X))
    with pytest.raises(BadInput, match=r"Z\.npy"):
        make().fit(f"{store}/Z.npy", y)


def test_the_command_line_reads_and_writes_a_store(store):
    X, y = toy(60, 2, seed=4)
    lines = ["a,b,label", *(f"{a},{b},{'no' if c else 'yes'}" for (a, b), c in zip(X, y, strict=True))]
    object_stores.write_bytes(f"{store}/rows.csv", "\n".join(lines).encode())
    model, rows, out = (f"{store}/{name}" for name in ("m.cavity", "rows.csv", "p.csv"))
    run = lambda *arguments: CliRunner().invoke(app, arguments)
    quick = ("--method", "sep", "--max-epochs", "3", "--n-inducing", "5")
    made = run("fit", rows, "--target", "label", "--out", model, *quick)
    assert made.exit_code == 0, made.output
    done = run("predict", model, rows, "--out", out)
    assert done.exit_code == 0, done.output
    assert object_stores.read_bytes(out).decode().count("\n") == 61
    assert json.loads(run("info", model, "--json").output)["bytes"] == object_stores.count_bytes(model)
    for arguments in (
        ("fit", f"{store}/none.csv", "--target", "label", "--out", model),
        ("info", f"{store}/none.cavity"),
    ):
        failed = run(*arguments)
        assert failed.exit_code == 1 and f"{store}/none" in failed.output


def test_a_scheme_that_nobody_knows_is_named():
    X, y = toy(20, 2, seed=0)
    with pytest.raises(
        BadOption, match=r"checkpoint='nowhere://a/b': neither pyarrow nor fsspec can open it"
    ):
        make(checkpoint="nowhere://a/b").fit(X, y)
