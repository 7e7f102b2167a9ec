"""The table of docs/results/calibration.md on leave-one-out, from the rows of benchmarks/leave_one_out.py."""

from __future__ import annotations

from pathlib import Path

from experiments.comparison import read_csv
from experiments.tables import markdown

FIELDS = (
    "table", "method", "classes", "rows", "mean_gap", "largest_gap", "mean_gap_of_the_fit", "nll", "nll_of_refits",
    "nll_of_the_fit",
)  # fmt: skip


def table(results: Path) -> str:
    """Return one line per table and method."""
    lines = [
        [
            row["table"],
            row["classes"],
            row["method"],
            *(f"{float(row[name]):.3f}" for name in ("mean_gap", "largest_gap", "mean_gap_of_the_fit")),
            *(f"{float(row[name]):.3f}" for name in ("nll", "nll_of_refits")),
        ]
        for row in read_csv(results / "leave_one_out.csv")
    ]
    head = ["table", "classes", "method", "mean", "largest", "mean of the fit itself", "NLL", "NLL of refits"]
    return markdown(head, lines)
