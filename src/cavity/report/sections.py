"""Content of the report's sections, for the template `report.html`; None for a section
that is left out.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import scipy
import sklearn
import torch

from cavity.common.scoring import count_confusion
from cavity.common.text_tables import name_column, shorten
from cavity.common.version import __version__
from cavity.estimators.base import GPEstimator
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import describe_fit
from cavity.explain.partial_dependence import format_value
from cavity.explain.raw_rows import RawRows
from cavity.report import charts
from cavity.report.findings import (
    Findings,
    Scored,
    explain_notable,
    find_dependences,
    find_notable,
)
from cavity.report.scores import find_weak_classes
from cavity.report.templates import format_defined, format_number
from cavity.saving.summary import list_facts
from cavity.tables.validation import Prepared

Content = dict[str, Any] | None
MAX_LINES = 40  # columns or classes in a table
CELLS = 20  # more classes have a list of confusions instead of a matrix
EACH = ("precision", "recall", "f1", "auc")
CELL_WIDTH = 24  # of a cell in the list of notable rows
UNUSUAL = 0.95  # novelty that one in twenty training rows exceeds


def describe_classes(found: Findings) -> Content:
    scored = found.judged
    classes = found.classes
    C = len(found.classes)
    if scored is None or not classes:
        return None
    counts = count_confusion(scored.truth, scored.outcome.argmax(1), C)
    rows = counts.sum(1)
    predicted = counts.sum(0)
    values = scored.scores["classes"]
    order = np.arange(C)
    if C > MAX_LINES:
        order = np.argsort(np.where(rows > 0, values["f1"], np.inf), kind="stable")[
            :MAX_LINES
        ]
    lines = [
        [
            classes[c],
            f"{rows[c]}",
            f"{predicted[c]}",
            *(format_defined(values[k][c], ".2f") for k in EACH),
        ]
        for c in order
    ]
    never, few = find_weak_classes(classes, rows, predicted)
    share = counts / np.maximum(rows[:, None], 1)
    pairs = None
    if C > CELLS:
        pairs = _list_confusions(counts, share, classes)
    matrix = {"counts": counts.tolist(), "share": share.tolist(), "pairs": pairs}
    return {"never": never, "few": few, "lines": lines, **matrix}


def _list_confusions(counts: Any, share: Any, classes: list[str]) -> list[list[str]]:
    off = counts - np.diag(counts.diagonal())
    best = np.argsort(-off, axis=None, kind="stable")[:15]
    pairs = [np.unravel_index(k, off.shape) for k in best if off.flat[k]]
    return [
        [classes[i], classes[j], f"{off[i, j]}", f"{share[i, j]:.0%}"] for i, j in pairs
    ]


def draw_trust(found: Findings) -> list[charts.Figure]:
    if found.judged is None:
        return []
    outcome = found.judged.outcome
    truth = found.judged.truth
    if found.classes:
        return [
            draw(np.exp(outcome), truth)
            for draw in (charts.draw_calibration, charts.draw_rejection)
        ]
    mean, std = outcome.T
    return [
        charts.draw_scatter(mean, std, truth, found.target),
        charts.draw_coverage(mean, std, truth),
    ]


def draw_dependences(found: Findings) -> list[charts.Figure]:
    each = enumerate(find_dependences(found))
    return [
        charts.draw_dependence(part, k, value, found.target)
        for k, (part, value) in each
    ]


def list_rows(found: Findings, numbers: Any) -> Content:
    """List notable rows with the cells that moved their predictions most."""
    scored = found.scored
    if scored is None:
        return None
    notable = find_notable(scored, not found.classes)
    places = [n for n, _ in notable]
    moved = explain_notable(found.model, scored, places)
    if found.classes:
        outcome = _describe_labels(found, scored, places)
    else:
        outcome = _describe_numbers(scored, places)
    lines = []
    for k, (n, why) in enumerate(notable):
        effect = moved.of_prediction()[k]
        best = [
            j
            for j in np.argsort(-np.abs(effect), kind="stable")[:3]
            if abs(effect[j]) > 1e-3
        ]
        pairs = [(name_column(moved.names[j]), moved.values[k, j]) for j in best]
        cells = [
            " = ".join(shorten(text, CELL_WIDTH) for text in pair) for pair in pairs
        ]
        sizes = [
            f"{'+' * bool(effect[j] >= 0)}{format_number(effect[j], 2)}" for j in best
        ]
        line = {
            "Row": f"{n if numbers is None else numbers[n]}",
            "Why": why,
            **outcome[k],
        }
        if scored.novelty is not None:
            line["Novelty"] = f"{scored.novelty[n]:.0%}"
        line["Moved by"] = "; ".join(
            f"{a} ({b})" for a, b in zip(cells, sizes, strict=True)
        )
        lines.append(line)
    return {"head": list(line), "lines": [list(line.values()) for line in lines]}


def _describe_labels(
    found: Findings, scored: Scored, places: list[int]
) -> list[dict[str, str]]:
    assert isinstance(found.model, GPClassifier)
    parts = found.model.predict_uncertainty(Prepared(scored.raw.X[places]))
    ratio = np.divide(
        parts.epistemic, parts.total, out=np.zeros(len(places)), where=parts.total > 0
    )
    lines = []
    for n, share in zip(places, ratio.clip(0, 1), strict=True):
        P = np.exp(scored.outcome[n])
        best = int(scored.outcome[n].argmax())
        line = {"Predicted": f"{found.classes[best]} ({P[best]:.1%})"}
        if scored.truth is not None:
            true = int(scored.truth[n])
            if true == best:
                line["True"] = "right"
            else:
                line["True"] = f"wrong: {found.classes[true]} ({P[true]:.1%})"
        lines.append(line | {"Epistemic share": f"{share:.0%}"})
    return lines


def _describe_numbers(scored: Scored, places: list[int]) -> list[dict[str, str]]:
    lines = []
    for n in places:
        mean, std = scored.outcome[n]
        line = {"Predicted": f"{format_number(mean, 4)} ± {format_number(std, 3)}"}
        if scored.truth is not None:
            y = float(scored.truth[n])
            line |= {
                "True": format_number(y),
                "Error / std": f"{(y - mean) / std:+.1f}",
            }
        lines.append(line)
    return lines


def describe_data(found: Findings) -> Content:
    """Describe what became of each column, and what its cells are in these rows."""
    prepare = found.fit.features.preparation
    raw = None
    if found.scored is not None:
        raw = found.scored.raw
    if raw is None and prepare is None:
        return None
    if prepare is None:
        how = {}
    else:
        how = dict(prepare.describe())
    lines = []
    for j, name in enumerate(found.columns[: 3 * MAX_LINES]):
        used = how.get(name, "number, used as it is")
        lines.append(
            [name_column(name), used, *([] if raw is None else _describe_cells(raw, j))]
        )
    novelty = None
    if found.scored is not None:
        novelty = found.scored.novelty
    return {
        "lines": lines,
        "unusual": None if novelty is None else (novelty > UNUSUAL).mean(),
    }


def _describe_cells(raw: RawRows, j: int) -> list[str]:
    """Describe the cells of a column in these rows: how many are missing, and their
    range or most frequent levels.
    """
    if not (raw.owner == j).any():
        return ["", ""]
    cells = raw.cells(j)
    lacks = np.array([cell is None or cell != cell for cell in cells])
    known = cells[~lacks]
    missing = "0"
    if lacks.any():
        missing = f"{int(lacks.sum())} ({lacks.mean():.0%})"
    if not len(known):
        return [missing, ""]
    if raw.kind(j) == "category":
        levels, counts = np.unique(known.astype(str), return_counts=True)
        best = np.argsort(-counts, kind="stable")[:3]
        text = ", ".join(f"{levels[k]} ({counts[k]})" for k in best)
        return [
            missing,
            text + (f" and {len(levels) - 3} more" if len(levels) > 3 else ""),
        ]
    low, middle, high = np.sort(known)[[0, len(known) // 2, -1]]
    return [
        missing,
        f"{format_value(low)} to {format_value(high)}, median {format_value(middle)}",
    ]


def describe_model(model: GPEstimator) -> list[tuple[str, str]]:
    """Return what `cavity info` says of the model, its training time and seed, and the
    versions of packages.
    """
    facts = [
        (name[0].upper() + name[1:], text)
        for name, text in list_facts(describe_fit(model))
    ]
    if model.history_ and "seconds" in model.history_[-1]:
        facts.append(("Training time (s)", f"{model.history_[-1]['seconds']:.1f}"))
    versions = {
        "cavity": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
    }
    versions |= {
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    facts.append(("Seed (random_state)", f"{model.random_state!r}"))
    return [
        *facts,
        *((f"Version of {name}", version) for name, version in versions.items()),
    ]
