"""Rows per second, peak memory and bytes read of one pass over a large Parquet folder.

Generated rows: 10 columns of float32 and 4 classes, written in pieces of a million
rows, row groups of 100,000. SEP reads them twice: the survey, which finds classes,
scales and starting points, and one shuffled pass of mini-batches. The sweeps that
settle the sites after the last pass are left out. Each measurement runs in new
processes; before it the files are dropped from the page cache, so that the bytes read
come from the disk.

    python benchmarks/rows.py [--rows 1000000 10000000] [--ranks 2] [--threads 1]
    [--inducing 50] [--batch 10000]
                              [--dtype float64] [--device cuda] [--folder FOLDER] [--csv
                              FILE]

Rows of the table are appended to benchmarks/results/rows.csv. The files need 42 bytes
per row. Files in FOLDER stay, and those already there are not written again; without it
they are deleted at the end.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

COLUMNS = 10
CLASSES = 4
PIECE, GROUP = 1_000_000, 100_000  # rows of a file and of a row group
TEST = 20_000
RESULTS = Path(__file__).parent / "results" / "rows.csv"
FIELDS = (
    "device machine ranks threads rows M batch dtype survey_s survey_cpu_s pass_s "
    "pass_cpu_s rows_per_s rows_per_cpu_s steps "
    "step_ms peak_mb read_mb nll nll_of_truth load"
).split()


def make_rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and the true log probabilities: a softmax of four smooth
    functions.
    """
    rng = np.random.default_rng(seed)
    shape = np.random.default_rng(0)
    slopes, bends = (
        shape.standard_normal((COLUMNS, CLASSES)).astype(np.float32) for _ in range(2)
    )
    X = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
    f = 2 * np.sin(X @ bends / 2) + X @ slopes / 2
    f = 2 * (f - f.max(1, keepdims=True))
    log_p = f - np.log(np.exp(f).sum(1, keepdims=True))
    noise = -np.log(
        np.maximum(rng.standard_exponential((rows, CLASSES), dtype=np.float32), 1e-30)
    )
    return X, (f + noise).argmax(1).astype(np.int16), log_p


def write_parquet(folder: Path, rows: int) -> None:
    """Write the rows in pieces that are not there yet, then ask the system to forget
    the files, so that reads are from the disk.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    for i, start in enumerate(range(0, rows, PIECE)):
        path = folder / f"{i:05d}.parquet"
        if not path.exists():
            X, y, _ = make_rows(min(PIECE, rows - start), i + 1)
            table = pa.table({**{f"x{j}": X[:, j] for j in range(COLUMNS)}, "label": y})
            fresh = path.with_name(f".{path.name}")  # a file with its own name is whole
            pq.write_table(
                table,
                fresh,
                row_group_size=GROUP,
                compression="none",
                use_dictionary=False,
            )
            fresh.rename(path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_from_disk() -> int:
    """Return the bytes that this process made the system read from a disk; 0 where it
    does not say.
    """
    try:
        fields = dict(
            line.split(": ") for line in Path("/proc/self/io").read_text().splitlines()
        )
    except OSError:
        return 0
    return int(fields["read_bytes"])


def measure(job: dict[str, Any]) -> None:
    """Fit in this process, one of several ranks or the only one; rank 0 prints what it
    found.
    """
    import torch

    from cavity import GPClassifier, distributed
    from cavity.callbacks import Callback
    from cavity.fitting.options import nest

    class Clock(Callback):
        """Times the pass, and leaves no time to settle the sites or for the evidence."""

        def start(self, run: Any) -> None:
            self.began = np.array([time.perf_counter(), time.process_time()])

        def epoch(self, run: Any, row: dict[str, Any]) -> bool:
            self.spent = (
                np.array([time.perf_counter(), time.process_time()]) - self.began
            )
            run.plan, run.pace = replace(run.plan, max_seconds=1e-9), math.inf
            return True

    warnings.simplefilter("ignore")
    torch.set_num_threads(job["threads"])
    group = distributed.join()
    clock = Clock()
    read = -bytes_from_disk()
    options = {
        "n_inducing": job["M"],
        "batch_size": job["batch"],
        "device": job["device"],
        "dtype": job["dtype"],
    }
    model = GPClassifier(
        "sep", **nest(max_epochs=1, random_state=0, callbacks=[clock], **options)
    )
    begun = np.array([time.perf_counter(), time.process_time()])
    model.fit(job["folder"], target="label")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    mine = (
        peak,
        (bytes_from_disk() + read) / 2**20,
        (clock.began - begun)[1],
        clock.spent[1],
    )
    peak, read_mb, survey_cpu, pass_cpu = np.sum(group.gather(mine), axis=0).tolist()
    if group.rank == 0:
        X, y, truth = make_rows(TEST, 10**6)
        log_p = model.predict_log_proba(X)
        steps = -(-job["rows"] // job["batch"])
        spent = float(clock.spent[0])
        found = {
            "survey_s": float((clock.began - begun)[0]),
            "survey_cpu_s": survey_cpu,
            "pass_s": spent,
            "pass_cpu_s": pass_cpu,
            "rows_per_s": job["rows"] / spent,
            "rows_per_cpu_s": job["rows"] / pass_cpu,
            "steps": steps,
            "step_ms": 1e3 * spent / steps,
            "peak_mb": peak,
            "read_mb": read_mb,
            "nll": -float(log_p[np.arange(TEST), y].mean()),
            "nll_of_truth": -float(truth[np.arange(TEST), y].mean()),
            "load": os.getloadavg()[0],
        }
        print(json.dumps(found), flush=True)
    distributed.leave()


def measure_in_processes(**job: Any) -> dict[str, Any]:
    """Measure one fit in new processes and return a row of the table."""
    command = [sys.executable]
    if job["ranks"] > 1:
        command += [
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={job['ranks']}",
        ]
    command += [__file__, "--job", json.dumps(job)]
    environment = (
        {"GLOO_SOCKET_IFNAME": "lo"}
        | os.environ
        | {"OMP_NUM_THREADS": str(job["threads"])}
    )
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    row = {name: value for name, value in job.items() if name in FIELDS}
    return (
        row | {"machine": platform.machine()} | json.loads(done.stdout.splitlines()[-1])
    )


def append(path: Path, row: dict[str, Any]) -> None:
    """Append a row to the CSV file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        writer.writerow(
            {
                k: float(f"{v:.6g}") if isinstance(v, float) else v
                for k, v in row.items()
            }
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of every rank")
    parser.add_argument("--inducing", type=int, nargs="+", default=[50])
    parser.add_argument("--batch", type=int, nargs="+", default=[10_000])
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--folder",
        type=Path,
        help="where to write the rows (default: a temporary folder)",
    )
    parser.add_argument("--csv", type=Path, default=RESULTS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        return measure(json.loads(args.job))
    common = {
        name: getattr(args, name) for name in ("device", "ranks", "threads", "dtype")
    }
    for rows, M, batch in itertools.product(args.rows, args.inducing, args.batch):
        with tempfile.TemporaryDirectory() as temporary:
            folder = (args.folder or Path(temporary)) / f"rows-{rows}"
            write_parquet(folder, rows)
            row = measure_in_processes(
                **common, rows=rows, M=M, batch=batch, folder=str(folder)
            )
        append(args.csv, row)
        print(row, flush=True)


if __name__ == "__main__":
    main()
