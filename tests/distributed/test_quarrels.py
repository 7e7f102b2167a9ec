"""Ranks that were given different things, or fall silent: every other rank says which one, and soon."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cavity import BadOption
from cavity.distributed import join
from distributed.quarrels import differ
from distributed.ranks import find_port, run_ranks

SCRIPT = Path(__file__).with_name("quarrels.py")


def launch(world, *arguments, silent=None, seconds=240):
    """Start the ranks without torchrun, which would end all of them when one fails; return what each printed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WORLD_SIZE": str(world)}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_port())}
    ranks, outputs = [], [tempfile.TemporaryFile("w+") for _ in range(world)]
    try:
        for rank in range(world):
            ranks.append(
                subprocess.Popen(
                    [sys.executable, str(SCRIPT), *map(str, arguments)],
                    env=environment | {"RANK": str(rank)},
                    stdout=outputs[rank],
                    stderr=subprocess.STDOUT,
                )
            )
        for rank, process in enumerate(ranks):
            if rank != silent:
                process.wait(seconds)
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    found = []
    for rank, file in enumerate(outputs):
        file.seek(0)
        text = file.read()
        file.close()
        assert rank == silent or ranks[rank].returncode == 0, text[-3000:]
        found.append([json.loads(line) for line in text.splitlines() if line.startswith(('["', '"'))])
    return found


@pytest.fixture(scope="module")
def quarrels(tmp_path_factory):
    first, second = run_ranks(differ, tmp_path_factory.mktemp("rows"))
    return {name: (text, second[name]) for name, text in first.items()}


DIFFERENCES = {
    "rows": "BadInput: rank 1 and rank 0 differ in the digest of the rows",
    "one weight": "BadInput: rank 1 and rank 0 differ in the digest of the rows",
    "number of rows": "BadInput: rank 1 and rank 0 differ in the number of rows: 59 and 60",
    "features": "BadInput: rank 1 and rank 0 differ in the number of features: 1 and 2",
    "labels": "BadInput: rank 1 and rank 0 differ in the classes",
    "argument": "BadOption: rank 1 and rank 0 differ in the argument n_inducing: 5 and 4",
    "version": "BadOption: rank 1 and rank 0 differ in the version of cavity: 0.0.1 and",
    "method": "BadOption: rank 1 and rank 0 differ in the argument method: 'ep' and 'sep'",
    "targets": "BadInput: rank 1 and rank 0 differ in the digest of the rows",
    "file": "BadInput: rank 1 and rank 0 differ in the first, middle and last rows of the source",
    "batches": "BadInput: rank 1 and rank 0 differ in the digest of the rows",
}


def test_ranks_that_differ_say_so_before_the_first_step(quarrels):
    """B3: rank 1 with X + 1 and y[::-1] finished with exit 0, and the models disagreed by 0.945."""
    for name, words in DIFFERENCES.items():
        first, second = quarrels[name]
        assert first == second and words in first, name


def test_a_rank_that_cannot_read_its_rows_is_named_on_the_others(quarrels):
    for name, words in (("missing value", "contains NaN"), ("missing file", "does not exist")):
        first, second = quarrels[name]
        assert first.startswith("BadInput: rank 1 failed: ") and words in first and words in second


def test_ranks_that_agree_go_on_also_after_a_quarrel(quarrels):
    assert quarrels["nothing"] == quarrels["nothing again"] == ("no error", "no error")


@pytest.mark.slow  # test_heartbeat.py has the quick ones
@pytest.mark.parametrize(
    "how, world, silent",
    [
        ("stop", 2, 1),
        ("stop", 3, 0),
        ("kill", 3, 2),
        ("busy", 2, 1),
    ],
)
def test_a_silent_rank_is_named_by_all_others_within_a_minute(how, world, silent):
    """B8: torch waited for 30 minutes. Rank 0 keeps the store of the ranks."""
    found = launch(world, how, silent, silent=silent)
    for rank, lines in enumerate(found):
        if rank != silent:
            ((name, text, seconds),) = lines
            assert name == how and seconds < 60
            assert text.startswith(f"LostRank: rank {silent} of {world} does not answer"), (rank, text)
            assert "resume=True" in text


@pytest.mark.slow
@pytest.mark.parametrize("silent", [0, 1])
def test_a_stopped_process_is_named_long_before_the_communication_times_out(silent):
    """Gloo stands in for NCCL: the heartbeat does not use the backend."""
    found = launch(2, "beat", silent, silent=silent)
    name, text, seconds = found[1 - silent][0]
    assert name == "beat" and text.startswith(f"rank {silent} of 2 has not answered") and seconds < 60


@pytest.mark.parametrize("timeout", [0, -1, "long", True, float("nan"), float("inf")])
def test_a_timeout_is_a_positive_number(timeout):
    with pytest.raises(BadOption, match="timeout="):
        join(timeout=timeout)
