"""Content of the report's sections, for the template `report.html`.

None stands for a section that is left out.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import scipy
import sklearn
import torch

from cavity.common.scoring import count_confusion
from cavity.common.text_tables import list_names, name_column, shorten
from cavity.common.types import Floats
from cavity.common.version import __version__
from cavity.estimators.base import GPEstimator
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import describe_fit
from cavity.explain.partial_dependence import describe_sample, format_value
from cavity.explain.raw_rows import RawRows
from cavity.prediction.estimate import format_loss
from cavity.report import charts
from cavity.report.class_curves import draw_reliability
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
CELLS = 20  # with more classes, a list of confusions replaces the matrix
EACH = ("precision", "recall", "f1", "auc")
MAX_PAIRS = 15  # confusions in the list
MAX_MOVES = 3  # cells that explain a notable row
LEAST_MOVE = 1e-3  # of a cell that is shown
CELL_WIDTH = 24  # of a cell in the list of notable rows
UNUSUAL = 0.95  # novelty that one in twenty training rows exceeds


def describe_classes(found: Findings) -> Content:
    scored = found.judged
    classes = found.classes
    C = len(classes)
    if scored is None or not classes:
        return None

    counts = count_confusion(scored.truth, scored.outcome.argmax(1), C)
    rows = counts.sum(1)
    predicted = counts.sum(0)
    share = counts / np.maximum(rows[:, None], 1)
    values = scored.scores["classes"]
    order = np.arange(C)
    if C > MAX_LINES:
        f1 = np.where(rows > 0, values["f1"], np.inf)
        order = np.argsort(f1, kind="stable")[:MAX_LINES]

    lines = []
    for c in order:
        cells = [format_defined(values[score][c], ".2f") for score in EACH]
        lines.append([classes[c], f"{rows[c]}", f"{predicted[c]}", *cells])
    weak = find_weak_classes(classes, rows, predicted)
    pairs = None
    if C > CELLS:
        pairs = _list_confusions(counts, share, classes)
    return {
        "never": weak.never,
        "few": weak.few,
        "lines": lines,
        "counts": counts.tolist(),
        "share": share.tolist(),
        "pairs": pairs,
    }


def _list_confusions(counts: Any, share: Any, classes: list[str]) -> list[list[str]]:
    """List the most frequent pairs of a true and another predicted class."""
    off = counts - np.diag(counts.diagonal())
    lines = []
    for k in np.argsort(-off, axis=None, kind="stable")[:MAX_PAIRS]:
        i, j = np.unravel_index(k, off.shape)
        if off[i, j]:
            lines.append([classes[i], classes[j], f"{off[i, j]}", f"{share[i, j]:.0%}"])

    return lines


def draw_trust(found: Findings) -> list[charts.Figure]:
    if found.judged is None:
        return []

    outcome = found.judged.outcome
    truth = found.judged.truth
    if found.classes:
        P = np.exp(outcome)
        drawn = [draw_reliability(P, truth, found.classes, found.positive)]
        if len(found.classes) > 2:
            drawn.append(charts.draw_calibration(P, truth))
        return [*drawn, charts.draw_rejection(P, truth)]

    mean, std = outcome.T
    return [
        charts.draw_scatter(mean, std, truth, found.target),
        charts.draw_coverage(mean, std, truth),
    ]


def draw_dependences(found: Findings) -> Content:
    """Draw partial dependences, and say over how many rows they are means."""
    parts = find_dependences(found)
    if not parts:
        return None

    first, _ = parts[0]
    figures = [
        charts.draw_dependence(part, k, importance, found.target, found.positive)
        for k, (part, importance) in enumerate(parts)
    ]
    over = describe_sample(first.rows, first.total)
    return {"figures": figures, "level": first.level, "over": over}


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

    effects = moved.of_prediction()
    names = [name_column(name) for name in moved.names]
    lines = []
    for k, (n, why) in enumerate(notable):
        number = n
        if numbers is not None:
            number = numbers[n]

        line = {"Row": f"{number}", "Why": why, **outcome[k]}
        if scored.novelty is not None:
            line["Novelty"] = f"{scored.novelty[n]:.0%}"
        line["Moved by"] = _describe_moves(names, moved.values[k], effects[k])
        lines.append(line)

    return {"head": list(line), "lines": [list(line.values()) for line in lines]}


def _describe_moves(names: list[str], cells: Any, effect: Floats) -> str:
    """List the cells of a row that moved its prediction most, and by how much."""
    moves = []
    for j in np.argsort(-np.abs(effect), kind="stable")[:MAX_MOVES]:
        if abs(effect[j]) > LEAST_MOVE:
            name = shorten(names[j], CELL_WIDTH)
            cell = shorten(cells[j], CELL_WIDTH)
            sign = "+" if effect[j] >= 0 else ""
            moves.append(f"{name} = {cell} ({sign}{format_number(effect[j], 2)})")

    return "; ".join(moves)


def _describe_labels(
    found: Findings, scored: Scored, places: list[int]
) -> list[dict[str, str]]:
    assert isinstance(found.model, GPClassifier)
    parts = found.model.predict_uncertainty(Prepared(scored.raw.X[places]))
    ratio = np.zeros(len(places))
    np.divide(parts.epistemic, parts.total, out=ratio, where=parts.total > 0)
    lines = []
    for n, share in zip(places, ratio.clip(0, 1), strict=True):
        P = np.exp(scored.outcome[n])
        best = int(scored.outcome[n].argmax())
        line = {"Predicted": f"{found.classes[best]} ({P[best]:.1%})"}
        if scored.truth is not None:
            true = int(scored.truth[n])
            line["True"] = "right"
            if true != best:
                line["True"] = f"wrong: {found.classes[true]} ({P[true]:.1%})"

        line["Too little data"] = f"{share:.0%}"
        lines.append(line)

    return lines


def _describe_numbers(scored: Scored, places: list[int]) -> list[dict[str, str]]:
    lines = []
    for n in places:
        mean, std = scored.outcome[n]
        line = {"Predicted": f"{format_number(mean, 4)} ± {format_number(std, 3)}"}
        if scored.truth is not None:
            y = float(scored.truth[n])
            line["True"] = format_number(y)
            line["Error / std"] = f"{(y - mean) / std:+z.1f}"

        lines.append(line)

    return lines


def describe_data(found: Findings) -> Content:
    """Describe how each column is used, and its cells in these rows."""
    prepare = found.fit.features.preparation
    scored = found.scored
    if scored is None and prepare is None:
        return None

    uses = {}
    if prepare is not None:
        uses = dict(prepare.describe())
    lines = []
    for j, name in enumerate(found.columns[: 3 * MAX_LINES]):
        line = [name_column(name), uses.get(name, "number, used as it is")]
        if scored is not None:
            line += _describe_cells(scored.raw, j)
        lines.append(line)

    unusual = None
    if scored is not None and scored.novelty is not None:
        unusual = (scored.novelty > UNUSUAL).mean()
    return {"lines": lines, "unusual": unusual}


def _describe_cells(raw: RawRows, j: int) -> list[str]:
    """Describe the cells of a column: missing ones, and the range or frequent levels."""
    if not (raw.owner == j).any():
        return ["", ""]

    cells = raw.cells(j)
    lacks = np.array([cell is None or cell != cell for cell in cells])
    known = cells[~lacks]
    missing = "0"
    if lacks.any():
        missing = f"{int(lacks.sum())} ({lacks.mean():.1%})"
    if not len(known):
        return [missing, ""]

    if raw.kind(j) == "category":
        levels, counts = np.unique(known.astype(str), return_counts=True)
        order = np.argsort(-counts, kind="stable")
        frequent = [f"{levels[k]} ({counts[k]})" for k in order]
        return [missing, list_names(frequent, 3)]

    ordered = np.sort(known)
    median = format_value(ordered[len(known) // 2])
    extent = f"{format_value(ordered[0])} to {format_value(ordered[-1])}"
    return [missing, f"{extent}, median {median}"]


def list_members(found: Findings) -> list[list[str]] | None:
    """List the models of the pool with what each adds, the heaviest first."""
    scores = found.fit.members
    if scores is None:
        return None

    rows = sorted(zip(*scores, strict=True), key=lambda row: -row[1])
    return [
        [name, f"{weight:.2f}", format_loss(loss), f"{gain:+.4f}", f"{seconds:.1f}"]
        for name, weight, loss, gain, seconds in rows
    ]


def describe_model(model: GPEstimator) -> list[tuple[str, str]]:
    """Return the facts of `cavity info`, training time, seed and package versions."""
    found = list_facts(describe_fit(model))
    facts = [(name[0].upper() + name[1:], text) for name, text in found]
    if model.history_ and "seconds" in model.history_[-1]:
        facts.append(("Training time (s)", f"{model.history_[-1]['seconds']:.1f}"))
    facts.append(("Seed (random_state)", f"{model.random_state!r}"))
    versions = {
        "cavity": __version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }
    facts += [(f"Version of {name}", version) for name, version in versions.items()]
    return facts
