"""Peak memory of training from Parquet, and what a step costs, as rows, inducing points and classes grow.

Each measurement runs in a new process: a generated file with 16 features and 5 classes, M = 100, mini-batches of 1,000 for some
seconds, then the final sweep over the file. Peak resident memory comes from the operating system; the table also has the memory
before the fit (interpreter, torch) and, for EP, the memory of the stored sites. The time of a step is a median without the first
few; exponents are least-squares slopes of log time on log size.

    python benchmarks/memory.py [--quick] [--rows 300000 3000000] [--seconds 10] [--methods sep ep] [--csv FILE]

Rows go to benchmarks/results/memory.csv, except with --quick (small tables, four seconds each).
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
POINTS, LABELS = [50, 100, 200, 400], [3, 5, 10, 20]
RESULTS = Path(__file__).parent / "results" / "memory.csv"
WARM = 5  # first steps, in which libraries allocate workspaces, are not timed
QUICK = {"rows": [200_000, 400_000], "seconds": 4.0, "points": [25, 50, 100], "labels": [3, 6, 12]}
FIELDS = "varies method rows M C before_mb peak_mb kept_mb steps step_ms fit_s exponent".split()


def make_rows(rows: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of a linear model with noise."""
    rng = np.random.default_rng(seed)
    slopes = np.random.default_rng(0).standard_normal((COLUMNS, classes))
    X = rng.standard_normal((rows, COLUMNS))
    return X, (X @ slopes + rng.standard_normal((rows, classes))).argmax(1)


def write_parquet(path: Path, rows: int) -> None:
    """Write a Parquet file, one row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(seed: int, size: int) -> Any:
        X, y = make_rows(size, CLASSES, seed)
        return pa.table({**{f"x{j}": X[:, j] for j in range(COLUMNS)}, "label": y})

    with pq.ParquetWriter(path, table(1, 1).schema) as writer:
        for start in range(0, rows, GROUP):
            writer.write_table(table(start + 1, min(GROUP, rows - start)))


def peak_mb() -> float:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(job: dict[str, Any]) -> dict[str, float]:
    """Measure one fit in this process."""
    from cavity import GPClassifier, Training
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
        training=Training(max_seconds=job["seconds"]),
        random_state=0,
    )
    before, start = peak_mb(), time.perf_counter()
    if "path" in job:
        model.fit(job["path"], target="label")
    else:
        model.fit(*make_rows(job["rows"], job["C"], 1))
    seconds = time.perf_counter() - start
    return {
        "before_mb": before,
        "peak_mb": peak_mb(),
        "steps": len(steps),
        "step_ms": 1e3 * float(np.median(steps[WARM:] or steps)),
        "fit_s": seconds,
    }


def measure_in_process(**job: Any) -> dict[str, float]:
    """Measure one fit in a new process."""
    command = [sys.executable, __file__, "--job", json.dumps(job)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def stored_mb(method: str, rows: int, classes: int) -> float:
    """Memory of EP's stored sites: τ and ν of 2 (C − 1) sites and one time stamp per row."""
    return rows * (4 * (classes - 1) + 1) * 8 / 2**20 if method == "ep" else 0.0


def measure_series(varies: str, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One measurement per job, and the exponent of the time per step in the varied size."""
    table = []
    for job in jobs:
        row = {key: job[key] for key in ("method", "rows", "M", "C")} | measure_in_process(**job)
        table.append({"varies": varies, **row, "kept_mb": stored_mb(job["method"], job["rows"], job["C"])})
        print(line(table[-1]), flush=True)
    sizes, times = ([row[key] for row in table] for key in (varies, "step_ms"))
    exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0]) if len(set(sizes)) > 1 else float("nan")
    print(f"{'':6} the time per step grows as {varies}^{exponent:.2f}", flush=True)
    if varies == "rows" and len(table) > 1:
        grown, stored = (max(r[k] for r in table) - min(r[k] for r in table) for k in ("peak_mb", "kept_mb"))
        print(f"{'':6} peak memory grows by {grown:.0f} MB, of which {stored:.0f} MB are stored sites")
    return [row | {"exponent": exponent} for row in table]


def head() -> str:
    """The first line of the printed table."""
    return "method       rows     M    C   before MB   peak MB   sites MB  steps  ms per step  fit s"


def line(row: dict[str, Any]) -> str:
    """One line of the printed table."""
    return (
        f"{row['method']:6} {row['rows']:10d} {row['M']:5d} {row['C']:4d} {row['before_mb']:11.0f} {row['peak_mb']:9.0f} "
        f"{row['kept_mb']:9.0f} {row['steps']:7.0f} {row['step_ms']:11.2f} {row['fit_s']:7.1f}"
    )


def measure_files(rows: list[int], methods: list[str], seconds: float) -> list[dict[str, Any]]:
    """Vary the number of rows."""
    table = []
    with tempfile.TemporaryDirectory() as folder:
        paths = {n: f"{folder}/{n}.parquet" for n in rows}
        for n, path in paths.items():
            write_parquet(Path(path), n)
        for method in methods:
            common = {"method": method, "M": INDUCING, "C": CLASSES, "seconds": seconds}
            table += measure_series(
                "rows", [{**common, "rows": n, "path": path} for n, path in paths.items()]
            )
    return table


def measure_sizes(
    methods: list[str], seconds: float, points: list[int], labels: list[int]
) -> list[dict[str, Any]]:
    """Vary M, then the number of classes."""
    table = []
    for method in methods:
        common = {"method": method, "rows": 20 * BATCH, "M": INDUCING, "C": CLASSES, "seconds": seconds}
        table += measure_series("M", [common | {"M": size} for size in points])
        table += measure_series("C", [common | {"C": size} for size in labels])
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small tables, four seconds each")
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+", default=["sep", "ep"])
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(measure(json.loads(args.job))))
        return
    usual = {"rows": [300_000, 3_000_000], "seconds": 10.0, "points": POINTS, "labels": LABELS}
    plan: dict[str, Any] = QUICK if args.quick else usual
    rows, seconds = args.rows or plan["rows"], args.seconds or plan["seconds"]
    print(head(), flush=True)
    table = measure_files(rows, args.methods, seconds)
    table += measure_sizes(args.methods, seconds, plan["points"], plan["labels"])
    csv_file = args.csv or (None if args.quick else RESULTS)
    if csv_file is not None:
        with csv_file.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows({name: rounded(row[name]) for name in FIELDS} for row in table)
        print(f"wrote {csv_file}")


def rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
