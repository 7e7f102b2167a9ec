"""Tables from the files of the benchmarks, which are no experiments of the runner."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from cavity.experiments.tables import markdown

LEVELS = (0.104, 0.08, 0.0725, 0.069)
NAMES = {"ep": "EP", "sep": "SEP"}


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, none where there is no file."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def gpu(results: Path) -> str:
    """Seconds to levels of test NLL on MNIST, one line a run."""
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in read(results / "gpu.csv"):
        runs.setdefault((row["method"], row["M"], row["batch"], row["dtype"]), []).append(row)
    lines = []
    for (method, M, batch, dtype), rows in runs.items():
        last = rows[-1]
        lines.append(
            [
                NAMES.get(method) or method.replace("gpytorch", "GPyTorch's SVGP, rate"),
                M,
                batch,
                dtype,
                *(_reached(rows, level) for level in LEVELS),
                f"{float(last['nll']):.4f}, {100 * float(last['error']):.2f} %",
                f"{float(last['seconds']):.0f}",
            ]
        )
    head = ["", "M", "batch", "precision", *(f"to {level}" for level in LEVELS), "at the end", "seconds"]
    return markdown(head, lines)


def _reached(rows: list[dict[str, Any]], level: float) -> str:
    first = next((row for row in rows if float(row["nll"]) <= level), None)
    return "–" if first is None else f"{float(first['seconds']):.1f}"


def gpu_steps(results: Path) -> str:
    """Milliseconds of a step."""
    head = ["M", "batch", "precision", "EP", "SEP", "EP, not recorded", "SEP, not recorded", "GPyTorch"]
    columns = ("ep_ms", "sep_ms", "ep_eager_ms", "sep_eager_ms", "gpytorch_ms")
    return markdown(
        head,
        (
            [row["M"], row["batch"], row["dtype"], *(f"{float(row[name]):.1f}" for name in columns)]
            for row in read(results / "gpu_steps.csv")
        ),
    )
