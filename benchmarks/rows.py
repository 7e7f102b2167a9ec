"""Rows per second, peak memory and bytes read of one pass over a large Parquet folder.

Generated rows: 10 columns of float32 and 4 classes, written in pieces of a million rows, row groups of 100,000. SEP reads them
twice: the survey, which finds classes, scales and starting points, and one shuffled pass of mini-batches. The sweeps that
settle the sites after the last pass are left out. Each measurement runs in new processes; before it the files are dropped from
the page cache, so that the bytes read come from the disk.

    python benchmarks/rows.py [--rows 1000000 10000000] [--ranks 2] [--threads 1] [--inducing 50] [--batch 10000]
                              [--dtype float64] [--device cuda] [--folder FOLDER] [--writers 16] [--csv FILE]
    python benchmarks/rows.py --reading [--rows 1000000]

Writing and fitting can be two commands, and either may be cut short and started again:

    python benchmarks/rows.py --rows 100000000 --folder FOLDER --writers 16 --write-only
    python benchmarks/rows.py --rows 100000000 --folder FOLDER --ranks 2 --checkpoint FOLDER/run.ckpt

Files in FOLDER stay; those already there are not written again. With --checkpoint the run is written twice a minute, and the same
command continues it. The seconds of a resumed run are those of its steps; finding its place again is not counted.

--reading times what every rank does without a model, in CPU seconds per row: the survey, the shuffled reading of its own rows, and
the order of all rows, which it also computes for those of other ranks.

Rows of the table are appended to benchmarks/results/rows.csv and rows_reading.csv. The files need 42 bytes per row; without
--folder they are deleted at the end.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

COLUMNS, CLASSES = 10, 4
PIECE, GROUP = 1_000_000, 100_000  # rows of a file and of a row group
TEST = 20_000
RESULTS = Path(__file__).parent / "results" / "rows.csv"
REPORTS = 20  # progress lines of a pass
FIELDS = (
    "device machine ranks threads rows M batch dtype survey_s survey_cpu_s pass_s pass_cpu_s rows_per_s rows_per_cpu_s steps "
    "step_ms peak_mb read_mb nll nll_of_truth load"
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


def write_parquet(folder: Path, rows: int, writers: int) -> None:
    """Write the rows in pieces, one file each, in several processes; files that are there already are left as they are."""
    pieces = [(folder / f"{i:05d}.parquet", i, start) for i, start in enumerate(range(0, rows, PIECE))]
    missing = [piece for piece in pieces if not piece[0].exists()]
    print(f"{len(pieces) - len(missing)} of {len(pieces)} files are there", flush=True)
    begun, report = time.perf_counter(), -(-len(missing) // REPORTS)
    with ProcessPoolExecutor(writers, get_context("spawn")) as pool:
        jobs = [pool.submit(write_piece, path, i + 1, min(PIECE, rows - start)) for path, i, start in missing]
        for done, job in enumerate(as_completed(jobs), 1):
            job.result()
            if done % report == 0 or done == len(jobs):
                print(f"wrote {done} of {len(jobs)} files in {time.perf_counter() - begun:.0f} s", flush=True)


def write_piece(path: Path, seed: int, rows: int) -> None:
    """Write one file under a hidden name, then rename it: a file with its own name is whole."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y, _ = make_rows(rows, seed)
    table = pa.table({**{f"x{j}": X[:, j] for j in range(COLUMNS)}, "label": y})
    fresh = path.with_name(f".{path.name}")
    pq.write_table(table, fresh, row_group_size=GROUP, compression="none", use_dictionary=False)
    fresh.rename(path)


def drop_from_cache(folder: Path) -> None:
    """Ask the system to forget the files, so that the next read is from the disk."""
    for path in folder.glob("*.parquet"):
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


def make_clock(job: dict[str, Any], chief: bool) -> Any:
    """Return a callback that times the pass, reports its progress and leaves out the sweeps that settle the sites."""
    from cavity.callbacks import Callback, Memory

    steps = -(-job["rows"] // job["batch"])

    class Clock(Callback):
        every_step = False
        spent, cpu, first = 0.0, 0.0, False  # of the pass, also before a resume
        read = -bytes_from_disk()  # what the imports read does not count

        def start(self, run: Any) -> None:
            self.last = self.began, self.began_cpu = time.perf_counter(), time.process_time()
            self.said = 0
            if run.history:
                self.skip_sweeps(run)  # resumed after the pass

        def count(self) -> None:
            """Add the time since the last call; after a resume the rows of earlier steps are read again, and do not count."""
            now = time.perf_counter(), time.process_time()
            if not self.first:
                self.spent, self.cpu = self.spent + now[0] - self.last[0], self.cpu + now[1] - self.last[1]
            self.last, self.first = now, False

        def step(self, run: Any) -> None:
            self.count()
            done = int(run.state.position)
            if chief and done * REPORTS // steps > self.said:
                self.said = done * REPORTS // steps
                print(f"step {done:,} of {steps:,} after {self.spent:.0f} s", flush=True)

        def epoch(self, run: Any, row: dict[str, Any]) -> bool:
            self.count()
            self.skip_sweeps(run)
            return True

        def skip_sweeps(self, run: Any) -> None:
            """Leave no time to settle the sites, or for the evidence."""
            run.plan, run.pace = replace(run.plan, max_seconds=1e-9), math.inf

        def memory(self) -> Memory:
            return Memory({"spent": self.spent, "cpu": self.cpu, "read": bytes_from_disk() + self.read})

        def recall(self, memory: Memory) -> None:
            self.spent, self.cpu = memory.facts["spent"], memory.facts["cpu"]
            self.read += memory.facts["read"]
            self.first = True

    return Clock()


def measure(job: dict[str, Any]) -> None:
    """Fit in this process, one of several ranks or the only one; rank 0 prints what it found."""
    import torch

    from cavity import GPClassifier, distributed
    from cavity.options import nest

    warnings.simplefilter("ignore")
    torch.set_num_threads(job["threads"])
    group = distributed.join()
    clock = make_clock(job, group.rank == 0)
    options = {k: job[k] for k in ("device", "dtype", "checkpoint")} | {
        "resume": job["checkpoint"] is not None
    }
    options |= {"n_inducing": job["M"], "batch_size": job["batch"], "checkpoint_every": 30}
    model = GPClassifier("sep", **nest(max_epochs=1, random_state=0, callbacks=[clock], **options))
    begun, cpu = time.perf_counter(), time.process_time()
    try:
        model.fit(job["folder"], target="label")
    finally:
        if job["device"] == "cuda":
            torch.cuda.synchronize()
    mine = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        (bytes_from_disk() + clock.read) / 2**20,
        clock.began_cpu - cpu,
        clock.cpu,
    )
    peak, read, survey_cpu, pass_cpu = np.sum(group.gather(mine), axis=0).tolist()
    if group.rank == 0:
        X, y, truth = make_rows(TEST, 10**6)
        log_p = model.predict_log_proba(X)
        steps = -(-job["rows"] // job["batch"])
        found = {
            "survey_s": clock.began - begun,
            "survey_cpu_s": survey_cpu,
            "pass_s": clock.spent,
            "pass_cpu_s": pass_cpu,
            "rows_per_s": job["rows"] / clock.spent,
            "rows_per_cpu_s": job["rows"] / pass_cpu,
            "steps": steps,
            "step_ms": 1e3 * clock.spent / steps,
            "peak_mb": peak,
            "read_mb": read,
            "nll": -float(log_p[np.arange(TEST), y].mean()),
            "nll_of_truth": -float(truth[np.arange(TEST), y].mean()),
            "load": os.getloadavg()[0],
        }
        print(json.dumps(found), flush=True)
    distributed.leave()


def measure_in_processes(**job: Any) -> dict[str, Any]:
    """Measure one fit in new processes, show their progress, and return a row of the table."""
    command = [sys.executable]
    if job["ranks"] > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job['ranks']}"]
    command += [__file__, "--job", json.dumps(job)]
    environment = {"GLOO_SOCKET_IFNAME": "lo"} | os.environ | {"OMP_NUM_THREADS": str(job["threads"])}
    lines = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            print(line, end="", flush=True)
    if running.returncode:
        raise SystemExit(f"the fit ended with status {running.returncode}")
    found: dict[str, Any] = json.loads(lines[-1])
    row = {name: value for name, value in job.items() if name in FIELDS}
    return row | {"machine": platform.machine()} | found


def measure_reading(folder: Path, rows: int, batch: int) -> dict[str, float]:
    """Return CPU seconds per row of the survey, of reading, and of the order of rows that are not read."""
    import torch

    from cavity.rows.batches.checksums import Content
    from cavity.rows.batches.source_survey import survey
    from cavity.rows.batches.stream import Stream
    from cavity.rows.files import arrow_source

    source = arrow_source.Arrow(folder, "label")
    start = time.process_time()
    found = survey(source, (0, 1))
    seconds = {"survey": time.process_time() - start}
    content = Content(found.classes, found.sections)
    shape = (rows, COLUMNS, torch.float64, torch.device("cpu"), content)
    data = Stream(source, found.classes, np.ones(CLASSES), *shape)
    for name, keep in (("read", range(rows)), ("order", range(0))):
        start = time.process_time()
        for _ in data._replace(mine=keep).batches(batch, torch.Generator().manual_seed(0)):
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


@contextmanager
def open_folder(folder: Path | None, rows: int) -> Iterator[Path]:
    """Give a folder for these rows: one in `folder`, which stays, or a temporary one."""
    if folder is not None:
        own = folder / f"rows-{rows}"
        own.mkdir(parents=True, exist_ok=True)
        yield own
        return
    own = Path(tempfile.mkdtemp())
    try:
        yield own
    finally:
        shutil.rmtree(own)


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
    parser.add_argument("--folder", type=Path, help="where to write the rows (default: a temporary folder)")
    parser.add_argument("--writers", type=int, default=1, help="processes that write")
    parser.add_argument("--write-only", action="store_true", help="write the rows and stop; needs --folder")
    parser.add_argument("--checkpoint", help="file of the run, to continue it with the same command")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--reading", action="store_true", help="time only the reading")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        return measure(json.loads(args.job))
    if args.write_only and args.folder is None:
        parser.error("--write-only needs --folder")
    common = {name: getattr(args, name) for name in ("device", "ranks", "threads", "dtype", "checkpoint")}
    for rows in args.rows:
        with open_folder(args.folder, rows) as folder:
            write_parquet(folder, rows, args.writers)
            if args.write_only:
                continue
            if args.reading:
                row = {"rows": rows, "batch": args.batch[0], **measure_reading(folder, rows, args.batch[0])}
                append(args.csv or RESULTS.with_name("rows_reading.csv"), list(row), row)
                print(row, flush=True)
                continue
            for M in args.inducing:
                for batch in args.batch:
                    drop_from_cache(folder)
                    job = common | {"rows": rows, "M": M, "batch": batch, "folder": str(folder)}
                    append(args.csv or RESULTS, FIELDS, measure_in_processes(**job))


if __name__ == "__main__":
    main()
