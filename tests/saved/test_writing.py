"""Writing a file: one complete file at any moment, whoever writes, and nothing else
changes.
"""

import os
import threading
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import cavity
from cavity import BadFile, BadInput
from cavity.callbacks import Callback
from cavity.common import files, tensor_files

OLD = b"old"


def write(path, value, size=2000):
    tensor_files.write(
        path, "model", {"x": torch.full((size,), float(value))}, {"value": value}
    )


def test_two_writers_and_two_readers_never_meet_a_broken_file(tmp_path):
    """B1: of 161 saves from two threads 61 were refused, and 63 of 101 reads broken."""
    path, errors, reads = tmp_path / "m", [], [0]
    write(path, 0)
    end = time.monotonic() + 1.5

    def repeat(work):
        try:
            while time.monotonic() < end:
                work()
        except Exception as error:
            errors.append(error)

    def read():
        tensors, meta, _ = tensor_files.read(path, "model")
        assert (tensors["x"] == meta["value"]).all()
        reads[0] += 1

    threads = [
        threading.Thread(target=repeat, args=(lambda v=v: write(path, v),))
        for v in range(2)
    ]
    threads += [threading.Thread(target=repeat, args=(read,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and reads[0] > 20
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_mode(tmp_path, mode):
    """B5: 0600 became 0644."""
    path = tmp_path / "m"
    path.write_bytes(OLD)
    path.chmod(mode)
    write(path, 1)
    assert path.stat().st_mode & 0o7777 == mode
    assert tensor_files.read(path, "model").meta["value"] == 1


def test_a_new_file_has_the_mode_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_bytes(tmp_path / "m", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "m").stat().st_mode & 0o7777 == 0o640


def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path):
    """B5: the link was replaced by a file."""
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real", tmp_path / "link"
    real.write_bytes(OLD)
    link.symlink_to(real)
    write(link, 2)
    assert link.is_symlink() and tensor_files.read(real, "model").meta["value"] == 2
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "far" / "later")
    write(dangling, 3)
    assert (
        dangling.is_symlink()
        and tensor_files.read(tmp_path / "far" / "later", "model").meta["value"] == 3
    )
    assert sorted(p.name for p in (tmp_path / "far").iterdir()) == ["later", "real"]


def test_only_old_unfinished_files_of_the_same_target_are_swept(tmp_path):
    """B5: what a killed process left stayed for ever."""
    ours = [".m.0123456789abcdef.part"]
    others = [
        ".n.0123456789abcdef.part",
        ".m.4711.part",
        ".m.notes.part",
        "m.part",
        ".m.0123456789abcdef.partial",
    ]
    for name in (*ours, *others):
        (tmp_path / name).write_bytes(OLD)
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".m.fedcba9876543210.part").write_bytes(b"someone writes now")
    write(tmp_path / "m", 1)
    assert {p.name for p in tmp_path.iterdir()} == {
        *others,
        "m",
        ".m.fedcba9876543210.part",
    }


def test_the_folder_is_flushed_after_the_rename(tmp_path, monkeypatch):
    flushed, fsync = [], os.fsync

    def spy(descriptor):
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    write(tmp_path / "m", 1)
    assert (
        len(flushed) == 2
        and flushed[0].endswith(".part")
        and flushed[1] == str(tmp_path)
    )


def test_a_long_name_and_a_name_with_signs_of_patterns(tmp_path):
    for name in ("n" * 250, "a[b]*.cavity", "(a", "é" * 100):
        write(tmp_path / name, 5)
        assert tensor_files.read(tmp_path / name, "model").meta["value"] == 5


@pytest.mark.parametrize("name", ["", "missing/m", "file/m", "a\0b", "n" * 300])
def test_a_path_that_cannot_be_written_is_a_clear_error(tmp_path, name):
    """B10: raw OSError and ValueError."""
    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(BadFile):
        write(f"{tmp_path}/{name}", 1)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_device_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadFile, match="regular file"):
        write(tmp_path / "pipe", 1)
    assert (tmp_path / "pipe").is_fifo()


def test_meta_data_that_json_cannot_hold_are_a_clear_error(tmp_path):
    """B10: a raw TypeError."""
    with pytest.raises(BadInput, match="JSON"):
        tensor_files.write(tmp_path / "m", "model", {}, {"notes": {"a": object()}})
    assert not list(tmp_path.iterdir())


class CountedEpochs(Callback):
    epochs = 0

    def epoch(self, run, row):
        self.epochs += 1
        return False


@pytest.mark.parametrize("kind", ["classifier", "regressor", "mixed columns"])
def test_a_fit_whose_names_have_room_can_be_saved_and_others_do_not_train(
    kind, tmp_path
):
    """80 rows of 9,990 long names trained for minutes, and were not saved."""
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(20, 40))
    made = cavity.GPClassifier if kind != "regressor" else cavity.GPRegressor
    saved = []
    for letters in (40_000, 70_000, 150_000):
        frame = pd.DataFrame(cells, columns=[f"{j}" + "n" * letters for j in range(40)])
        if kind == "mixed columns":
            frame[frame.columns[0]] = ["p", "q"] * 10
        counted = CountedEpochs()
        model = made(
            "vi" if kind != "regressor" else "exact", max_epochs=2, callbacks=[counted]
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.fit(frame, (cells[:, 1] > 0).astype(int))
            except BadInput:
                assert not counted.epochs
                continue

        model.save(tmp_path / "m.cavity")
        loaded = cavity.load(tmp_path / "m.cavity")
        assert loaded.feature_names_in_.tolist() == list(frame.columns)
        saved.append(letters)
    assert 40_000 in saved
    assert 150_000 not in saved


def test_the_last_epochs_of_a_long_history_are_saved(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    model = cavity.GPClassifier("ep", n_inducing=5, max_epochs=2, ensemble=None)
    model.fit(X, X[:, 0] > 0)
    epochs = [dict(epoch) for epoch in model.history_] * 100_000
    model._result = model._result._replace(history=epochs)
    model.save(tmp_path / "m.cavity")
    kept = cavity.load(tmp_path / "m.cavity").history_
    assert kept == epochs[-len(kept) :]
    assert len(kept) >= 10_000
