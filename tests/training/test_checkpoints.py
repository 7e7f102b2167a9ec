"""Runs that survive: what is written, what comes back, and what happens in between."""

import os
import time
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from cavity import BadFile, BadOption, GPClassifier
from cavity.callbacks import Callback
from cavity.common import tensor_files
from cavity.engine.training import checkpoint
from cavity.fitting.options import nest
from cavity.methods import VI
from chaos.children import Child
from support import ALONE, slow, toy, without_warnings
from training.killed import fit_slowly

X, Y = toy(90, 3, seed=3)
BATCHES = dict(n_inducing=8, batch_size=20, max_epochs=4, tol=0.0, random_state=1)
FULL = dict(n_inducing=8, batch_size=None, max_epochs=6, tol=0.0, random_state=1)
RUNS = {
    "ep": dict(method="ep", **BATCHES),
    "sep": dict(method="sep", **BATCHES),
    "vi": dict(method=VI("robust-max"), **BATCHES),
    "ep full": dict(method="ep", **FULL),
    "ep outer": dict(method="ep", schedule="outer", **FULL),
    "fixed": dict(method="ep", learn=(), **FULL),
}


class Stop(Exception):
    """Ends a run as a kill would."""


class StopAfter(Callback):
    """Raises after so many steps, or epochs."""

    def __init__(self, steps=10**9, epochs=10**9):
        self.steps = steps
        self.epochs = epochs

    def step(self, run):
        self.steps -= 1
        if self.steps <= 0:
            raise Stop

    def epoch(self, run, row):
        self.epochs -= 1
        if self.epochs <= 0:
            raise Stop
        return False


def fit(data=(X, Y), eval_set=None, **options):
    """On rows in memory, or on a folder of Parquet files."""
    with without_warnings():
        target = "label" if isinstance(data[0], Path) else None
        return GPClassifier(**nest(**options)).fit(
            *data, target=target, eval_set=eval_set
        )


@cache
def unbroken_run(name):
    return fit(**RUNS[name])


@pytest.fixture
def parquet(tmp_path):
    """The same rows in files of several row groups."""
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
    """A run that is cut off; the checkpoint is written before the callback that ends it
    is asked.
    """
    last = _Late(StopAfter(**when))
    with pytest.raises(Stop):
        fit(
            data,
            **options,
            checkpoint=path,
            checkpoint_every=0,
            callbacks=[*watchers, last],
        )


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
def test_a_run_cut_off_between_two_batches_ends_as_if_it_had_not_been(
    tmp_path, name, steps
):
    path = tmp_path / "run.ckpt"
    interrupt(path, RUNS[name], steps=steps)
    same_model(fit(**RUNS[name], checkpoint=path, resume=True), unbroken_run(name))


@pytest.mark.parametrize(
    "name, steps",
    [slow("ep", 3), ("ep", 7), slow("sep", 1), ("sep", 10), slow("ep full", 3)],
)
def test_a_run_from_files_cut_off_on_the_way_ends_as_if_it_had_not_been(
    tmp_path, parquet, name, steps
):
    path = tmp_path / "run.ckpt"
    when = {"epochs": 2} if name == "ep full" else {"steps": steps}
    interrupt(path, RUNS[name], parquet, **when)
    same_model(
        fit(parquet, **RUNS[name], checkpoint=path, resume=True),
        fit(parquet, **RUNS[name]),
    )


@pytest.mark.parametrize("name", RUNS)
def test_a_run_cut_off_between_two_epochs_ends_as_if_it_had_not_been(tmp_path, name):
    path = tmp_path / "run.ckpt"
    interrupt(path, RUNS[name], epochs=2)
    same_model(fit(**RUNS[name], checkpoint=path, resume=True), unbroken_run(name))


def test_a_run_without_a_seed_resumes_with_the_seed_it_had(tmp_path):
    path = tmp_path / "run.ckpt"
    options = RUNS["ep"] | {"random_state": None, "learn": ("kernel",)}
    interrupt(path, options, steps=3)
    seed = checkpoint.read_facts(path)["seed"]
    first = fit(**options, checkpoint=path, resume=True)
    assert checkpoint.read_facts(path)["seed"] == seed
    assert len(first.history_) == options["max_epochs"]


AGAINST = (
    X,
    (Y + 1) % 3,
)  # labels that contradict the rows: early epochs are the best ones
EARLY = {
    name: RUNS[name] | {"max_epochs": 30, "patience": 4}
    for name in ("ep", "sep", "ep full")
}


@pytest.fixture(scope="module", params=EARLY)
def stopped(request):
    """Options of a run that stops early, and the run."""
    clf = fit(**EARLY[request.param], eval_set=AGAINST)
    nll = [row["validation_nll"] for row in clf.history_]
    assert int(np.argmin(nll)) + 1 < len(nll) < 30
    return EARLY[request.param], clf


@pytest.mark.parametrize("before", [slow(0), slow(1), 3])
def test_early_stopping_goes_on_with_its_best_score_and_its_patience(
    stopped, tmp_path, before
):
    """Cut off so many epochs before the last."""
    options, unbroken = stopped
    path = tmp_path / "run.ckpt"
    interrupt(path, options | {"eval_set": AGAINST}, epochs=unbroken.n_epochs_ - before)
    same_model(fit(**options, checkpoint=path, resume=True, eval_set=AGAINST), unbroken)


def test_a_run_that_ended_is_not_trained_further_when_it_is_resumed(stopped, tmp_path):
    options, unbroken = stopped
    for resume in (False, True):
        file = {"checkpoint": tmp_path / "run.ckpt", "resume": resume}
        same_model(
            fit(**options, **file, eval_set=AGAINST, callbacks=[StopAfter()]), unbroken
        )


class Pause(Callback):
    def epoch(self, run, row):
        run.stopped = True
        return False


@pytest.mark.parametrize("method", ["ep", "auto"])
def test_a_run_that_a_callback_stopped_goes_on_when_it_is_resumed(tmp_path, method):
    """L-BFGS ("auto") goes on, too, but not to the same bits."""
    options = dict(method=method, max_epochs=4, tol=0.0, batch_size=None, **ALONE)
    spent = dict(
        checkpoint=tmp_path / "run.ckpt", resume=True, callbacks=[Pause()], **options
    )
    runs = [fit(**spent) for _ in range(2)]
    assert [run.n_epochs_ for run in runs] == [1, 2] and runs[0].fit_warnings_ == []
    resumed = fit(**spent | {"callbacks": []})
    assert resumed.n_epochs_ == 4
    if method == "ep":
        same_model(resumed, fit(**options))


def test_resume_needs_a_checkpoint():
    with pytest.raises(BadOption, match="checkpoint="):
        fit(**RUNS["sep"], resume=True)


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    fit(**RUNS["sep"], checkpoint=path)
    with pytest.raises(BadFile, match=r"data.*resume=False"):
        GPClassifier(**nest(**RUNS["sep"], checkpoint=path, resume=True)).fit(X + 1, Y)
    with pytest.raises(BadFile, match="another run: method"):
        fit(**RUNS["ep"], checkpoint=path, resume=True)


@pytest.mark.parametrize("first, then", [("ep", "ep full"), ("ep full", "ep")])
def test_a_checkpoint_of_another_optimiser_is_refused(tmp_path, first, then):
    """Found by make chaos: a raw ValueError.

    Mini-batches use Adam, full batches the sign rule.
    """
    fit(**RUNS[first] | {"max_epochs": 1}, checkpoint=tmp_path / "run.ckpt")
    with pytest.raises(BadFile, match=r"optimizer.*resume=False"):
        fit(**RUNS[then], checkpoint=tmp_path / "run.ckpt", resume=True)


@pytest.mark.parametrize("keep", [0, 7, 200, -1])
def test_a_truncated_checkpoint_is_refused_in_words(tmp_path, keep):
    path = tmp_path / "run.ckpt"
    fit(**RUNS["sep"], checkpoint=path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadFile, match=r"run\.ckpt"):
        fit(**RUNS["sep"], checkpoint=path, resume=True)


def test_files_of_another_kind_or_of_a_later_format_are_refused(tmp_path):
    from safetensors.torch import save_file

    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(3)}, path)
    with pytest.raises(BadFile, match="checkpoint"):
        fit(**RUNS["sep"], checkpoint=path, resume=True)
    tensor_files.write(path, "model", {"a": torch.zeros(3)}, {})
    with pytest.raises(BadFile, match="but a model"):
        tensor_files.read(path, "checkpoint")
    path = tmp_path / "run.ckpt"
    tensor_files.write(path, "checkpoint", {"a": torch.zeros(3)}, {"format": 99})
    with pytest.raises(BadFile, match=r"99.*update"):
        tensor_files.read(path, "checkpoint")


def full(descriptor):
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_last_good_checkpoint_and_the_fit_goes_on(
    tmp_path, monkeypatch
):
    """B7: a failed write threw the fit away."""
    path = tmp_path / "run.ckpt"
    whole = fit(**RUNS["sep"], checkpoint=path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="No space left"):
        clf = GPClassifier(
            **nest(**RUNS["sep"], checkpoint=path, checkpoint_every=0)
        ).fit(X, Y)
    same_model(clf, whole)
    assert any("the last checkpoint failed" in text for text in clf.fit_warnings_)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "path, words", [("none/run.ckpt", "does not exist"), ("", "is a folder")]
)
def test_a_checkpoint_that_could_never_be_written_is_refused_at_once(
    tmp_path, path, words
):
    with pytest.raises(BadOption, match=words):
        fit(**RUNS["sep"], checkpoint=tmp_path / path)


@pytest.mark.parametrize("name", ["ep", "sep"])
def test_no_flipped_bit_of_a_checkpoint_goes_unnoticed(tmp_path, name, monkeypatch):
    """B2: of 40 flipped bits in a checkpoint 12 were resumed."""
    path = tmp_path / "run.ckpt"
    rng = np.random.default_rng(0)
    options = RUNS[name] | {"max_epochs": 1}
    fit(**options, checkpoint=path)
    content = path.read_bytes()
    monkeypatch.setattr(
        "cavity.engine.runs.train", lambda run: pytest.fail("was resumed")
    )
    for _ in range(60):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(BadFile, match=r"run\.ckpt"):
            fit(**options, checkpoint=path, resume=True)


FORGED = {
    "no optimiser": lambda m, t: t.pop("optimiser.0"),
    "no history": lambda m, t: m.pop("history"),
    "a history of numbers": lambda m, t: m.update(history=7),
    "seconds in words": lambda m, t: m.update(seconds="long"),
    "facts that are a list": lambda m, t: m.update(facts=[1]),
    "no facts": lambda m, t: m.pop("facts"),
    "a moment in words": lambda m, t: m.update(moment="now"),
    "a guard of a list": lambda m, t: m.update(guard=[1, 2]),
    "no theta": lambda m, t: t.pop("theta"),
    "another theta": lambda m, t: t.update(theta=torch.zeros(1)),
    "a huge tensor": lambda m, t: t.update(theta=torch.zeros(10**7)),
    "NaN for a seed": lambda m, t: m["facts"].update(seed=float("nan")),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "run.ckpt"
    fit(**RUNS["sep"], checkpoint=path)
    return path


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_refused_in_words(whole, tmp_path, name):
    """B9, B10: unknown tensors were read; OverflowError, KeyError and others escaped."""
    path = tmp_path / "run.ckpt"
    tensors, meta, _ = tensor_files.read(whole, "checkpoint")
    FORGED[name](meta, tensors)
    tensor_files.write(path, "checkpoint", tensors, meta)
    with pytest.raises(BadFile, match=r"run\.ckpt"):
        fit(**RUNS["sep"], checkpoint=path, resume=True)


@pytest.mark.parametrize("kind, delay", [("memory", 0.0), slow("files", 0.1)])
def test_kill_nine_at_any_moment_leaves_a_checkpoint_that_ends_as_if_it_had_not_been(
    tmp_path, parquet, kind, delay
):
    """Every step writes, so many kills fall into a write."""
    path = tmp_path / "run.ckpt"
    rows = tmp_path / "rows.npz"
    np.savez(rows, X=X, y=Y)
    options = RUNS["ep"] | {"max_epochs": 8}
    where = parquet[0] if kind == "files" else rows
    child = Child(fit_slowly, where, path, options)
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(delay)
    child.kill()
    assert path.exists(), "the child wrote no checkpoint within a minute"
    assert int(tensor_files.read(path, "checkpoint").tensors["epoch"]) < 8, (
        "the child was not killed on the way"
    )
    data = parquet if kind == "files" else (X, Y)
    same_model(fit(data, **options, checkpoint=path, resume=True), fit(data, **options))


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
    """After the last batch of a pass, too: three batches per pass here."""
    X, y = toy(24, 3)
    options = dict(
        method="ep",
        batch_size=8,
        n_inducing=4,
        max_epochs=5,
        random_state=0,
        checkpoint=tmp_path / "run",
    )
    GPClassifier(**nest(**options, callbacks=[LateAt(steps)])).fit(X, y)
    done = GPClassifier(**nest(**options, resume=True)).fit(X, y)
    assert done.n_epochs_ == 5
