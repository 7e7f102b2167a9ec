"""Peak memory of training from Parquet, and what a step costs, as rows, inducing points and classes grow.

Each measurement is a process of its own: a generated file with 16 columns and 5 classes, M = 100, mini-batches of 1,000 for some
seconds, then what every fit ends with, full sweeps over the file. Peak resident memory is the operating system's figure; the
share before the fit (interpreter, torch) is listed beside it. Exponents are least-squares slopes of log time on log size.

    python benchmarks/memory.py [--rows 300000 3000000] [--seconds 10] [--methods sep ep] [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

COLUMNS, CLASSES, INDUCING, BATCH = 16, 5, 100, 1000
GROUP = 100_000  # rows of a row group
POINTS, LABELS = (50, 100, 200, 400), (3, 5, 10, 20)


def draw(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    slopes = np.random.default_rng(0).standard_normal((COLUMNS, classes))
    X = rng.standard_normal((rows, COLUMNS))
    return X, (X @ slopes + rng.standard_normal((rows, classes))).argmax(1)


def write(path: Path, rows: int) -> None:
    """A Parquet file, row group by row group."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(seed: int, size: int) -> Any:
        X, y = draw(size, CLASSES, seed)
        return pa.table({**{f"x{j}": X[:, j] for j in range(COLUMNS)}, "label": y})

    with pq.ParquetWriter(path, table(1, 1).schema) as writer:
        for start in range(0, rows, GROUP):
            writer.write_table(table(start + 1, min(GROUP, rows - start)))


def peak() -> float:
    """Megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(job: dict[str, Any]) -> dict[str, float]:
    """One fit, in this process."""
    from cavity import GPClassifier
    from cavity.training.guard import Guard

    warnings.simplefilter("ignore")
    steps: list[float] = []
    advance = Guard.advance

    def timed(self: Guard, state: Any, batch: Any, optimiser: Any, full: bool) -> Any:
        start = time.perf_counter()
        result = advance(self, state, batch, optimiser, full)
        if not full:
            steps.append(time.perf_counter() - start)
        return result

    Guard.advance = timed  # type: ignore[method-assign]
    model = GPClassifier(
        job["method"],
        n_inducing=job["M"],
        batch_size=BATCH,
        max_epochs=1,
        max_seconds=job["seconds"],
        random_state=0,
    )
    before, start = peak(), time.perf_counter()
    if "path" in job:
        model.fit(job["path"], target="label")
    else:
        model.fit(*draw(20 * BATCH, job["C"], 1))
    seconds = time.perf_counter() - start
    return {
        "before": before,
        "peak": peak(),
        "step": float(np.median(steps)),
        "steps": len(steps),
        "seconds": seconds,
    }


def apart(**job: Any) -> dict[str, float]:
    """The same in a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--job", json.dumps(job)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def slope(sizes: tuple[int, ...], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def from_files(rows: list[int], methods: list[str], seconds: float) -> list[dict[str, Any]]:
    print("method       rows   before MB   peak MB   steps   ms a step   fit s", flush=True)
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for n in rows:
            write(Path(folder) / f"{n}.parquet", n)
            for method in methods:
                got = apart(method=method, M=INDUCING, path=f"{folder}/{n}.parquet", seconds=seconds)
                table.append({"method": method, "rows": n, "M": INDUCING, "C": CLASSES, **got})
                print(
                    f"{method:6} {n:10d} {got['before']:11.0f} {got['peak']:9.0f} {got['steps']:7.0f} {1e3 * got['step']:11.1f} "
                    f"{got['seconds']:7.0f}",
                    flush=True,
                )
    return table


def from_sizes(methods: list[str], seconds: float) -> list[dict[str, Any]]:
    table = []
    for method in methods:
        for name, sizes in (("M", POINTS), ("C", LABELS)):
            jobs = [{"M": INDUCING, "C": CLASSES} | {name: size} for size in sizes]
            got = [apart(method=method, seconds=seconds, **job) for job in jobs]
            table += [
                {"method": method, "rows": 20 * BATCH, **j, **g} for j, g in zip(jobs, got, strict=True)
            ]
            times = [g["step"] for g in got]
            listed = ", ".join(f"{name}={s}: {1e3 * t:.1f} ms" for s, t in zip(sizes, times, strict=True))
            print(f"{method:6} {listed}; exponent {slope(sizes, times):.2f}", flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[300_000, 3_000_000])
    parser.add_argument("--methods", nargs="+", default=["sep", "ep"])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--csv")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(json.loads(args.job))))
        return
    table = from_files(args.rows, args.methods, args.seconds) + from_sizes(args.methods, args.seconds)
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)


if __name__ == "__main__":
    main()
