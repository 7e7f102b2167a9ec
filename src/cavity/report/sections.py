"""Sections of the report as HTML: classes, importance, notable rows, data quality."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.scoring import count_confusion
from cavity.estimators.fitted_view import view_fit
from cavity.explain.partial_dependence import PartialDependence, format_value
from cavity.explain.raw_rows import RawRows
from cavity.report.charts import draw_dependence
from cavity.report.colours import COLOURS
from cavity.report.findings import Ranking, Scored, explain_notable, find_notable
from cavity.report.markup import escape_text, grid, render_bars, render_paragraph, render_table, scroll
from cavity.report.scores import FEW_ROWS, find_weak_classes
from cavity.report.svg import format_number
from cavity.rows.frames import Prepared

MAX_LINES = 40  # columns or classes in a table
CELLS = 20  # more classes have a list of confusions instead of a matrix
SHOWN_COLUMNS = 6  # columns of the table in that of notable rows
BARS = 20
EACH = {"precision": "Precision", "recall": "Recall", "f1": "F1", "auc": "AUC"}


def render_classes(scored: Scored | None, classes: list[str]) -> str:
    if scored is None or scored.truth is None or scored.is_regression:
        return ""
    chosen, C = scored.outcome.argmax(1), len(classes)
    confusion = count_confusion(scored.truth, chosen, C)
    rows, predicted = confusion.sum(1), confusion.sum(0)
    values = scored.scores["classes"]
    caption, order = "Scores of each class", np.arange(C)
    if C > MAX_LINES:
        order = np.argsort(np.where(rows > 0, values["f1"], np.inf), kind="stable")
        caption = f"Scores of the {MAX_LINES} classes with the lowest F1"
    lines = [
        [classes[c], f"{rows[c]}", f"{predicted[c]}", *(_number(values[k][c]) for k in EACH)]
        for c in order[:MAX_LINES]
    ]
    never, few = find_weak_classes(classes, rows, predicted)
    notes = [f"Never predicted: {', '.join(never[:12])}."] if never else []
    if few:
        notes.append(f"Fewer than {FEW_ROWS} rows, so that scores say little: {', '.join(few[:12])}.")
    return (
        "".join(map(render_paragraph, notes))
        + render_table(caption, ["Class", "Rows", "Predicted", *EACH.values()], lines, C)
        + (_render_confusion(confusion, classes) if C <= CELLS else _list_confusions(confusion, classes))
    )


def _number(value: float) -> str:
    return f"{value:.2f}" if np.isfinite(value) else "–"


def _render_confusion(confusion: NDArray[np.int64], classes: list[str]) -> str:
    share = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
    lines = []
    for i, name in enumerate(classes):
        cells = []
        for j, n in enumerate(confusion[i]):
            colour = f"{COLOURS[int(i != j)]}{round(255 * share[i, j]):02X}"
            full = ' class="full"' if share[i, j] > 0.55 else ""
            tip = escape_text(f"{n} rows of {name} predicted as {classes[j]} ({share[i, j]:.0%})")
            cells.append(f'<td{full} style="background:{colour}" title="{tip}">{n or "·"}</td>')
        lines.append(f'<tr><th scope="row">{escape_text(name)}</th>{"".join(cells)}</tr>')
    breakable = [escape_text(name).replace("_", "_<wbr>") for name in classes]
    head = "".join(f'<th scope="col">{name}</th>' for name in breakable)
    head = f'<thead><tr><th scope="col">true / predicted</th>{head}</tr></thead>'
    caption = "Confusion matrix: rows by true class (down) and predicted class (across)"
    return scroll(caption, f"{head}<tbody>{''.join(lines)}</tbody>", "confusion numbers")


def _list_confusions(confusion: NDArray[np.int64], classes: list[str]) -> str:
    off = confusion - np.diag(confusion.diagonal())
    best = np.argsort(-off, axis=None, kind="stable")[:15]
    pairs = [np.unravel_index(k, off.shape) for k in best if off.flat[k]]
    lines = [
        [classes[i], classes[j], f"{off[i, j]}", f"{off[i, j] / max(confusion[i].sum(), 1):.0%}"]
        for i, j in pairs
    ]
    head = ["True class", "Predicted as", "Rows", "Share of the class"]
    return render_table("Most frequent confusions", head, lines) if lines else ""


def render_importance(raw_names: list[str], ranking: Ranking | None) -> str:
    if ranking is None:
        return ""
    shown = ranking.places[:BARS]
    names = [raw_names[j] or "(no name)" for j in shown]
    texts = [f"{v:.3f}" for v in ranking.values[:BARS]]
    if ranking.errors is not None:
        texts = [f"{text} ± {e:.3f}" for text, e in zip(texts, ranking.errors, strict=False)]
        how = "How much the loss of these rows increases, in nats, if the cells of a column are shuffled, ± standard error."
    else:
        how = "How much the prediction changes, in nats, if a cell comes from another row, by the model's own account."
    if ranking.given is not None:
        texts = [f"{text} ({g:.3f})" for text, g in zip(texts, ranking.given, strict=False)]
        how += " In brackets: if the cells are unknown and the others tell about them, what would be lost without the column."
    text = f"{how} Columns of noise are near 0."
    if len(ranking.places) > BARS:
        text += f" {len(ranking.places) - BARS} columns that matter less are left out."
    return render_paragraph(text) + render_bars(
        "Importance of columns", names, ranking.values[:BARS], texts, ("Column", "Importance (nats)")
    )


def render_dependences(
    found: list[PartialDependence], ranking: Ranking | None, names: list[str], target: str
) -> str:
    if not found or ranking is None:
        return ""
    value = {names[j]: v for j, v in zip(ranking.places, ranking.values, strict=True)}
    figures = [
        draw_dependence(part, k, f"Importance {value.get(part.name, 0):.2f} nats.", target)
        for k, part in enumerate(found)
    ]
    text = "The mean prediction when a column has the same value in every row, in the units of the table."
    return render_paragraph(text) + grid("".join(figures))


def render_rows(model: Any, scored: Scored, ranking: Ranking | None, classes: list[str], numbers: Any) -> str:
    """Render notable rows in original values, with what moved their predictions."""
    notable = find_notable(scored)
    places = [n for n, _ in notable]
    moved = explain_notable(model, scored, places)
    order = list(range(len(moved.names))) if ranking is None else ranking.places
    shown = [j for j in order if (scored.raw.owner == j).any()][:SHOWN_COLUMNS]
    labels = None if scored.is_regression else _describe_labels(model, scored, places, classes)
    head, describe = labels or _describe_numbers(scored)
    lines = []
    for k, (n, why) in enumerate(notable):
        effect = moved.of_prediction()[k]
        best = [j for j in np.argsort(-np.abs(effect), kind="stable")[:3] if abs(effect[j]) > 1e-3]
        causes = "; ".join(f"{moved.names[j]} {effect[j]:+.2g}" for j in best)
        number = n if numbers is None else numbers[n]
        unusual = [] if scored.novelty is None else [f"{scored.novelty[n]:.0%}"]
        lines.append([f"{number}", why, *describe(n), *unusual, causes, *(moved.values[k, j] for j in shown)])
    names = [moved.names[j] or "(no name)" for j in shown]
    unit = "units of the target" if scored.is_regression else "nats of log-probability"
    text = (
        "Hardest: the true outcome was least expected; look for errors in the label or in the cells. "
        f"Uncertain: the prediction is least certain. Moved by: the columns that change the prediction "
        f"most, compared with the cells of other rows, in {unit}. Novelty: the share of training rows that are more usual."
    )
    head = head if scored.novelty is None else [*head, "Novelty"]
    head = ["Row", "Why", *head, "Moved by", *names]
    table = render_table("Hardest and most uncertain rows", head, lines, name="rows")
    return render_paragraph(text) + table


def _describe_labels(clf: Any, scored: Scored, places: list[int], classes: list[str]) -> Any:
    parts = clf.predict_uncertainty(Prepared(scored.raw.X[places]))
    ratio = np.divide(parts.epistemic, parts.total, out=np.zeros(len(places)), where=parts.total > 0)
    share = dict(zip(places, ratio.clip(0, 1), strict=True))

    def describe(n: int) -> list[str]:
        best = int(scored.outcome[n].argmax())
        cells = [classes[best], f"{np.exp(scored.outcome[n, best]):.1%}"]
        if scored.truth is not None:
            true = int(scored.truth[n])
            right = "right" if true == best else "wrong"
            cells += [classes[true], f"{np.exp(scored.outcome[n, true]):.1%}", right]
        return [*cells, f"{share[n]:.0%}"]

    known = ["True", "Its probability", "Right"] if scored.truth is not None else []
    return ["Predicted", "Probability", *known, "Doubt for lack of data"], describe


def _describe_numbers(scored: Scored) -> Any:
    def describe(n: int) -> list[str]:
        mean, std = scored.outcome[n]
        cells = [format_number(mean, 4), f"{std:.3g}"]
        if scored.truth is None:
            return cells
        y = float(scored.truth[n])
        return [*cells, format_number(y), f"{(y - mean) / std:+.1f}"]

    known = ["True", "Error / std"] if scored.truth is not None else []
    return ["Predicted", "Std", *known], describe


def render_quality(model: Any, scored: Scored | None, remarks: list[str]) -> str:
    """Render what became of each column, and what its cells are in these rows."""
    prepare = view_fit(model).features.preparation
    raw = None if scored is None else scored.raw
    if raw is not None:
        names = raw.names
    elif prepare is not None:
        names = tuple(map(str, prepare.feature_names_in_))
    else:
        return ""
    how = {} if prepare is None else dict(prepare.describe())
    lines = []
    for j, name in enumerate(names[: 3 * MAX_LINES]):
        used = how.get(name, "number, used as it is")
        lines.append([name or "(no name)", used, *([] if raw is None else _describe_cells(raw, j))])
    head = ["Column", "How it is used", *([] if raw is None else ["Missing here", "Cells here"])]
    table = render_table("Columns of the table", head, lines, len(names))
    return "".join(map(render_paragraph, remarks)) + table


def _describe_cells(raw: RawRows, j: int) -> list[str]:
    """Describe the cells of a column in these rows: how many are missing, and their range or most frequent levels."""
    if not (raw.owner == j).any():
        return ["", ""]
    cells = raw.cells(j)
    lacks = np.array([cell is None or cell != cell for cell in cells])
    known = cells[~lacks]
    missing = f"{int(lacks.sum())} ({lacks.mean():.0%})" if lacks.any() else "0"
    if not len(known):
        return [missing, ""]
    if raw.kind(j) == "category":
        levels, counts = np.unique(known.astype(str), return_counts=True)
        best = np.argsort(-counts, kind="stable")[:3]
        text = ", ".join(f"{levels[k]} ({counts[k]})" for k in best)
        return [missing, text + (f" and {len(levels) - 3} more" if len(levels) > 3 else "")]
    low, middle, high = np.sort(known)[[0, len(known) // 2, -1]]
    return [missing, f"{format_value(low)} to {format_value(high)}, median {format_value(middle)}"]
