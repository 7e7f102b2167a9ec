"""Tables from the files of the benchmarks, which are no experiments of the runner."""

from __future__ import annotations

import csv
import math
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
    seconds = _seconds(rows, level)
    return "–" if math.isinf(seconds) else f"{seconds:.1f}"


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


def gpu_line(results: Path) -> str:
    """The soonest of ours and of theirs, in a sentence."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in read(results / "gpu.csv"):
        runs.setdefault((row["method"], row["M"]), []).append(row)
    if not runs:
        return "Not run yet: `python benchmarks/gpu.py --csv benchmarks/results/gpu.csv`."
    ours = {k: v for k, v in runs.items() if k[0] in NAMES}
    theirs = {k: v for k, v in runs.items() if k[0] not in NAMES}
    level = LEVELS[2]
    (method, M), rows = min(ours.items(), key=lambda run: _seconds(run[1], level))
    said = (
        f"MNIST, 784 columns, on one H200: {NAMES[method]} with M = {M} is at a test NLL of {level} after "
        f"{_seconds(rows, level):.1f} seconds and at {float(rows[-1]['nll']):.4f} after {float(rows[-1]['seconds']):.0f}"
    )
    if not theirs:
        return said + "."
    (_, M), rows = min(theirs.items(), key=lambda run: float(run[1][-1]["nll"]))
    last = rows[-1]
    return (
        f"{said}; GPyTorch's SVGP, M = {M}, in the same run at {float(last['nll']):.4f} after {float(last['seconds']):.0f} "
        "([docs/scale.md](docs/scale.md#one-gpu))."
    )


def _seconds(rows: list[dict[str, Any]], level: float) -> float:
    return min((float(row["seconds"]) for row in rows if float(row["nll"]) <= level), default=math.inf)
