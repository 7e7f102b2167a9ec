"""Tables and figure of docs/results/performance.md, from the rows of the benchmarks of speed."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

from experiments.comparison import read_csv
from experiments.tables import markdown

Row = dict[str, str]
NOT_MEASURED = "Not measured yet: `make bench` writes these rows."
CLIENTS = {"none": "none", "slow": "100 slow ones", "large": "2 with 10,000 rows"}
PEERS = {"peer": "HistGradientBoosting", "lightgbm": "LightGBM"}  # prefix of the columns → name


def fits(results: Path) -> str:
    """Seconds and NLL of fits, next to boosting in the same run."""
    rows = read_csv(results / "small_fits.csv")
    peers = {p: name for p, name in PEERS.items() if any(_number(row, f"{p}_seconds") for row in rows)}
    head = ["", "rows", "seconds", *(f"{n}, seconds" for n in peers.values()), "ratio", "test NLL"]
    head += [f"{name}, test NLL" for name in peers.values()]
    lines = [
        [
            row["what"],
            row["rows"],
            _text(row, "seconds", 2),
            *(_text(row, f"{p}_seconds", 2) for p in peers),
            _text(row, "ratio", 1),
            _text(row, "nll", 3),
            *(_text(row, f"{p}_nll", 3) for p in peers),
        ]
        for row in rows
    ]
    return markdown(head, lines) if rows else NOT_MEASURED


def predictions(results: Path) -> str:
    """Predictions, commands, sampling."""
    rows = read_csv(results / "predict.csv")
    head = ["", "unit", "now", "goal", "threads", "machine"]
    return markdown(head, [list(row.values()) for row in rows]) if rows else NOT_MEASURED


def steps(results: Path) -> str:
    """Milliseconds of a mini-batch step."""
    rows = read_csv(results / "step_time.csv")
    head = [
        "C",
        "M",
        "batch",
        "features",
        "precision",
        *(f"{n}, ms" for n in ("EP", "SEP", "GPyTorch")),
        "EP is faster by",
    ]
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
    """Requests that `cavity serve` answers; rows with errors or wrong answers raise ValueError."""
    rows = read_csv(results / "serving.csv")
    if any(row["errors"] != "0" or row["wrong"] != "0" for row in rows):
        raise ValueError("serving.csv has requests that failed or were answered wrongly.")
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
        [CLIENTS[row["others"]], row["rows"], row["clients"], *(f"{float(row[n]):.0f}" for n in numbers)]
        for row in rows
    ]
    return markdown([*head, "server's memory, MB"], lines) if rows else NOT_MEASURED


def digest(results: Path) -> str:
    """Digest of what the figure shows."""
    return "rows-" + hashlib.sha256(repr(_points(results)).encode()).hexdigest()[:16]


def draw(results: Path, path: Path) -> None:
    """Test NLL against seconds of a fit; a line joins the libraries on one data set."""
    from matplotlib.figure import Figure

    points = _points(results)
    figure = Figure(figsize=(7.5, 4.8), layout="constrained")
    axis = figure.subplots()
    for i, (what, found) in enumerate(points.items()):
        x, y = zip(*found.values(), strict=True)
        axis.plot(x, y, color=f"C{i}", lw=0.8, alpha=0.6)
        for name, (seconds, nll) in found.items():
            axis.scatter(seconds, nll, color=f"C{i}", marker={"cavity": "o", "LightGBM": "^"}.get(name, "s"))
        axis.annotate(what, found["cavity"], xytext=(5, -9), textcoords="offset points", fontsize=8)
    for name, marker in {"cavity": "o", "HistGradientBoosting": "s", "LightGBM": "^"}.items():
        if any(name in found for found in points.values()):
            axis.scatter([], [], color="0.4", marker=marker, label=name)
    axis.set(xscale="log", yscale="log", xlabel="seconds of a fit", ylabel="test NLL")
    axis.legend()
    figure.savefig(path, dpi=90, metadata={"Description": digest(results), "Software": None})


def _points(results: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Data set → library → (seconds, NLL), for the rows that compare libraries."""
    prefixes = {"": "cavity"} | {f"{p}_": name for p, name in PEERS.items()}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in read_csv(results / "small_fits.csv"):
        if "/" in row["what"]:  # the loaded machine against the quiet one
            continue
        each = {name: (_number(row, f"{p}seconds"), _number(row, f"{p}nll")) for p, name in prefixes.items()}
        found[row["what"]] = {name: point for name, point in each.items() if point[0]}
    return found


def _number(row: Row, name: str) -> float:
    """Return a cell as a number, 0 if it is missing."""
    value = float(row.get(name) or 0.0)
    return 0.0 if math.isnan(value) else value


def _text(row: Row, name: str, digits: int) -> str:
    value = _number(row, name)
    return f"{value:.{digits}f}" if value else ""
