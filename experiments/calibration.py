"""The table of docs/results/calibration.md, from the rows of benchmarks/estimates.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from experiments.scale import read_csv
from experiments.tables import markdown

Row = dict[str, str]
FILE = "estimates.csv"
EFFORTS = ("fast", "balanced")
KINDS = {
    "plain": "plain",
    "copies": "copies of every row",
    "groups": "groups, new rows of new groups",
    "balanced": '`class_weight="balanced"`',
    "weights": "log-normal `sample_weight`",
}


def of_copies(row: Row) -> bool:
    """Tell whether a row is of the tables of 40 rows with 1 to 100 copies."""
    return row["table"].startswith("c")


def of_kind(kind: str) -> Callable[[Row], bool]:
    return lambda row: not of_copies(row) and row["kind"] == kind


LINES: dict[str, Callable[[Row], bool]] = {
    "all": lambda row: not of_copies(row),
    **{name: of_kind(kind) for kind, name in KINDS.items()},
    "20 rows": lambda row: not of_copies(row) and row["rows"] == "20",
    "40 to 3,000 rows": lambda row: not of_copies(row) and row["rows"] != "20",
    "40 rows, each 1 to 100 times": of_copies,
}


def table(results: Path) -> str:
    """Return coverage, z and bias of both efforts for each kind of table."""
    rows = read_csv(results / FILE)
    lines = []
    for name, belongs in LINES.items():
        line = [name]
        for effort in EFFORTS:
            line += describe([r for r in rows if belongs(r) and r["effort"] == effort])
        lines.append(line)

    head = ["tables"]
    for effort in ('`"fast"`', "default"):
        head += [f"{effort}: fits", "covered", "mean z", "bias"]
    return markdown(head, lines)


def describe(rows: list[Row]) -> list[str]:
    """Return fits, share covered, mean z with its error, and mean bias.

    Fits of the same rows with more copies are one model, so they count once.
    """
    fits = {(row["table"], row["seed"]) for row in rows}
    z = [float(row["z"]) for row in rows]
    mean = math.fsum(z) / len(z)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in z) / len(z))
    covered = sum(abs(value) < 2 for value in z) / len(z)
    bias = math.fsum(float(row["bias"]) for row in rows) / len(rows)
    error = spread / math.sqrt(len(fits))
    return [
        str(len(fits)),
        f"{covered:.1%}",
        f"{mean:.2f} ± {error:.2f}",
        f"{bias:.3f}",
    ]
