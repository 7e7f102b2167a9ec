"""Several nodes: torchrun as docs/scale.md starts it, in network namespaces."""

import os
import shlex
import subprocess
import sys
import time

import numpy as np
import pytest

from cluster import network
from pages import read_commands
from support import ROOT

OBSTACLE = network.find_obstacle()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        OBSTACLE is not None, reason=f"no nodes to be had here: {OBSTACLE}"
    ),
]
SCRIPT = ROOT / "tests" / "distributed" / "fits.py"
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD", "LOCAL_", "MASTER_"))} | {
    "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
}  # fmt: skip


def command(*arguments):
    """The command of the page for every node, with a script of these tests."""
    *_, line = read_commands("scale.md", "Several nodes")
    torchrun, script = shlex.split(line)[:-1], shlex.split(line)[-1]
    assert torchrun[0] == "torchrun" and script == "train.py"
    return [
        sys.executable, "-m", "torch.distributed.run", *torchrun[1:], str(SCRIPT), *map(str, arguments)
    ]  # fmt: skip


def variables():
    """The environment, with the variables that the page sets."""
    lines = read_commands("scale.md", "Several nodes")[:-1]
    return ENVIRONMENT | dict(line.removeprefix("export ").split("=") for line in lines)


def start(nodes, node, arguments, folder):
    log = (folder / f"{node}-{time.monotonic()}.log").open("w+")
    return nodes.start(
        node, command(*arguments), env=variables(), stdout=log, stderr=subprocess.STDOUT
    )


def check_ended_well(processes, folder, seconds=240):
    codes = [process.wait(seconds) for process in processes]
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.log")))
    assert codes == [0, 0], logs


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    arguments = [folder / "out.npz", "--checkpoint", folder / "run"]
    subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        env=ENVIRONMENT,
        check=True,
        timeout=240,
    )
    return np.load(folder / "out.npz")


def check_equal(path, alone):
    found = np.load(path)
    for name in ("ep", "sep"):
        np.testing.assert_allclose(found[name], alone[name], rtol=1e-8, atol=1e-8)


def test_two_nodes_give_the_model_of_one_process(alone, tmp_path):
    arguments = [tmp_path / "out.npz", "--checkpoint", tmp_path / "run"]
    with network.Nodes() as nodes:
        check_ended_well(
            [start(nodes, i, arguments, tmp_path) for i in (0, 1)], tmp_path
        )
    check_equal(tmp_path / "out.npz", alone)


def test_a_node_that_dies_rejoins_and_the_model_is_the_same(alone, tmp_path):
    """The second node loses all its processes; the same command, started again there,
    joins the first one.
    """
    arguments = [tmp_path / "out.npz", "--checkpoint", tmp_path / "run"]
    with network.Nodes() as nodes:
        first, second = (start(nodes, i, arguments, tmp_path) for i in (0, 1))
        until = time.monotonic() + 120
        while not (tmp_path / "run.ep.2-of-2").exists() and time.monotonic() < until:
            time.sleep(0.01)
        nodes.kill(second)
        assert not (tmp_path / "out.npz").exists(), (
            "the run ended before the node could die"
        )
        check_ended_well([first, start(nodes, 1, arguments, tmp_path)], tmp_path)
    check_equal(tmp_path / "out.npz", alone)
