"""From a file to a report in two commands: CPU seconds of `cavity fit` and `cavity report`, and the estimate that `fit` prints.

The tables are those of benchmarks/tables.py, as people have them in files, row numbers included. Each command runs in a process of
its own with one thread. On a busy machine the seconds of training are those in which the process had a CPU. The exit code is 1 if a
command takes more than a minute of CPU, or an estimate is wrong by more than a factor of two.

    python benchmarks/reports.py --data FOLDER [--sets chile males] [--jobs 2]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tables import SETS

TABLES = ("penguins", "chile", "fishing", "males", "housevotes", "mushroom")
MOST_SECONDS, MOST_RATIO = 60.0, 2.0
UNITS = {"s": 1, "minutes": 60, "minute": 60, "min": 60, "hours": 3600, "h": 3600}


class Figure(NamedTuple):
    """CPU seconds of the commands, and what the first one said before and after it trained."""

    table: str
    fit: float
    report: float
    trained: float
    estimate: float

    @property
    def is_good(self) -> bool:
        ratio = self.estimate / max(1.0, self.trained)  # an estimate is at least a second
        return max(self.fit, self.report) <= MOST_SECONDS and 1 / MOST_RATIO <= ratio <= MOST_RATIO


def run(*arguments: str, cwd: str) -> tuple[float, float, str]:
    """Return the CPU seconds of a command, their share of its wall-clock time, and what it printed."""
    begun = time.perf_counter()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cavity", *arguments]
    with subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"cavity {' '.join(arguments)} failed:\n{printed}")
    seconds = used.ru_utime + used.ru_stime
    return seconds, min(1.0, seconds / (time.perf_counter() - begun)), printed


def measure(name: str, data: str) -> Figure:
    path, target = SETS[name]
    file = str(Path(data).resolve() / path)
    with tempfile.TemporaryDirectory() as folder:
        fit, share, printed = run(
            "fit", file, "--target", target, "--out", "m.cavity", "--device", "cpu", cwd=folder
        )
        report, *_ = run("report", "m.cavity", file, "--out", "r.html", cwd=folder)
        assert (Path(folder) / "r.html").stat().st_size > 10_000
    about = re.search(r"; about ([\d.]+) (\w+)", printed)
    trained = re.search(r"Trained in ([\d.]+) (\w+)", printed)
    assert about is not None and trained is not None, printed
    seconds, estimate = (float(found[1]) * UNITS[found[2]] for found in (trained, about))
    return Figure(name, fit, report, share * seconds, estimate)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=os.environ.get("CAVITY_DATA", "."), help="folder of the tables")
    parser.add_argument("--sets", nargs="*", default=TABLES)
    parser.add_argument("--jobs", type=int, default=1, help="tables at a time")
    args = parser.parse_args()
    print(
        f"{'table':12}{'fit, CPU s':>12}{'report, CPU s':>15}{'trained in, s':>15}{'estimate, s':>13}  goal"
    )
    good = True
    with ThreadPoolExecutor(args.jobs) as pool:
        for row in pool.map(partial(measure, data=args.data), args.sets):
            good &= row.is_good
            print(
                f"{row.table:12}{row.fit:12.1f}{row.report:15.1f}{row.trained:15.1f}{row.estimate:13.1f}"
                f"  {'met' if row.is_good else 'missed'}",
                flush=True,
            )
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
