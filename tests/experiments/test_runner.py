"""A run continues where it stopped, a failed fit does not stop the others, and what is
left is reported.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cavity.errors import BadOption
from experiments import workers
from experiments.jobs import Job
from experiments.runner import RunOptions, run_target
from experiments.targets import TARGETS, Selection, Target


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped_and_a_bad_fit_costs_only_itself(
    tiny: Target, broken: Target, tmp_path: Path
) -> None:
    said: list[str] = []
    tally = run_target(broken, Selection(), RunOptions(tmp_path), said.append)
    assert tally.fitted == 1 and len(tally.failures) == 1
    assert any(line.startswith("failed: toy split 0 nonsense") for line in said)
    (first,) = broken.result_file(tmp_path).read()
    tally = run_target(tiny, Selection(), RunOptions(tmp_path), said.append)
    assert (tally.ready, tally.fitted, tally.left) == (1, 1, 0)
    rows = tiny.result_file(tmp_path).read()
    assert rows[0] == first and [row["split"] for row in rows] == [0, 1]
    assert {"nll", "error", "ece", "brier", "seconds"} <= {
        k for k, v in rows[1].items() if v == v and v != ""
    }
    assert rows[1]["commit"] and "torch" in rows[1]["versions"]


def test_a_budget_that_is_too_small_fits_nothing_and_says_so(
    tiny: Target, tmp_path: Path
) -> None:
    said: list[str] = []
    tally = run_target(
        tiny, Selection(splits=1), RunOptions(tmp_path, budget=3.0), said.append
    )
    assert (tally.fitted, tally.left) == (0, 1)
    assert any(
        "1 fits are still to do (the budget of 3 s is spent)" in line for line in said
    )
    assert any("Reduced: 1 of the 2 fits" in line for line in said)


def test_the_queue_passes_over_what_would_not_end_in_time() -> None:
    short, long = (Job("score", "toy", s, "ep", "4") for s in range(2))
    queue = workers.JobQueue(
        [long, short], {long: 100.0, short: 1.0}, time.monotonic() + 10
    )
    assert queue.pop() is short and queue.pop() is None and queue.jobs == [long]
    queue.pace = 0.01
    assert queue.pop() is long


@pytest.mark.parametrize(
    "selection",
    [
        Selection(sets=("nowhere",)),
        Selection(methods=("nothing",)),
        Selection(inducing=("7%",)),
    ],
)
def test_what_a_target_does_not_have_is_refused(selection: Selection) -> None:
    with pytest.raises(BadOption, match="target"):
        selection.apply(TARGETS["table2"])


def test_the_table_has_the_papers_cells() -> None:
    jobs = TARGETS["table2"].jobs()
    cells = {
        (j.dataset, j.method, j.inducing)
        for j in jobs
        if j.method in ("ep", "sep", "vi", "gfitc", "rep", "ep_outer")
    }
    assert len([c for c in cells if c[1] == "ep"]) == 24
    assert {j.split for j in jobs if j.method == "ep" and j.dataset == "glass"} == set(
        range(20)
    )
    assert {j.split for j in jobs if j.dataset == "satellite"} == set(range(5))
    assert len({job.key for job in jobs}) == len(jobs)


ABANDONED = """
import os, signal, sys
from experiments.jobs import Context, Job
from experiments.workers import Worker

if __name__ == "__main__":
    worker = Worker(Context(None, "cpu", 1, "none"))
    worker.assign(Job("score", "toy", 0, "ep", "50", options={"max_epochs": 10**6, "tol": 0.0}))
    print(worker.process.pid, flush=True)
    worker.pipe.poll(4)  # it is at work
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="reads /proc, which only Linux has"
)
def test_a_worker_ends_with_the_process_that_asked_even_in_the_middle_of_a_fit(
    tmp_path: Path,
) -> None:
    script = tmp_path / "abandoned.py"
    script.write_text(ABANDONED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    worker, until = int(done.stdout), time.monotonic() + 20
    while time.monotonic() < until and _runs(worker):
        time.sleep(0.1)
    assert not _runs(worker)


def _runs(pid: int) -> bool:
    """Whether a process still runs; a zombie does not."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False
