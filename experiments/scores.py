"""Scores of predictions, their means over splits, and agreement with the published
values.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.common.scoring import score_log_proba
from experiments.jobs import Row

PUBLISHED = Path(__file__).with_name("published.csv")
PUBLISHED_SPLITS = 20
SLACK = 0.005  # the papers print two decimals

AGREES = "✓"
CLOSE = "≈"
WORSE = "✗"
CellKey = tuple[str, str, str]  # M, data set, method


def score_predictions(
    log_p: Any, classes: NDArray[Any], y: NDArray[Any]
) -> dict[str, float]:
    """NLL, error, calibration error, Brier score and mean confidence.

    Test rows of an unseen class count as errors only.
    """
    log_p = np.asarray(log_p, dtype=np.float64)
    y = np.asarray(y)
    known = np.isin(y, classes)
    found = score_log_proba(log_p[known], np.searchsorted(classes, y[known]))
    found["confidence"] = float(np.exp(log_p.max(1)).mean())
    return found | {
        "error": float((classes[log_p.argmax(1)] != y).mean()),
        "unseen": int((~known).sum()),
    }


class Cell(NamedTuple):
    """A mean over splits."""

    mean: float
    se: float  # standard error, NaN if unknown
    n: int = 0

    def text(self, digits: int = 3) -> str:
        """mean±standard error."""
        spread = "" if math.isnan(self.se) else f"±{self.se:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


def mean_cell(values: Iterable[float]) -> Cell:
    """Mean and standard error of the mean."""
    x = np.array(list(values), dtype=np.float64)
    return Cell(
        float(x.mean()),
        float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan,
        len(x),
    )


def mean_cells(rows: Iterable[Row], score: str) -> dict[CellKey, Cell]:
    """Means of one score over the splits, for every (M, data set, method)."""
    groups: dict[CellKey, list[float]] = defaultdict(list)
    for row in rows:
        if not math.isnan(row[score]):
            groups[row["inducing"], row["dataset"], row["method"]].append(row[score])
    return {key: mean_cell(values) for key, values in groups.items()}


@cache
def published(score: str) -> dict[CellKey, Cell]:
    """Published values of "nll" or "error": the ICML paper's, else the thesis'.

    Standard errors of errors are the thesis'.
    """
    table: dict[CellKey, Cell] = {}
    with PUBLISHED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):  # lines of the ICML paper come first
            share = (
                row["m_percent"]
                if row["m_percent"].startswith("M=")
                else row["m_percent"] + "%"
            )
            key = (share.removeprefix("M="), row["dataset"], row["method"])
            if not row[score] or row["dataset"] == "average":
                continue
            root = (
                math.sqrt(PUBLISHED_SPLITS) if row["spread"].startswith("std") else 1.0
            )
            spread = float(row[f"{score}_spread"] or "nan") / root
            if key not in table:
                table[key] = Cell(float(row[score]), spread, PUBLISHED_SPLITS)
            elif math.isnan(table[key].se):
                table[key] = table[key]._replace(se=spread)
    return table


def combined_error(ours: Cell, theirs: Cell) -> float:
    """√(se² + se²); an unknown standard error counts as 0."""
    return math.hypot(np.nan_to_num(ours.se), np.nan_to_num(theirs.se))


def agrees(ours: Cell, theirs: Cell) -> bool:
    """mean ≤ published + √(se² + se²) + 0.005."""
    return ours.mean <= theirs.mean + combined_error(ours, theirs) + SLACK


def is_close(ours: Cell, theirs: Cell) -> bool:
    """Within two combined standard errors, or better."""
    return ours.mean <= theirs.mean + 2 * combined_error(ours, theirs)


def mark(ours: Cell, theirs: Cell) -> str:
    """The mark of a cell in a table."""
    if agrees(ours, theirs):
        return AGREES

    return CLOSE if is_close(ours, theirs) else WORSE


def best_published(dataset: str) -> Cell:
    """The lowest NLL over all methods and all M in the tables of both papers."""
    candidates = [
        c
        for (share, name, _), c in published("nll").items()
        if name == dataset and share.endswith("%")
    ]
    return min(candidates, key=lambda c: c.mean)
