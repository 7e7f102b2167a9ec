"""Tables with text columns, from the rows of benchmarks/tables.py: mean test NLL of each effort, next to LightGBM."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from experiments.tables import markdown

TABLES = ("penguins", "chile", "fishing", "males", "mushroom", "tic_tac_toe", "chess", "housevotes")
MODELS = ("fast", "balanced", "best", "lightgbm")


def summarize(path: Path) -> str:
    """Return the mean test NLL of each table and model as a Markdown table; the smallest of a row is bold.

    Means are over the splits that all models of the table have.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    about = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["table"], {}).setdefault(row["model"], {})[row["seed"]] = float(row["nll"])
            about[row["table"]] = row["rows"], row["classes"]
    lines = []
    for table in (t for t in TABLES if t in found):
        models = found[table]
        seeds = set.intersection(*(set(nll) for nll in models.values()))
        means = [float(np.mean([models[m][s] for s in seeds])) if m in models else np.inf for m in MODELS]
        cells = [f"{m:.4f}" if np.isfinite(m) else "–" for m in means]
        best = int(np.argmin(means))
        cells[best] = f"**{cells[best]}**"
        lines.append([table, *about[table], str(len(seeds)), *cells])
    return markdown(["table", "rows", "classes", "splits", *MODELS], lines)


def write_section(results: Path, text: str) -> str:
    """Return the section of docs/results/comparison.md; an empty string without rows."""
    path = results / "tables.csv"
    return f"## Tables with text\n\n{text}\n\n{summarize(path)}" if path.exists() else ""
