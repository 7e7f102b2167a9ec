"""`cavity evaluate`: score a saved model on a file with labels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cavity.cli.costs import format_costs, read_costs
from cavity.cli.logistic import LOSS, recall_logistic
from cavity.cli.model_rows import Reservoir, Roles, find_roles, read_model_rows
from cavity.cli.models import Model
from cavity.cli.reporting import note_training_rows
from cavity.cli.terminal import Terminal, Text
from cavity.common.scoring import (
    count_confusion,
)
from cavity.common.terms import name_score
from cavity.common.text_tables import format_grid, list_names, shorten
from cavity.common.types import Ints
from cavity.prediction.decisions import Costs
from cavity.report import scores
from cavity.report.decisions import assess_decisions
from cavity.tables.files.table_files import TableFile, open_table

MAX_CLASSES = 12  # of a printed table
NAME_WIDTH = 12  # of a class in a printed table, unless two names would become equal
MOST_KEPT = 1 << 24  # numbers; of a longer table a random sample of rows is scored
OVERALL = ("error", "nll", "brier", "ece", "auc", "f1")
EACH = ("precision", "recall", "f1", "auc")


class RowsToScore(NamedTuple):
    columns: tuple[Any, ...]  # predictions, truth, weights
    unit: Any  # the same number for rows of a group; None if each row stands alone
    total: int  # number of all rows
    notes: dict[str, int]  # counts of cells unlike the training rows


def evaluate(
    model: str,
    data: str,
    costs: Text,
    device: Text,
    terminal: Terminal,
    **asked: Text,
) -> None:
    opened = Model.open(model, device)
    given = None
    if costs is not None:
        given = read_costs(costs, opened)
    file = open_table(data)
    if not terminal.as_json:
        note_training_rows(opened, data, terminal)
    found = predict_rows(opened, file, find_roles(opened, file, **asked), terminal)

    if opened.classes is None:
        result = _report_numbers(opened, found, terminal)
    else:
        result = _report_classes(opened, found, terminal)
    if given is not None:
        result["decisions"] = _report_decisions(opened, found, given, terminal)

    terminal.print_result(result | {"notes": found.notes})


def predict_rows(
    model: Model,
    file: TableFile,
    roles: Roles,
    terminal: Terminal,
    most_numbers: int = MOST_KEPT,
) -> RowsToScore:
    """Predict the rows that have a label and a positive weight.

    Of a long table, only a random sample is kept.
    """
    width = 2 if model.classes is None else len(model.classes)
    most = max(1, most_numbers // width)
    kept = Reservoir(most)
    notes = Counter[str]()
    for part in read_model_rows(model, file, roles, notes, terminal):
        if model.classes is None:
            outcome: Any = model.predict_targets(part.X)
        else:
            outcome = (model.predict_log_proba(part.X),)

        group = part.y if part.group is None else part.group
        kept.add(*outcome, part.y, part.weight, group)

    if kept.total > most:
        terminal.note(f"scored a random sample of {most} of {kept.total} rows")

    *columns, group = kept.columns
    unit = None
    if roles.group is not None:
        unit = np.unique(group, return_inverse=True)[1]
        terminal.note(
            f"intervals are based on {unit.max() + 1} groups of rows "
            f"(column {roles.group!r}), not on single rows"
        )

    return RowsToScore(tuple(columns), unit, kept.total, dict(notes))


def _report_classes(
    model: Model, found: RowsToScore, terminal: Terminal
) -> dict[str, Any]:
    log_p, y, w = found.columns
    classes = model.labels
    prior = model.result.class_prior
    assessed = scores.assess_classes(log_p, y, w, prior, found.unit)
    confusion = count_confusion(y, log_p.argmax(1), len(classes))
    each = _list_classes(assessed, confusion, classes)
    baseline = _pick(assessed.plain, ("error", "nll", "brier"))
    baseline["of"] = "rows of this file" if prior is None else "training rows"
    notes = getattr(model.classifier, "notes_", {})
    result = {
        "rows": found.total,
        **_pick(assessed.values, OVERALL),
        "intervals": _pick(assessed.ranges, OVERALL),
        "baseline": baseline,
        "per_class": each,
        "classes": classes,
        "confusion": confusion.tolist(),
        LOSS: notes.get(LOSS),
    }

    quoted = list(map(repr, classes))
    weak = scores.find_weak_classes(quoted, confusion.sum(1), confusion.sum(0))
    if weak.never:
        terminal.note(f"classes that are never predicted: {list_names(weak.never)}")
    if weak.few:
        few = f"classes with fewer than {scores.FEW_ROWS} rows"
        terminal.note(f"{few}, whose scores say little: {list_names(weak.few)}")
    _say_rows(found, terminal)
    terminal.say(_format_overall(result, prior is None))
    terminal.say(recall_logistic(notes, model.result.estimate))
    terminal.say(_format_classes(each))
    if len(classes) <= MAX_CLASSES:
        terminal.say(_format_confusion(result["confusion"], classes))
    return result


def _report_decisions(
    model: Model, found: RowsToScore, costs: Costs, terminal: Terminal
) -> dict[str, Any]:
    log_p, y, w = found.columns
    prior = model.result.class_prior
    assessed = assess_decisions(
        np.exp(log_p), y, w, costs, model.labels, prior=prior, unit=found.unit
    )
    terminal.say(format_costs(assessed))
    thresholds = None
    if assessed.thresholds is not None:
        thresholds = assessed.thresholds._asdict()
    return {**assessed._asdict(), "thresholds": thresholds}


def _list_classes(
    assessed: scores.Assessment, confusion: Ints, classes: list[str]
) -> dict[str, dict[str, Any]]:
    """Return the number of rows, the scores and their intervals of each class."""
    values = assessed.values["classes"]
    ranges = assessed.ranges["classes"]
    each = {}
    for c, name in enumerate(classes):
        each[name] = {
            "rows": int(confusion[c].sum()),
            "predicted": int(confusion[:, c].sum()),
            **{score: values[score][c] for score in EACH},
            "intervals": {score: ranges[score][c] for score in EACH},
        }

    return each


def _report_numbers(
    model: Model, found: RowsToScore, terminal: Terminal
) -> dict[str, Any]:
    mean, std, y, w = found.columns
    units = model.result.units
    assessed = scores.assess_targets(mean, std, y, w, units, found.unit)
    values, ranges, plain = assessed
    lines = [["", "model", "95% interval", "mean and spread of the training rows"]]
    for name, value in values.items():
        ends = "[{:.4g}, {:.4g}]".format(*ranges[name])
        lines.append([name_score(name), f"{value:.4g}", ends, f"{plain[name]:.4g}"])
    _say_rows(found, terminal)
    terminal.say(format_grid(lines))
    return {"rows": found.total, **values, "intervals": ranges, "baseline": plain}


def _say_rows(found: RowsToScore, terminal: Terminal) -> None:
    *_, weight = found.columns
    weighted = ", weighted" if np.ptp(weight) else ""
    terminal.say(f"rows  {found.total}{weighted}")


def _pick(found: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: found[name] for name in names}


def _format_overall(result: dict[str, Any], own: bool) -> str:
    """Format the overall scores; `own`: the baseline has the frequencies of these rows."""
    baseline = "class frequencies"
    if own:
        baseline += " of these rows"
    lines = [["", "model", "95% interval", baseline]]
    for score in OVERALL:
        name = score
        value = result[score]
        ends = result["intervals"][score]
        base = result["baseline"].get(score, math.nan)
        if score == "error":  # people read accuracies
            name = "accuracy"
            value = 1 - value
            ends = [1 - end for end in reversed(ends)]
            base = 1 - base

        cells = (_number(value, 4), _range(ends, 4), _number(base, 4))
        lines.append([name_score(name), *cells])

    return format_grid(lines)


def _format_classes(each: dict[str, Any]) -> str:
    """Format the scores of each class; if there are many, those with the lowest F1."""
    order = list(each)
    title = "class"
    if len(each) > MAX_CLASSES:
        order.sort(key=lambda c: each[c]["f1"] if each[c]["rows"] else math.inf)
        order = order[:MAX_CLASSES]
        title = f"worst {MAX_CLASSES} classes"

    lines = [[title, "rows", "predicted", *map(name_score, EACH)]]
    for name, short in zip(order, _shorten_names(order), strict=True):
        own = each[name]
        line = [short, f"{own['rows']}", f"{own['predicted']}"]
        for score in EACH:
            ends = own["intervals"][score]
            line.append(f"{_number(own[score], 2)} {_range(ends, 2)}")
        lines.append(line)

    return "\n" + format_grid(lines, right=(1, 2))


def _number(value: float, digits: int) -> str:
    if math.isfinite(value):
        return f"{value:.{digits}f}"

    return f"{'-':<{digits + 2}}"


def _range(ends: list[float], digits: int) -> str:
    if np.isfinite(ends).all():
        low, high = ends
        return f"[{low:.{digits}f}, {high:.{digits}f}]"

    return ""


def _format_confusion(confusion: Any, names: list[str]) -> str:
    short = _shorten_names(names)
    lines = [["true / predicted", *short]]
    for name, row in zip(short, confusion, strict=True):
        lines.append([name, *map(str, row)])
    return "\n" + format_grid(lines, right=range(1, len(names) + 1))


def _shorten_names(names: list[str]) -> list[str]:
    """Cut names to `NAME_WIDTH`, or to the least width at which they stay unique."""
    width = NAME_WIDTH
    short = [shorten(name, width) for name in names]
    while len({*short}) < len({*names}):
        width += 1
        short = [shorten(name, width) for name in names]
    return short
