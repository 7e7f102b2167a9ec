"""Ours beside the published value: means with standard errors, and whether they agree."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cavity.experiments.rows import Row, key_of
from cavity.experiments.targets import Target

PUBLISHED = Path(__file__).with_name("published.csv")
PUBLISHED_SPLITS = 20
SLACK = 0.005  # what two printed decimals hide

AGREES, NEAR, WORSE = "✓", "≈", "✗"
Place = tuple[str, str, str]  # M, data set, method


class Cell(NamedTuple):
    """A mean over splits."""

    mean: float
    se: float  # NaN where it is not known
    n: int = 0

    def text(self, digits: int = 3, scale: float = 1.0) -> str:
        spread = "" if math.isnan(self.se) else f" ± {scale * self.se:.{digits}f}"
        return f"{scale * self.mean:.{digits}f}{spread}"


def of_target(target: Target, rows: Iterable[Row]) -> list[Row]:
    """The rows that this target's jobs made, at its full settings."""
    keys = {job.key for job in target.jobs()}
    return [row for row in rows if key_of(row) in keys]


def cell(values: Iterable[float]) -> Cell:
    """Mean and standard error of the mean."""
    x = np.array(list(values), dtype=np.float64)
    return Cell(float(x.mean()), float(x.std(ddof=1) / math.sqrt(len(x))) if len(x) > 1 else math.nan, len(x))


def cells(rows: Iterable[Row], score: str) -> dict[Place, Cell]:
    """Means of one score over the splits of (M, data set, method)."""
    groups: dict[Place, list[float]] = defaultdict(list)
    for row in rows:
        if not math.isnan(row[score]):
            groups[row["inducing"], row["dataset"], row["method"]].append(row[score])
    return {place: cell(values) for place, values in groups.items()}


@cache
def published(score: str) -> dict[Place, Cell]:
    """The ICML paper's values of "nll" or "error", and the thesis' for what only it has (its spread of errors, too)."""
    table: dict[Place, Cell] = {}
    with PUBLISHED.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):  # the ICML paper's lines come first
            share = row["m_percent"] if row["m_percent"].startswith("M=") else row["m_percent"] + "%"
            place = (share.removeprefix("M="), row["dataset"], row["method"])
            if not row[score] or row["dataset"] == "average":
                continue
            root = math.sqrt(PUBLISHED_SPLITS) if row["spread"].startswith("std") else 1.0
            spread = float(row[f"{score}_spread"] or "nan") / root
            if place not in table:
                table[place] = Cell(float(row[score]), spread, PUBLISHED_SPLITS)
            elif math.isnan(table[place].se):
                table[place] = table[place]._replace(se=spread)
    return table


def combined(ours: Cell, theirs: Cell) -> float:
    """√(se² + se²), what is not known counting as nothing."""
    return math.hypot(np.nan_to_num(ours.se), np.nan_to_num(theirs.se))


def agrees(ours: Cell, theirs: Cell) -> bool:
    """mean ≤ published + √(se² + se²) + 0.005."""
    return ours.mean <= theirs.mean + combined(ours, theirs) + SLACK


def near(ours: Cell, theirs: Cell) -> bool:
    """Within two combined standard errors, or better."""
    return ours.mean <= theirs.mean + 2 * combined(ours, theirs)


def mark(ours: Cell, theirs: Cell) -> str:
    """One sign for a table."""
    return AGREES if agrees(ours, theirs) else NEAR if near(ours, theirs) else WORSE


def best_published(dataset: str) -> Cell:
    """The lowest NLL of any method and any M in the two papers' tables."""
    candidates = [
        c for (share, name, _), c in published("nll").items() if name == dataset and share.endswith("%")
    ]
    return min(candidates, key=lambda c: c.mean)
