"""Tables and the figure of docs/results/scale.md: what many rows cost. From the rows of benchmarks/."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.comparison import read_csv
from experiments.tables import markdown

Row = dict[str, str]
FILES = {"cost": ("rows", "rows_reading", "gpu_steps")}  # by figure

# What the forecast assumes.
CLASSES, INDUCING, COLUMNS, BATCH = 4, 50, 10, 10_000  # of benchmarks/rows.py; the batch is that of one rank
GPUS, ROWS = (1, 8, 64), (10**9, 10**10)
NETWORKS = {
    "200 Gbit/s, 10 µs": (10e-6, 200e9),
    "1 Gbit/s, 1 ms": (1e-3, 1e9),
}  # latency in seconds, bits per second
GPU_CLASSES = 10  # of benchmarks/gpu.py


# ---------------------------------------------------------------- many rows (benchmarks/rows.py)
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


class Costs(NamedTuple):
    """Seconds per row of one rank: survey, reading its own rows, the order of all rows, and the step."""

    survey: float
    read: float
    order: float
    step: float
    measured: bool  # whether the step was measured on a GPU, and not computed from other sizes


def fit_costs(results: Path) -> Costs:
    """Return the costs on one GPU: reading as measured, the step from a GPU's rows or else from its times of other steps."""
    reading = read_csv(results / "rows_reading.csv")
    survey, read, order = (
        float(np.mean([float(r[name]) for r in reading])) for name in ("survey", "read", "order")
    )
    ours = [r for r in read_csv(results / "rows.csv") if r["device"] == "cuda" and r["M"] == str(INDUCING)]
    if ours:
        largest = max(ours, key=lambda r: int(r["rows"]))
        return Costs(survey, read, order, 1 / float(largest["rows_per_s"]), True)
    steps = [r for r in read_csv(results / "gpu_steps.csv") if r["dtype"] == "float64"]
    work = np.array([GPU_CLASSES * float(r["M"]) ** 2 * float(r["batch"]) for r in steps])
    slope, fixed = np.polyfit(work, [1e-3 * float(r["sep_ms"]) for r in steps], 1)
    return Costs(survey, read, order, (fixed + slope * CLASSES * INDUCING**2 * BATCH) / BATCH, False)


class Forecast(NamedTuple):
    """Seconds of a fit with one pass on several GPUs."""

    survey: float
    reading: float  # a rank's own rows
    order: float  # of all rows, on every rank
    steps: float
    sums: float

    @property
    def total(self) -> float:
        """The survey, then a pass in which rows are read while steps are taken."""
        return self.survey + max(self.reading + self.order, self.steps + self.sums)


def forecast(costs: Costs, rows: int, gpus: int, latency: float, bits: float) -> Forecast:
    """Return the seconds of each part."""
    mine = rows / gpus
    numbers = CLASSES * (INDUCING * (INDUCING + 1) // 2 + INDUCING + INDUCING * COLUMNS + COLUMNS + 2)
    rounds = 2 * math.ceil(math.log2(gpus)) if gpus > 1 else 0
    one_sum = rounds * latency + (2 * (gpus - 1) / gpus) * 64 * numbers / bits
    return Forecast(
        mine * costs.survey,
        mine * (costs.read - costs.order),
        rows * costs.order,
        mine * costs.step,
        mine / BATCH * one_sum,
    )


def forecast_table(results: Path) -> str:
    """What a survey and one pass take."""
    costs, lines = fit_costs(results), []
    for rows in ROWS:
        for gpus in GPUS:
            fast, slow = (forecast(costs, rows, gpus, *network) for network in NETWORKS.values())
            parts = [fast.survey, fast.reading, fast.order, fast.steps, fast.sums, slow.sums]
            lines.append(
                [
                    f"10{'⁹' if rows == 10**9 else '¹⁰'}",
                    str(gpus),
                    *map(_duration, (*parts, fast.total, slow.total)),
                ]
            )
    sums = [f"sums, {name}" for name in NETWORKS]
    totals = [f"all, {name}" for name in NETWORKS]
    return markdown(["rows", "GPUs", "survey", "reading", "order", "steps", *sums, *totals], lines)


def forecast_facts(results: Path) -> str:
    """What the forecast rests on."""
    costs = fit_costs(results)
    step = (
        "measured on one GPU, with the reading in parallel"
        if costs.measured
        else "computed from the steps above, whose time is a constant plus a multiple of C M² per row"
    )
    crossing = costs.read / costs.order
    return (
        f"Microseconds per row of one rank: survey {1e6 * costs.survey:.2f}, reading {1e6 * costs.read:.2f}, of which the order "
        f"is {1e6 * costs.order:.2f}; step {1e6 * costs.step:.2f} ({step}). From about {crossing:.0f} ranks on, the order of all "
        "rows, which every rank computes, takes longer than its own rows."
    )


def _duration(seconds: float) -> str:
    if seconds < 0.5:
        return f"{seconds:.1g} s" if seconds else "0"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# ---------------------------------------------------------------- figures
def digest(results: Path, name: str) -> str:
    """Digest of the rows that a figure shows."""
    total = hashlib.sha256()
    for file in FILES[name]:
        total.update(repr(read_csv(results / f"{file}.csv")).encode())
    return "rows-" + total.hexdigest()[:16]


def digests(results: Path) -> dict[str, str]:
    """Name of each figure → digest of its rows."""
    return {name: digest(results, name) for name in FILES}


def draw(results: Path, name: str, path: Path) -> None:
    """Draw a figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    _draw_cost(figure.subplots(1, 2), results)
    figure.savefig(path, dpi=90, metadata={"Description": digest(results, name), "Software": None})


def _draw_cost(axes: np.ndarray, results: Path) -> None:
    costs, gpus = fit_costs(results), [2**i for i in range(9)]
    slow = NETWORKS["1 Gbit/s, 1 ms"]
    for axis, rows in zip(axes, ROWS, strict=True):
        found = [forecast(costs, rows, g, *slow) for g in gpus]
        for i, part in enumerate(("survey", "reading", "order", "steps", "sums")):
            values = np.array([getattr(f, part) for f in found])
            axis.plot(gpus, np.where(values > 0, values, np.nan), f"C{i}-", label=part)
        axis.plot(gpus, [f.total for f in found], "k-", lw=2, label="all, 1 Gbit/s")
        axis.plot(
            gpus,
            [forecast(costs, rows, g, *NETWORKS["200 Gbit/s, 10 µs"]).total for g in gpus],
            "k--",
            label="all, 200 Gbit/s",
        )
        axis.set(xscale="log", yscale="log", xlabel="GPUs", title=f"$10^{{{round(math.log10(rows))}}}$ rows")
        axis.set_xticks(gpus, map(str, gpus))
        axis.set_ylim(bottom=1)
    axes[0].set_ylabel("seconds of a survey and one pass")
    axes[1].legend(fontsize=8)
