"""Published results of AutoML libraries next to ours."""

from __future__ import annotations

from itertools import chain

import numpy as np

from experiments.jobs import Row
from experiments.sets import FOLDS
from experiments.table_text import name
from experiments.tables import markdown
from experiments.targets import EFFORTS

# Mean log loss over the ten folds of OpenML's task, one hour on 8 cores each.
VEHICLE = {
    "AutoGluon 1.0, best quality": 0.284,
    "H2O AutoML": 0.353,
    "auto-sklearn": 0.398,
    "TPOT": 0.414,
    "random forest": 0.497,
}


def write_section(rows: list[Row], text: str) -> str:
    """Return the section on vehicle in ten folds; an empty string without rows."""
    lines = [
        line
        for m in EFFORTS
        if (line := _ours(m, [r for r in rows if r["method"] == m]))
    ]
    if not lines:
        return ""
    lines += [
        [library, f"{nll:.3f}", "", "", "3,600 on 8 cores"]
        for library, nll in VEHICLE.items()
    ]
    head = [
        "vehicle, ten folds",
        "log loss",
        "of each shuffle",
        "error",
        "seconds per fit",
    ]
    return f"## Published references\n\n{text}\n\n{markdown(head, lines)}"


def _ours(method: str, rows: list[Row]) -> list[str]:
    """Return one line: the mean over complete shuffles, and the mean of each; an empty
    list without one.
    """
    shuffles: dict[int, list[Row]] = {}
    for row in rows:
        shuffles.setdefault(int(row["split"]) // FOLDS, []).append(row)
    whole = [found for _, found in sorted(shuffles.items()) if len(found) == FOLDS]
    if not whole:
        return []
    each = [np.mean([r["nll"] for r in found]) for found in whole]
    rows = list(chain.from_iterable(whole))
    error = np.mean([row["error"] for row in rows])
    seconds = np.median([row["seconds"] for row in rows])
    return [
        name("default" if method == "balanced" else method),
        f"{np.mean(each):.3f}",
        ", ".join(f"{v:.3f}" for v in each),
        f"{error:.3f}",
        f"{seconds:.1f} on 1 core",
    ]
