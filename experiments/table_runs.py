"""`python -m experiments tables`: every method on every table of a collection, one
process and one thread per fit.

    python -m experiments tables --use report --methods default,fast,hgb,lr,prior --jobs
    2 --out FILE.jsonl python -m experiments tables --src before=OTHER/src --methods
    default,before:default --out FILE.jsonl python -m experiments tables --summary --out
    FILE.jsonl --join PEERS.jsonl

A method is default, fast; hgb, lgbm, cat, lr, prior, realmlp, autogluon;
default-MEMBER, a pool without networks, forest, boosting, linear or frequencies; or
options such as "effort='fast',n_inducing=50" (then `;` separates methods). NAME:METHOD
takes the package of `--src NAME=PATH`. Tables below 1,600 rows take all seeds, larger
ones the first. Fits in --out are not repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import Any

from experiments.jobs import ROOT, find_commit
from experiments.table_data import COLLECTIONS, FEW_ROWS, USES, list_tables

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
METHODS = "default,fast,hgb,lr,prior"
KEY = ("collection", "table", "seed", "method", "train_rows")
Record = dict[str, Any]


def name_machine() -> str:
    """Return the name of the CPU: seconds are compared only on the same one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = [
        line.partition(":")[2].strip()
        for line in lines
        if line.startswith("model name")
    ]
    return f"{found[0] if found else platform.machine()}, {os.cpu_count()} cores"


def read_records(paths: Iterable[Path]) -> list[Record]:
    """Return the records of the files."""
    lines: list[str] = []
    for path in paths:
        if path.exists():
            lines += path.read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def key_of(record: Record) -> tuple[Any, ...]:
    """What a fit is identified by."""
    return tuple(record.get(name, 0) for name in KEY)


def run_jobs(
    jobs: list[Record],
    trees: dict[str, Path],
    count: int,
    threads: int = 1,
    seconds: float | None = None,
) -> Iterator[Record]:
    """Run each job in a process of its own, `count` at a time, and yield its record
    when it ends.
    """
    origin = {
        name: {"machine": name_machine(), "code": find_commit(tree, ".")}
        for name, tree in trees.items()
    }

    def run(job: Record) -> Record:
        name, _, method = job["method"].rpartition(":")
        environment = os.environ | dict.fromkeys(THREADS, str(threads))
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(trees[name]), str(ROOT), *inherited])
        )
        words = json.dumps(job | {"method": method})
        command = [sys.executable, "-m", "experiments.table_fits", words]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=environment,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return job | origin[name] | {"fail": f"over {seconds:g} seconds"}
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return (
                job
                | origin[name]
                | {"fail": f"exit code {done.returncode}: {said}"[:300]}
            )
        return job | origin[name] | json.loads(done.stdout.strip().splitlines()[-1])

    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(run, job) for job in jobs]
        try:
            for future in as_completed(waiting):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def run_missing(jobs: list[Record], args: argparse.Namespace) -> None:
    """Run the jobs that --out has not, and append their records to it."""
    trees = {"": ROOT / "src"} | {
        name: Path(path).resolve() for name, path in map(_name_tree, args.src)
    }
    done = {
        key_of(record) for record in read_records([args.out]) if "fail" not in record
    }
    todo = [job for job in jobs if key_of(job) not in done]
    print(f"{len(todo)} fits to do, {len(jobs) - len(todo)} done before", flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("a", encoding="utf-8") as file:
        for record in run_jobs(todo, trees, args.jobs, args.threads, args.seconds):
            file.write(json.dumps(record) + "\n")
            file.flush()
            said = record.get(
                "fail"
            ) or "NLL {nll:.4f}, fit {fit:.2f} s, predict {predict:.2f} s".format_map(
                record
            )
            print(
                record["method"],
                record["table"],
                record["seed"],
                record.get("rows", ""),
                said,
                flush=True,
            )


def _name_tree(text: str) -> tuple[str, str]:
    name, _, path = text.rpartition("=")
    return name, path


def split_methods(text: str) -> list[str]:
    """Return the methods; commas belong to options where there are any."""
    return [
        method.strip()
        for method in text.split(";" if ";" in text or "=" in text else ",")
    ]


def make_jobs(args: argparse.Namespace) -> list[Record]:
    """Return the fits of the selected tables, seeds and methods, method by method."""
    entries = []
    for name in args.collection.split(","):
        entries += list_tables(name, args.use)
    if args.only:
        entries = [e for e in entries if e.name in args.only.split(",")]
    seeds = [int(seed) for seed in args.seeds.split(",")]
    return [
        {
            "collection": entry.collection,
            "use": entry.use,
            "table": entry.name,
            "seed": seed,
            "method": method,
        }
        for method, entry, seed in product(split_methods(args.methods), entries, seeds)
        if entry.rows < FEW_ROWS or seed == seeds[0]
    ]


def add_run_options(parser: argparse.ArgumentParser, out: Path) -> None:
    """Declare the options of every command that fits tables."""
    add = parser.add_argument
    add("--jobs", type=int, default=1, help="number of processes")
    add("--threads", type=int, default=1, help="threads per process")
    add("--seconds", type=float, help="longest wall time of a fit")
    add("--out", type=Path, default=out, help=f"file of the records (default {out})")
    add(
        "--src",
        action="append",
        default=[],
        help="NAME=PATH: package for NAME:METHOD; PATH: for all others",
    )
    add("--summary", action="store_true", help="only print the summary")
    add(
        "--join",
        type=Path,
        nargs="*",
        default=[],
        help="more files for the summary, such as those of peers",
    )
    add(
        "--csv",
        type=Path,
        help="write what the pages show: records with paired errors, without losses",
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add_run_options(parser, Path("tables.jsonl"))
    add(
        "--use",
        default="all",
        choices=("all", *USES),
        help="tables that chose defaults, or the others",
    )
    add(
        "--collection",
        default="raw",
        help=f"of {', '.join(COLLECTIONS)}; several with commas",
    )
    add("--methods", default=METHODS, help=f"default {METHODS}")
    add("--seeds", default="0,1,2")
    add("--only", help="only these tables")
    args = parser.parse_args(arguments)
    if not args.summary:
        run_missing(make_jobs(args), args)
    from experiments.table_summary import make_results, write_results
    from experiments.table_text import summarize

    results = make_results(read_records([args.out, *args.join]))
    if args.csv is not None:
        write_results(args.csv, results)
    print(summarize(results))
    return 0
