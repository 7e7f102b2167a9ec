"""Tables of docs/results/performance.md, from the rows of the benchmarks of speed."""

from __future__ import annotations

import math
from pathlib import Path

from experiments.scale import read_csv
from experiments.tables import markdown

Row = dict[str, str]
NOT_MEASURED = "Not measured yet: `make bench` writes these rows."
CLIENTS = {"none": "none", "slow": "100 slow ones", "large": "2 with 10,000 rows"}


def predictions(results: Path) -> str:
    """Predictions, commands, sampling."""
    rows = read_csv(results / "predict.csv")
    head = ["", "unit", "now", "goal", "threads", "machine"]
    return (
        markdown(head, [list(row.values()) for row in rows]) if rows else NOT_MEASURED
    )


def steps(results: Path) -> str:
    """Milliseconds of a mini-batch step."""
    rows = read_csv(results / "step_time.csv")
    head = "C; M; batch; features; precision; EP, ms; SEP, ms; GPyTorch, ms; EP is faster by".split(
        "; "
    )
    lines = [
        [
            *(row[name] for name in ("C", "M", "batch", "D", "dtype")),
            *(_text(row, name, 2) for name in ("ep_ms", "sep_ms", "gpytorch_ms")),
            f"{float(row['ratio_ep']):.1f} ×",
        ]
        for row in rows
    ]
    return markdown(head, lines) if rows else NOT_MEASURED


def serving(results: Path) -> str:
    """Requests that `cavity serve` answers; rows with errors or wrong answers raise
    ValueError.
    """
    rows = read_csv(results / "serving.csv")
    if any(row["errors"] != "0" or row["wrong"] != "0" for row in rows):
        raise ValueError(
            "serving.csv has requests that failed or were answered wrongly."
        )
    head = [
        "other clients",
        "rows per request",
        "clients",
        "requests/s",
        "rows/s",
        "median ms",
        "95 %",
        "99 %",
    ]
    numbers = ("per_s", "rows_per_s", "median_ms", "p95_ms", "p99_ms", "memory_mb")
    lines = [
        [
            CLIENTS[row["others"]],
            row["rows"],
            row["clients"],
            *(f"{float(row[n]):.0f}" for n in numbers),
        ]
        for row in rows
    ]
    return markdown([*head, "server's memory, MB"], lines) if rows else NOT_MEASURED


def _number(row: Row, name: str) -> float:
    """Return a cell as a number, 0 if it is missing."""
    value = float(row.get(name) or 0.0)
    return 0.0 if math.isnan(value) else value


def _text(row: Row, name: str, digits: int) -> str:
    value = _number(row, name)
    return f"{value:.{digits}f}" if value else ""
