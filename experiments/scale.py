"""Tables of docs/results/scale.md: passes over many rows (benchmarks/rows.py), and the
GPU (benchmarks/gpu.py).
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

from experiments.tables import markdown

GPU_LEVELS = (0.104, 0.08, 0.0725, 0.069)  # test NLL on MNIST
GPU_NAMES = {"ep": "EP", "sep": "SEP"}


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a file; an empty list if it does not exist."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def rows_table(results: Path) -> str:
    """One pass over Parquet files."""
    lines = []
    for row in read_csv(results / "rows.csv"):
        cores = int(row["ranks"]) * int(row["threads"])
        on_cores = f"{cores} core{'s' if cores > 1 else ''}, {row['machine']}"
        where = "GPU" if row["device"] == "cuda" else on_cores
        lines.append(
            [
                where,
                f"{int(row['rows']):,}",
                row["M"],
                f"{int(row['batch']):,}",
                f"{float(row['pass_s']):.0f}",
                f"{float(row['rows_per_s']):,.0f}",
                f"{float(row['rows_per_cpu_s']):,.0f}",
                f"{float(row['peak_mb']):,.0f}",
                f"{float(row['read_mb']):,.0f}",
                f"{float(row['nll']):.3f}",
                f"{float(row['load']):.0f}",
            ]
        )
    head = [
        "on",
        "rows",
        "M",
        "batch",
        "seconds",
        "rows per second",
        "per CPU second",
        "peak MB",
        "MB read",
        "NLL",
        "load",
    ]
    return markdown(head, lines)


def _gpu_runs(
    results: Path, *columns: str
) -> dict[tuple[str, ...], list[dict[str, str]]]:
    runs: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in read_csv(results / "gpu.csv"):
        runs.setdefault(tuple(row[name] for name in columns), []).append(row)
    return runs


def gpu_table(results: Path) -> str:
    """Seconds to levels of test NLL on MNIST, one line per run."""
    lines = []
    for (method, M, batch, dtype), rows in _gpu_runs(
        results, "method", "M", "batch", "dtype"
    ).items():
        last = rows[-1]
        lines.append(
            [
                GPU_NAMES.get(method)
                or method.replace("gpytorch", "GPyTorch's SVGP, rate"),
                M,
                batch,
                dtype,
                *(_reached(rows, level) for level in GPU_LEVELS),
                f"{float(last['nll']):.4f}, {100 * float(last['error']):.2f} %",
                f"{float(last['seconds']):.0f}",
            ]
        )
    levels = [f"to {level}" for level in GPU_LEVELS]
    return markdown(
        ["", "M", "batch", "precision", *levels, "at the end", "seconds"], lines
    )


def gpu_step_table(results: Path) -> str:
    """Milliseconds per step."""
    head = [
        "M",
        "batch",
        "precision",
        "EP",
        "SEP",
        "EP, not recorded",
        "SEP, not recorded",
        "GPyTorch",
    ]
    columns = ("ep_ms", "sep_ms", "ep_eager_ms", "sep_eager_ms", "gpytorch_ms")
    return markdown(
        head,
        (
            [
                row["M"],
                row["batch"],
                row["dtype"],
                *(f"{float(row[name]):.1f}" for name in columns),
            ]
            for row in read_csv(results / "gpu_steps.csv")
        ),
    )


def gpu_device_table(results: Path) -> str:
    """Seconds of fits of small tables on the CPU and on the GPU."""
    head = ["data set", "rows", "classes", "`effort`", "CPU, s", "GPU, s"]
    return markdown(
        head,
        (
            [*(row[name] for name in ("set", "rows", "classes", "effort")), *seconds]
            for row in read_csv(results / "gpu_devices.csv")
            if (seconds := [f"{float(row[name]):.2f}" for name in ("cpu", "cuda")])
        ),
    )


def _reached(rows: list[dict[str, str]], level: float) -> str:
    seconds = _gpu_seconds(rows, level)
    return "–" if math.isinf(seconds) else f"{seconds:.1f}"


def _gpu_seconds(rows: list[dict[str, str]], level: float) -> float:
    return min(
        (float(row["seconds"]) for row in rows if float(row["nll"]) <= level),
        default=math.inf,
    )
