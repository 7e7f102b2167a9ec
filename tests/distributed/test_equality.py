"""Several processes are one: same batches, same posterior, also when one of them dies on the way."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("fits.py")


def launch(ranks, *arguments, restarts=0):
    """Run the script alone, or under torchrun on this machine."""
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command += [f"--max-restarts={restarts}", "--monitor-interval=0.2"]
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD", "LOCAL_", "MASTER_"))
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
    assert process.returncode == 0, log[-3000:]
    return log


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("alone") / "one.npz"
    launch(1, path)
    return np.load(path)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    path = tmp_path_factory.mktemp("two") / "two.npz"
    launch(2, path)
    return np.load(path)


@pytest.mark.parametrize("name", ["ep", "sep", "tiny", "full", "rep", "vi", "gfitc", "fixed"])
def test_two_processes_give_the_posterior_of_one(alone, two, name):
    np.testing.assert_allclose(two[name], alone[name], rtol=1e-8, atol=1e-8)


def test_ranks_without_a_seed_agree_on_one(two):
    """The script compares the ranks; here, that it got so far."""
    assert np.isfinite(two["unseeded"]).all()


def test_a_rank_that_dies_under_torchrun_costs_a_restart_and_nothing_else(alone, tmp_path):
    path = tmp_path / "out.npz"
    log = launch(2, path, "--kill", 7, "--checkpoint", tmp_path / "run", restarts=2)
    again = np.load(path)
    assert again["restarts"] == 1, log
    for name in ("ep", "sep"):
        np.testing.assert_allclose(again[name], alone[name], rtol=1e-8, atol=1e-8)
    assert {p.name for p in tmp_path.glob("run.ep.*of-2")} == {"run.ep.1-of-2", "run.ep.2-of-2"}
