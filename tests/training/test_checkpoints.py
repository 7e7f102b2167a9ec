"""Runs that survive: what is written, what comes back, and what happens in between."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cavity import BadFile, BadOption, GPClassifier, persist
from cavity.callbacks import Callback, Memory, Validation
from cavity.training import checkpoint
from support import toy

X, Y = toy(90, 3, seed=3)
BATCHES = dict(n_inducing=8, batch_size=20, max_epochs=4, tol=0.0, random_state=1)
FULL = dict(n_inducing=8, batch_size=None, max_epochs=6, tol=0.0, random_state=1)
RUNS = {
    "ep": dict(method="ep", **BATCHES),
    "sep": dict(method="sep", **BATCHES),
    "vi": dict(method="vi", **BATCHES),
    "ep full": dict(method="ep", **FULL),
    "ep outer": dict(method="ep", schedule="outer", **FULL),
    "fixed": dict(method="ep", learn=(), tol=1e-9, n_inducing=8, random_state=1),
}


class Stop(Exception):
    """Ends a run as a kill would."""


class StopAfter(Callback):
    """Raises after so many steps, or epochs."""

    def __init__(self, steps=10**9, epochs=10**9):
        self.steps, self.epochs = steps, epochs

    def step(self, run):
        self.steps -= 1
        if self.steps <= 0:
            raise Stop

    def epoch(self, run, row):
        self.epochs -= 1
        if self.epochs <= 0:
            raise Stop
        return False


def fit(data=(X, Y), **options):
    """On rows in memory, or on a folder of Parquet files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = "label" if isinstance(data[0], Path) else None
        return GPClassifier(**options).fit(*data, target=target)


@pytest.fixture
def parquet(tmp_path, monkeypatch):
    """The same rows in files of several row groups, shuffled through a buffer for half of them."""
    monkeypatch.setattr("cavity.data.shuffle.SHUFFLE_ROWS", 45)
    monkeypatch.setattr("cavity.data.stream.PIECES", 9)
    (tmp_path / "rows").mkdir()
    for i in range(3):
        part = slice(30 * i, 30 * i + 30)
        table = pa.table({"a": X[part, 0], "b": X[part, 1], "label": Y[part]})
        pq.write_table(table, tmp_path / "rows" / f"{i}.parquet", row_group_size=13)
    return (tmp_path / "rows",)


def same_model(a, b):
    np.testing.assert_array_equal(a.predict_log_proba(X), b.predict_log_proba(X))
    assert a.log_marginal_likelihood_ == b.log_marginal_likelihood_
    assert [r["objective"] for r in a.history_] == [r["objective"] for r in b.history_]


def interrupt(path, options, data=(X, Y), watchers=(), **when):
    """A run that is cut off; the checkpoint is written before the callback that ends it is asked."""
    last = _Late(StopAfter(**when))
    with pytest.raises(Stop):
        fit(data, **options, checkpoint=path, checkpoint_every=0, callbacks=[*watchers, last])


class _Late(Callback):
    """Saves through the run's checkpoint first, whatever the order of callbacks."""

    def __init__(self, inner):
        self.inner = inner

    def step(self, run):
        run.callbacks[-1].step(run)
        self.inner.step(run)

    def epoch(self, run, row):
        run.callbacks[-1].epoch(run, row)
        return self.inner.epoch(run, row)


@pytest.mark.parametrize("name", ["ep", "sep", "vi"])
@pytest.mark.parametrize("steps", [1, 4, 5, 8])
def test_a_run_cut_off_between_two_batches_ends_as_if_it_had_not_been(tmp_path, name, steps):
    path = tmp_path / "run.ckpt"
    interrupt(path, RUNS[name], steps=steps)
    same_model(fit(**RUNS[name], checkpoint=path, resume=True), fit(**RUNS[name]))


@pytest.mark.parametrize("name, steps", [("ep", 3), ("ep", 7), ("sep", 1), ("sep", 10), ("ep full", 3)])
def test_a_run_from_files_cut_off_on_the_way_ends_as_if_it_had_not_been(tmp_path, parquet, name, steps):
    path = tmp_path / "run.ckpt"
    when = {"epochs": 2} if name == "ep full" else {"steps": steps}
    interrupt(path, RUNS[name], parquet, **when)
    same_model(fit(parquet, **RUNS[name], checkpoint=path, resume=True), fit(parquet, **RUNS[name]))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_cut_off_between_two_epochs_ends_as_if_it_had_not_been(tmp_path, name):
    path = tmp_path / "run.ckpt"
    interrupt(path, RUNS[name], epochs=2)
    same_model(fit(**RUNS[name], checkpoint=path, resume=True), fit(**RUNS[name]))


def test_a_run_without_a_seed_resumes_with_the_seed_it_had(tmp_path):
    path = tmp_path / "run.ckpt"
    options = RUNS["ep"] | {"random_state": None, "learn": ("kernel",)}
    interrupt(path, options, steps=3)
    seed = checkpoint.read_facts(path)["seed"]
    first = fit(**options, checkpoint=path, resume=True)
    assert checkpoint.read_facts(path)["seed"] == seed
    assert len(first.history_) == options["max_epochs"]


EARLY = {name: RUNS[name] | {"max_epochs": 30} for name in ("ep", "sep", "ep full")}


def against(patience=4):
    """Labels that contradict the rows: early epochs are the best ones."""
    return Validation(X, (Y + 1) % 3, patience)


@pytest.fixture(scope="module", params=EARLY)
def stopped(request):
    """Options of a run that stops early, and the run."""
    clf = fit(**EARLY[request.param], callbacks=[against()])
    nll = [row["validation_nll"] for row in clf.history_]
    assert int(np.argmin(nll)) + 1 < len(nll) < 30
    return EARLY[request.param], clf


@pytest.mark.parametrize("before", [0, 1, 3])
def test_early_stopping_goes_on_with_its_best_score_and_its_patience(stopped, tmp_path, before):
    """Cut off so many epochs before the last."""
    options, unbroken = stopped
    path = tmp_path / "run.ckpt"
    interrupt(path, options, watchers=[against()], epochs=unbroken.n_epochs_ - before)
    same_model(fit(**options, checkpoint=path, resume=True, callbacks=[against()]), unbroken)


def test_a_run_that_ended_is_not_trained_further_when_it_is_resumed(stopped, tmp_path):
    options, unbroken = stopped
    for resume in (False, True):
        watchers = [against(), StopAfter()]
        again = fit(**options, checkpoint=tmp_path / "run.ckpt", resume=resume, callbacks=watchers)
        same_model(again, unbroken)


def test_a_held_out_share_stops_a_resumed_run_where_it_stops_another(tmp_path):
    options = EARLY["sep"] | {"validation_fraction": 0.3, "patience": 2, "learning_rate": 0.3}
    unbroken = fit(**options)
    assert 3 < unbroken.n_epochs_ < 30
    interrupt(tmp_path / "run.ckpt", options, epochs=unbroken.n_epochs_ - 1)
    same_model(fit(**options, checkpoint=tmp_path / "run.ckpt", resume=True), unbroken)


class Remembers(Callback):
    """Counts epochs over interruptions."""

    count = 0

    def epoch(self, run, row):
        self.count += 1
        return False

    def memory(self):
        return Memory({"count": self.count})

    def recall(self, memory):
        self.count = memory.facts["count"]


def test_a_callback_of_the_user_may_remember(tmp_path):
    first, second = Remembers(), Remembers()
    interrupt(tmp_path / "run.ckpt", RUNS["sep"], watchers=[first], epochs=2)
    fit(**RUNS["sep"], checkpoint=tmp_path / "run.ckpt", resume=True, callbacks=[StopAfter(), second])
    assert (first.count, second.count) == (2, 4)


def test_lbfgs_continues_from_its_best_point(tmp_path):
    path = tmp_path / "run.ckpt"
    options = FULL | {"method": "gfitc", "max_epochs": 4}
    interrupt(path, options, epochs=2)
    whole, resumed = fit(**options), fit(**options, checkpoint=path, resume=True)
    assert 2 <= len(resumed.history_) <= 4
    assert resumed.history_[-1]["objective"] >= whole.history_[1]["objective"] - 1e-6


def test_without_a_file_resume_starts_afresh(tmp_path):
    path = tmp_path / "run.ckpt"
    same_model(fit(**RUNS["sep"], checkpoint=path, resume=True), fit(**RUNS["sep"]))
    assert path.exists()


def test_resume_needs_a_checkpoint():
    with pytest.raises(BadOption, match="resume=True needs checkpoint="):
        fit(**RUNS["sep"], resume=True)


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    fit(**RUNS["sep"], checkpoint=path)
    with pytest.raises(BadFile, match=r"another run: data is .* resume=False"):
        GPClassifier(**RUNS["sep"], checkpoint=path, resume=True).fit(X + 1, Y)
    with pytest.raises(BadFile, match="another run: method is 'sep' there and 'ep' here"):
        fit(**RUNS["ep"], checkpoint=path, resume=True)


@pytest.mark.parametrize("keep", [0, 7, 200, -1])
def test_a_truncated_checkpoint_is_refused_in_words(tmp_path, keep):
    path = tmp_path / "run.ckpt"
    fit(**RUNS["sep"], checkpoint=path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadFile, match=r"run\.ckpt is truncated, or not a cavity file"):
        fit(**RUNS["sep"], checkpoint=path, resume=True)


def test_a_foreign_file_is_refused_in_words(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(3)}, path)
    with pytest.raises(BadFile, match="is not a cavity checkpoint"):
        fit(**RUNS["sep"], checkpoint=path, resume=True)
    persist.write(path, "model", {"a": torch.zeros(3)}, {})
    with pytest.raises(BadFile, match="is not a cavity checkpoint but a model"):
        persist.read(path, "checkpoint")


def test_a_file_of_a_later_format_asks_for_an_update(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    monkeypatch.setattr(persist, "FORMAT", 99)
    persist.write(path, "checkpoint", {}, {})
    monkeypatch.undo()
    with pytest.raises(BadFile, match=r"has format 99, .* update cavity"):
        persist.read(path, "checkpoint")


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    fit(**RUNS["sep"], checkpoint=path)
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        BadFile, match=r"could not be written .No space left on device.; the old file is intact"
    ):
        fit(**RUNS["sep"], checkpoint=path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


CHILD = """
import json, sys, time, warnings
from pathlib import Path
import numpy as np
from cavity import GPClassifier
from cavity.callbacks import Callback
from cavity.data import shuffle, stream
shuffle.SHUFFLE_ROWS, stream.PIECES = 45, 9  # as in the parent

class Slow(Callback):
    def step(self, run):
        time.sleep(0.05)

warnings.simplefilter("ignore")
where, path = map(Path, sys.argv[1:3])
options = json.loads(sys.argv[3]) | dict(checkpoint=path, checkpoint_every=0, callbacks=[Slow()])
data = dict(X=where, target="label") if where.is_dir() else dict(np.load(where))
GPClassifier(**options).fit(**data)
"""


@pytest.mark.parametrize("kind, delay", [("memory", 0.0), ("files", 0.1)])
def test_kill_nine_at_any_moment_leaves_a_checkpoint_that_ends_as_if_it_had_not_been(
    tmp_path, parquet, kind, delay
):
    """Every step writes, so many kills fall into a write."""
    path, rows = tmp_path / "run.ckpt", tmp_path / "rows.npz"
    np.savez(rows, X=X, y=Y)
    options, where = RUNS["ep"] | {"max_epochs": 8}, parquet[0] if kind == "files" else rows
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(where), str(path), json.dumps(options)])
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert path.exists(), "the child wrote no checkpoint within a minute"
    assert int(persist.read(path, "checkpoint").tensors["epoch"]) < 8, "the child was not killed on the way"
    data = parquet if kind == "files" else (X, Y)
    same_model(fit(data, **options, checkpoint=path, resume=True), fit(data, **options))


def test_the_meta_data_are_plain_json(tmp_path):
    path = tmp_path / "run.ckpt"
    fit(**RUNS["ep"], checkpoint=path)
    meta = persist.read(path, "checkpoint").meta
    assert json.loads(json.dumps(meta)) == meta
    assert Path(path).stat().st_size < 200_000


class LateAt(Callback):
    """Time is up after so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def start(self, run):
        run.late = lambda: self.steps <= 0

    def step(self, run):
        self.steps -= 1


@pytest.mark.parametrize("steps", [2, 3, 4, 6])
def test_a_run_whose_time_is_up_anywhere_in_a_pass_can_be_resumed(tmp_path, steps):
    """After the last batch of a pass, too: three batches a pass here."""
    X, y = toy(24, 3)
    options = dict(
        method="ep", batch_size=8, n_inducing=4, max_epochs=5, random_state=0, checkpoint=tmp_path / "run"
    )
    GPClassifier(**options, callbacks=[LateAt(steps)]).fit(X, y)
    done = GPClassifier(**options, resume=True).fit(X, y)
    assert done.n_epochs_ == 5


def test_a_time_that_is_up_within_vi_s_first_pass_ends_the_fit_in_order():
    X, y = toy(24, 3)
    for calls in range(1, 6):
        left = iter([False] * calls)

        class Late(Callback):
            def start(self, run, left=left):
                run.late = lambda: next(left, True)

        clf = GPClassifier("vi", batch_size=8, n_inducing=4, max_epochs=2, random_state=0, callbacks=[Late()])
        assert np.isfinite(clf.fit(X, y).elbo_)
