"""Whether the numbers on screens hold on fresh rows: `python -m experiments law`.

Sixty generated tables are fitted, and each number that a fit shows about its quality is
compared with its value on 20,000 fresh rows. z is their difference in standard errors.
Goals: 94 % of each number within two errors, mean z within .3.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing import TimeoutError, get_context
from pathlib import Path
from typing import Any

import numpy as np

from experiments.jobs import ROOT
from experiments.law_tables import TABLES, Case, list_cases

RESULTS = ROOT / "benchmarks/results"
FILE = "law.csv"
COVERED = 0.94
MEAN_Z = 0.3
REGRESSED = ("numbers", "texts", "copies", "integers", "missing cells")
WORST = 3  # tables to name
LONGEST = 86_400.0  # seconds to wait for one fit


def measure(job: tuple[Case, bool]) -> list[dict[str, Any]]:
    """Fit a table once, and return a row for each number."""
    case, is_regression = job
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    from experiments import law_fits

    judge = law_fits.judge_regressor if is_regression else law_fits.judge_classifier
    found = judge(case)
    seconds = round(time.perf_counter() - began, 1)
    what = "target" if is_regression else "classes"
    print(f"{seconds:6.1f} s  {what} of table {case.number}, {case.kind}", flush=True)
    return [
        {**case._asdict(), **shown._asdict(), "z": shown.z, "seconds": seconds}
        for shown in found
    ]


def list_jobs(cases: Sequence[Case]) -> list[tuple[Case, bool]]:
    """Return all fits, those that take longest first."""
    jobs = [(case, False) for case in cases]
    jobs += [(case, True) for case in cases if case.kind in REGRESSED]
    return sorted(jobs, key=_guess_work, reverse=True)


def _guess_work(job: tuple[Case, bool]) -> int:
    """Return about how long a fit takes, in rows of one latent function."""
    case, is_regression = job
    if is_regression:
        return 16 * min(case.rows, 600)  # exact, and at most 600 rows
    if case.kind == "noise":
        return 4 * case.rows * case.classes  # folds search it for wrong labels

    return case.rows * case.classes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure some tables, several at a time, add the rows and print the law."""
    parser = argparse.ArgumentParser(prog="python -m experiments law")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--tables",
        type=int,
        nargs=2,
        default=(0, TABLES),
        help="first, and one after the last; ten in a row have all kinds",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="stop after so many; the next run adds fits that its file lacks",
    )
    parser.add_argument("--out", type=Path, default=RESULTS / FILE)
    args = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = _read_file(args.out)
    done = {(int(row["number"]), _is_regression(row)) for row in rows}
    jobs = list_jobs(list_cases(range(*args.tables)))
    jobs = [job for job in jobs if (job[0].number, job[1]) not in done]
    for found in _measure_all(jobs, args.jobs, time.monotonic() + args.seconds):
        rows += found
        done.add((found[0]["number"], _is_regression(found[0])))
        _write_file(args.out, rows)
    print(write_table(rows))
    late = [
        f"{case.number} {case.kind}"
        for case, is_regression in jobs
        if (case.number, is_regression) not in done
    ]
    print("not done:", ", ".join(late) or "none")
    return 0


def _measure_all(
    jobs: Sequence[tuple[Case, bool]], processes: int, end: float
) -> Iterator[list[dict[str, Any]]]:
    """Measure the jobs side by side, until the clock shows `end`."""
    with get_context("spawn").Pool(processes, maxtasksperchild=4) as pool:
        found = pool.imap_unordered(measure, jobs)
        for _ in jobs:
            left = min(end - time.monotonic(), LONGEST)
            try:
                yield found.next(max(left, 0.0))
            except TimeoutError:
                return


def _is_regression(row: dict[str, Any]) -> bool:
    return row["shown"].startswith("regression")


def _read_file(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []

    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _write_file(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def read_rows(results: Path) -> list[dict[str, Any]]:
    """Read the rows of a folder."""
    return _read_file(results / FILE)


def write_table(rows: Sequence[dict[str, Any]]) -> str:
    """Write a Markdown table: a line for each number, and what it misses."""
    tables = {int(row["number"]) for row in rows}
    lines = [
        f"{len(tables)} of {TABLES} tables.\n",
        "| number | values | within two errors | mean z | the law | worst tables |",
        "|---|---|---|---|---|---|",
    ]
    for shown in dict.fromkeys(row["shown"] for row in rows):
        lines.append(_write_line(shown, [r for r in rows if r["shown"] == shown]))

    return "\n".join(lines)


def _write_line(shown: str, rows: Sequence[dict[str, Any]]) -> str:
    z = np.array([float(row["z"]) for row in rows])
    share = float((np.abs(z) <= 2).mean())
    mean = float(z.mean())
    missed = []
    if share < COVERED:
        missed.append("too few")
    if abs(mean) > MEAN_Z:
        missed.append("too high" if mean > 0 else "too low")
    worst = [rows[i] for i in np.argsort(-np.abs(z))[:WORST]]
    names = [
        f"{row['number']} {row['kind']} {float(row['z']):+.1f}"
        for row in worst
        if abs(float(row["z"])) > 2
    ]
    law = ", ".join(missed) or "holds"
    return (
        f"| {shown} | {len(z)} | {share:.1%} | {mean:+.2f} | {law} "
        f"| {'; '.join(names)} |"
    )
