"""Several processes are one: same batches, same posterior, also when one of them dies
on the way.
"""

import contextlib
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

from cavity import distributed, engine
from cavity.kernels import RBF
from cavity.likelihoods import ProbitPairs
from distributed import fits
from distributed.ranks import run_ranks
from support import toy

SCRIPT = Path(fits.__file__)


def launch(*arguments, restarts=0, fails=False):
    """Run two ranks of the script under torchrun on this machine."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
    ]
    command += [f"--max-restarts={restarts}", "--monitor-interval=0.2"]
    environment = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("RANK", "WORLD", "LOCAL_", "MASTER_"))
    }
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [*command, str(SCRIPT), *map(str, arguments)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            log = process.communicate(timeout=300)[1]
        finally:  # the ranks are torchrun's children: none is left behind
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode != 0) == fails, log[-3000:]
    return log


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Five row groups in two Parquet files; the ranks' border falls into a row group."""
    folder = tmp_path_factory.mktemp("files")
    X, y = toy(101, 3, seed=2)
    (folder / "parts").mkdir()
    for i, rows in enumerate((slice(0, 60), slice(60, 101))):
        table = pa.table({"a": X[rows, 0], "label": y[rows], "b": X[rows, 1]})
        pq.write_table(table, folder / "parts" / f"{i}.parquet", row_group_size=25)
    return folder


@pytest.fixture(scope="module")
def alone(files):
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for owner, name in fits.SIZES:
            patch.setattr(
                owner, name, getattr(owner, name)
            )  # put back what `from_files` sets
        return fits.fit_all(files)


@pytest.fixture(scope="module")
def two(files):
    first, second = run_ranks(fits.fit_all, files)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    return first


def test_two_processes_give_the_posterior_of_one(alone, two):
    """Also where they read their own rows from Parquet."""
    names = ["ep", "sep", "tiny", "full", "rep", "vi", "gfitc", "fixed"]
    names += [f"parquet {name}" for name in ("ep", "sep", "full")]
    for name in names:
        np.testing.assert_allclose(
            two[name], alone[name], rtol=1e-8, atol=1e-8, err_msg=name
        )


def test_two_processes_judge_a_default_model_as_one_does():
    """The same equal rows as one, folds, held-out rows, pool, estimate and
    leave-one-out, also of groups.
    """
    first, second = run_ranks(fits.judge_all)
    for name, one in fits.judge_all().items():
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        np.testing.assert_allclose(first[name], one, rtol=1e-6, atol=1e-6, err_msg=name)


def test_ranks_without_a_seed_agree_on_one(two):
    assert np.isfinite(two["unseeded"]).all()


@pytest.mark.slow
def test_a_rank_that_dies_under_torchrun_costs_a_restart_and_nothing_else(
    alone, tmp_path
):
    path = tmp_path / "out.npz"
    log = launch(path, "--kill", 7, "--checkpoint", tmp_path / "run", restarts=2)
    again = np.load(path)
    assert again["restarts"] == 1, log
    for name in ("ep", "sep"):
        np.testing.assert_allclose(again[name], alone[name], rtol=1e-8, atol=1e-8)
    assert {p.name for p in tmp_path.glob("run.ep.*of-2")} == {
        "run.ep.1-of-2",
        "run.ep.2-of-2",
    }


@pytest.mark.slow
def test_a_killed_rank_under_torchrun_ends_the_others_within_a_minute(tmp_path):
    launch(
        tmp_path / "out.npz", "--kill", 7, "--checkpoint", tmp_path / "run", fails=True
    )
    assert time.time() - (tmp_path / "run.killed").stat().st_mtime < 60


def infer_and_fit():
    """Evidence, gradient and probabilities by the engine's door."""
    X, y = toy(61, 3)
    gp = engine.GP(
        kernel=RBF([1.0, 2.0]), likelihood=ProbitPairs(3), inducing=X[:6], noise=0.2
    )
    ranks = distributed.join()
    post = engine.infer(gp, X, y, ranks=ranks)
    slope = engine.evidence(gp, X, y, ranks=ranks)
    options = {"batch_size": 20, "steps": 8, "ranks": ranks}
    learnt, after, _ = engine.fit(gp, X, y, method=engine.SEP(), **options)
    found = post.predict(X), slope.gradient, learnt.theta, after.predict(X)
    return [post.log_evidence, slope.value, *(t.numpy() for t in found)]


def test_the_door_of_two_ranks_is_that_of_one():
    alone = infer_and_fit()
    for rank in run_ranks(infer_and_fit):
        for got, expected in zip(rank, alone, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-7, atol=1e-7)
