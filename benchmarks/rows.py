"""Rows per second, peak memory and bytes read of one pass over a large Parquet folder.

Generated rows: 10 columns of float32 and 4 classes, written in pieces of a million rows, row groups of 100,000. SEP reads them
twice: the survey, which finds classes, scales and starting points, and one shuffled pass of mini-batches. The sweeps that
settle the sites after the last pass are left out. Each measurement runs in new processes; before it the files are dropped from
the page cache, so that the bytes read come from the disk.

    python benchmarks/rows.py [--rows 1000000 10000000] [--ranks 2] [--inducing 50] [--batch 10000] [--dtype float64]
                              [--device cuda] [--folder FOLDER] [--csv FILE]
    python benchmarks/rows.py --reading [--rows 1000000]

--reading times what every rank does without a model, in CPU seconds per row: the survey, the shuffled reading of its own rows, and
the order of all rows, which it also computes for those of other ranks.

Rows of the table are appended to benchmarks/results/rows.csv and rows_reading.csv. The folder needs 42 bytes per row; the files are
deleted at the end.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import shutil
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

COLUMNS, CLASSES = 10, 4
PIECE, GROUP = 1_000_000, 100_000  # rows of a file and of a row group
TEST = 20_000
RESULTS = Path(__file__).parent / "results" / "rows.csv"
FIELDS = (
    "device ranks rows M batch dtype survey_s survey_cpu_s pass_s pass_cpu_s rows_per_s rows_per_cpu_s steps step_ms "
    "peak_mb read_mb nll nll_of_truth load"
).split()


def make_rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and the true log probabilities: a softmax of four smooth functions."""
    rng = np.random.default_rng(seed)
    shape = np.random.default_rng(0)
    slopes, bends = (shape.standard_normal((COLUMNS, CLASSES)).astype(np.float32) for _ in range(2))
    X = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
    f = 2 * np.sin(X @ bends / 2) + X @ slopes / 2
    f = 2 * (f - f.max(1, keepdims=True))
    log_p = f - np.log(np.exp(f).sum(1, keepdims=True))
    noise = -np.log(np.maximum(rng.standard_exponential((rows, CLASSES), dtype=np.float32), 1e-30))
    return X, (f + noise).argmax(1).astype(np.int16), log_p


def write_parquet(folder: Path, rows: int) -> None:
    """Write the rows in pieces, one file each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for i, start in enumerate(range(0, rows, PIECE)):
        X, y, _ = make_rows(min(PIECE, rows - start), i + 1)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(COLUMNS)}, "label": y})
        path = folder / f"{i:05d}.parquet"
        pq.write_table(table, path, row_group_size=GROUP, compression="none", use_dictionary=False)


def drop_from_cache(folder: Path) -> None:
    """Ask the system to forget the files, so that the next read is from the disk."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_from_disk() -> int:
    """Return the bytes that this process made the system read from a disk; 0 where it does not say."""
    try:
        fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    except OSError:
        return 0
    return int(fields["read_bytes"])


def measure(job: dict[str, Any]) -> None:
    """Fit in this process, one of several ranks or the only one; rank 0 prints what it found."""
    import torch

    from cavity import GPClassifier, distributed
    from cavity.callbacks import Callback

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    group = distributed.join()
    stamps: dict[str, float] = {}

    class Clock(Callback):
        """Time the pass, then leave out the sweeps that settle the sites."""

        def start(self, run: Any) -> None:
            stamps["start"], stamps["cpu start"] = time.perf_counter(), time.process_time()

        def epoch(self, run: Any, row: dict[str, Any]) -> bool:
            stamps["end"], stamps["cpu end"] = time.perf_counter(), time.process_time()
            run.plan = replace(run.plan, max_seconds=1e-9)  # no time to settle the sites, or for the evidence
            return True

    steps = -(-job["rows"] // job["batch"])
    options = {k: job[k] for k in ("device", "dtype")} | {"n_inducing": job["M"], "batch_size": job["batch"]}
    model = GPClassifier("sep", max_epochs=1, random_state=0, callbacks=[Clock()], **options)
    begun, cpu, read = time.perf_counter(), time.process_time(), bytes_from_disk()
    try:
        model.fit(job["folder"], target="label")
    finally:
        if job["device"] == "cuda":
            torch.cuda.synchronize()
    mine = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        (bytes_from_disk() - read) / 2**20,
        stamps["cpu start"] - cpu,
        stamps["cpu end"] - stamps["cpu start"],
    )
    peak, read, survey_cpu, pass_cpu = np.sum(group.gather(mine), axis=0).tolist()
    if group.rank == 0:
        X, y, truth = make_rows(TEST, 10**6)
        log_p = model.predict_log_proba(X)
        took = stamps["end"] - stamps["start"]
        found = {
            "survey_s": stamps["start"] - begun,
            "survey_cpu_s": survey_cpu,
            "pass_s": took,
            "pass_cpu_s": pass_cpu,
            "rows_per_s": job["rows"] / took,
            "rows_per_cpu_s": job["rows"] / pass_cpu,
            "steps": steps,
            "step_ms": 1e3 * took / steps,
            "peak_mb": peak,
            "read_mb": read,
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
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job['ranks']}"]
    done = subprocess.run(
        [*command, __file__, "--job", json.dumps(job)], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {name: value for name, value in job.items() if name in FIELDS} | found


def measure_reading(folder: Path, rows: int, batch: int) -> dict[str, float]:
    """Return CPU seconds per row of the survey, of reading, and of the order of rows that are not read."""
    import torch

    from cavity.data import Stream, arrow
    from cavity.data.content import Content
    from cavity.data.summary import survey

    source = arrow.Arrow(folder, "label")
    start = time.process_time()
    found = survey(source, (0, 1))
    seconds = {"survey": time.process_time() - start}
    content = Content(found.classes, found.sections)
    shape = (rows, COLUMNS, torch.float64, torch.device("cpu"), content)
    data = Stream(source, found.classes, np.ones(CLASSES), *shape)
    for name, keep in (("read", range(rows)), ("order", range(0))):
        start = time.process_time()
        for _ in data.batches(batch, torch.Generator().manual_seed(0), keep):
            pass
        seconds[name] = time.process_time() - start
    return {name: value / rows for name, value in seconds.items()}


def append(path: Path, fields: list[str], row: dict[str, Any]) -> None:
    """Append a row to the CSV file."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, fields)
        if new:
            writer.writeheader()
        writer.writerow({k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--inducing", type=int, nargs="+", default=[50])
    parser.add_argument("--batch", type=int, nargs="+", default=[10_000])
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, help="where to write the rows (default: a temporary folder)")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--reading", action="store_true", help="time only the reading")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        return measure(json.loads(args.job))
    common = {"device": args.device, "ranks": args.ranks, "dtype": args.dtype}
    for rows in args.rows:
        folder = Path(tempfile.mkdtemp(dir=args.folder))
        try:
            start = time.perf_counter()
            write_parquet(folder, rows)
            print(f"wrote {rows:,} rows in {time.perf_counter() - start:.0f} s", flush=True)
            if args.reading:
                row = {"rows": rows, "batch": args.batch[0], **measure_reading(folder, rows, args.batch[0])}
                append(args.csv or RESULTS.with_name("rows_reading.csv"), list(row), row)
                print(row, flush=True)
                continue
            for M in args.inducing:
                for batch in args.batch:
                    drop_from_cache(folder)
                    job = common | {"rows": rows, "M": M, "batch": batch, "folder": str(folder)}
                    row = measure_in_processes(**job)
                    append(args.csv or RESULTS, FIELDS, row)
                    print(
                        " ".join(
                            f"{k}={v:.5g}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()
                        ),
                        flush=True,
                    )
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
