"""`cavity evaluate` and `compare`: score saved models on a file with labels;
differences have their paired standard error.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.cli.model_rows import Reservoir, Roles, find_roles, read_model_rows
from cavity.cli.models import Model
from cavity.cli.reporting import note_training_rows
from cavity.cli.terminal import Terminal, Text
from cavity.common.scoring import (
    Mean,
    compare_log_proba,
    count_confusion,
    score_log_proba,
)
from cavity.common.terms import name_score
from cavity.common.text_tables import format_grid, list_names, shorten
from cavity.errors import BadFile, BadInput
from cavity.report import scores
from cavity.tables.files.table_files import TableFile, open_table

MAX_CLASSES = 12  # of tables that are printed
NAME_WIDTH = 12  # of a class in a table
MOST_KEPT = 1 << 24  # numbers; of a longer table a random sample of rows is scored
SCORES = ("nll", "error", "brier")  # less is better
CLEAR = 2.0  # standard errors from which on a difference is not noise
OVERALL = ("error", "nll", "brier", "ece", "auc", "f1")
EACH = ("precision", "recall", "f1", "auc")


class RowsToScore(NamedTuple):
    columns: tuple[Any, ...]  # predictions, truth, weights
    unit: Any  # the same number for rows of a group; None: each row stands alone
    total: int  # number of all rows
    notes: dict[str, int]  # counts of cells unlike those of the training rows


def evaluate(
    model: str, data: str, device: Text, terminal: Terminal, **asked: Text
) -> None:
    opened = Model.open(model, device)
    file = open_table(data)
    if not terminal.as_json:
        note_training_rows(opened, data, terminal)
    found = predict_rows(opened, file, find_roles(opened, file, **asked), terminal)
    report = _report_numbers if opened.classes is None else _report_classes
    result = report(opened, found, terminal)
    terminal.print_result(result | {"notes": found.notes})


def predict_rows(
    model: Model, file: TableFile, roles: Roles, terminal: Terminal
) -> RowsToScore:
    """Predict the rows that have a label and a positive weight; keep a random sample of
    a long table.
    """
    most = max(1, MOST_KEPT // (2 if model.classes is None else len(model.classes)))
    kept = Reservoir(most)
    notes = Counter[str]()
    for part in read_model_rows(model, file, roles, notes, terminal):
        if model.classes is None:
            found: Any = model.predict_targets(part.X)
        else:
            found = (model.predict_log_proba(part.X),)
        kept.add(
            *found, part.y, part.weight, part.y if part.group is None else part.group
        )
    if kept.total > most:
        terminal.note(f"scores are of a random sample of {most} of {kept.total} rows")
    *columns, of = kept.columns
    unit = None
    if roles.group is not None:
        unit = np.unique(of, return_inverse=True)[1]
    if unit is not None:
        terminal.note(
            f"intervals count {unit.max() + 1} groups of rows (column "
            f"{roles.group!r}), not rows"
        )
    return RowsToScore(tuple(columns), unit, kept.total, dict(notes))


def _report_classes(
    model: Model, found: RowsToScore, terminal: Terminal
) -> dict[str, Any]:
    log_p, y, w = found.columns
    classes = model.labels
    prior = model.result.class_prior
    values, ranges, plain = scores.assess_classes(log_p, y, w, prior, found.unit)
    confusion = count_confusion(y, log_p.argmax(1), len(classes))
    each = {
        name: {"rows": int(confusion[c].sum()), "predicted": int(confusion[:, c].sum())}
        | {k: values["classes"][k][c] for k in EACH}
        | {"intervals": {k: ranges["classes"][k][c] for k in EACH}}
        for c, name in enumerate(classes)
    }
    of = "rows of this file" if prior is None else "training rows"
    baseline = {k: plain[k] for k in ("error", "nll", "brier")} | {"of": of}
    result = {"rows": found.total} | {k: values[k] for k in OVERALL}
    result |= {"intervals": {k: ranges[k] for k in OVERALL}, "baseline": baseline}
    result |= {"per_class": each, "classes": classes, "confusion": confusion.tolist()}
    never, few = scores.find_weak_classes(
        [repr(c) for c in classes], confusion.sum(1), confusion.sum(0)
    )
    if never:
        terminal.note(f"classes that are never predicted: {list_names(never)}")
    if few:
        what = (
            f"classes with fewer than {scores.FEW_ROWS} rows, whose scores say little"
        )
        terminal.note(f"{what}: {list_names(few)}")
    terminal.say(f"rows  {found.total}{', weighted' if np.ptp(w) else ''}")
    terminal.say(_format_overall(result, prior is None))
    terminal.say(_format_classes(each))
    if len(classes) <= MAX_CLASSES:
        terminal.say(_format_confusion(result["confusion"], classes))
    return result


def _report_numbers(
    model: Model, found: RowsToScore, terminal: Terminal
) -> dict[str, Any]:
    mean, std, y, w = found.columns
    values, ranges, plain = scores.assess_targets(
        mean, std, y, w, model.result.units, found.unit
    )
    lines = [["", "model", "95% interval", "mean and spread of the training rows"]]
    for name, value in values.items():
        ends = "[{:.4g}, {:.4g}]".format(*ranges[name])
        lines.append([name_score(name), f"{value:.4g}", ends, f"{plain[name]:.4g}"])
    terminal.say(f"rows  {found.total}{', weighted' if np.ptp(w) else ''}")
    terminal.say(format_grid(lines))
    return {"rows": found.total} | values | {"intervals": ranges, "baseline": plain}


def _format_overall(result: dict[str, Any], own: bool) -> str:
    lines = [
        [
            "",
            "model",
            "95% interval",
            f"class frequencies{' of these rows' if own else ''}",
        ]
    ]
    for name in OVERALL:
        value = result[name]
        ends = result["intervals"][name]
        base = result["baseline"].get(name, math.nan)
        if name == "error":  # people read accuracies
            name = "accuracy"
            value = 1 - value
            ends = [1 - end for end in reversed(ends)]
            base = 1 - base
        lines.append(
            [name_score(name), _number(value, 4), _range(ends, 4), _number(base, 4)]
        )
    return format_grid(lines)


def _format_classes(each: dict[str, Any]) -> str:
    """Format the scores of each class; of many classes, those with the lowest F1."""
    order = list(each)
    title = "class"
    if len(each) > MAX_CLASSES:
        order.sort(
            key=lambda name: each[name]["f1"] if each[name]["rows"] else math.inf
        )
        title = f"worst {MAX_CLASSES} classes"
    lines = [[title, "rows", "predicted", *map(name_score, EACH)]]
    for name in order[:MAX_CLASSES]:
        own = each[name]
        cells = [f"{_number(own[k], 2)} {_range(own['intervals'][k], 2)}" for k in EACH]
        lines.append(
            [shorten(name, NAME_WIDTH), f"{own['rows']}", f"{own['predicted']}", *cells]
        )
    return "\n" + format_grid(lines, right=(1, 2))


def _number(value: float, digits: int) -> str:
    if math.isfinite(value):
        return f"{value:.{digits}f}"
    return f"{'-':<{digits + 2}}"


def _range(ends: list[float], digits: int) -> str:
    if np.isfinite(ends).all():
        return f"[{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"
    return ""


def _format_confusion(confusion: Any, names: list[str]) -> str:
    short = [shorten(name, NAME_WIDTH) for name in names]
    lines = [["true / predicted", *short]]
    lines += [
        [name, *map(str, row)] for name, row in zip(short, confusion, strict=True)
    ]
    return "\n" + format_grid(lines, right=range(1, len(names) + 1))


class Comparison(NamedTuple):
    values: tuple[float, float]
    difference: Mean  # of the second and the first

    @property
    def better(self) -> int | None:
        """The number of the better model; None if the difference may be noise."""
        size, error = self.difference
        if not abs(size) > CLEAR * error:
            return None
        return int(size < 0)


def compare(
    model: str, other: str, data: str, device: Text, terminal: Terminal, **asked: Text
) -> None:
    paths = (model, other)
    models = first, second = Model.open(model, device), Model.open(other, device)
    for path, opened in zip(paths, models, strict=True):
        if opened.classes is None:
            raise BadFile(
                f"{path} is a regressor, but this command needs a classifier."
            )
    odd = sorted(set(first.labels) ^ set(second.labels))
    if odd:
        raise BadInput(
            f"only one of the models has the class {odd[0]!r}: compare models of equal "
            f"classes."
        )
    file = open_table(data)
    roles = find_roles(first, file, **asked)
    for opened in models:
        note_training_rows(opened, data, terminal)
    found = predict_rows(first, file, roles, terminal)
    again = predict_rows(second, open_table(data), roles._replace(group=None), terminal)
    (log_p, y, w) = found.columns
    unit = found.unit
    other_log_p = again.columns[0][
        :, [second.labels.index(name) for name in first.labels]
    ]
    compared = compare_scores(log_p, other_log_p, y, w, unit)
    names = model, other
    if Path(model).name != Path(other).name:
        names = Path(model).name, Path(other).name
    if unit is None:
        cases = f"{len(y)} rows"
    else:
        cases = f"{unit.max() + 1} groups of rows"
    verdict = describe_difference(compared["nll"], names, cases)
    terminal.say(f"{_format_comparison(compared, names, found.total)}\n{verdict}")
    result: dict[str, Any] = {"rows": found.total, "models": paths}
    for name, score in compared.items():
        size, error = score.difference
        better = None
        if score.better is not None:
            better = paths[score.better]
        result[name] = {
            "values": score.values,
            "difference": size,
            "standard_error": error,
            "better": better,
        }
    terminal.print_result(result | {"verdict": verdict})


def compare_scores(
    log_p: Any, other: Any, y: Any, weight: Any, unit: Any = None
) -> dict[str, Comparison]:
    """Compare log-probabilities [n C] of the same rows.

    `unit`: the same number for rows of a group, counted once in errors.
    """
    differences = compare_log_proba(log_p, other, y, weight, unit)
    values = [score_log_proba(p, y, weight) for p in (log_p, other)]
    return {k: Comparison((values[0][k], values[1][k]), differences[k]) for k in SCORES}


def describe_difference(score: Comparison, names: tuple[str, str], cases: str) -> str:
    size = abs(score.difference.value)
    error = score.difference.error
    if size == 0 and error == 0:
        return "Both models give these rows the same predictions."
    if not math.isfinite(size):
        return (
            "A model gives a row's own class a probability of 0: the log loss cannot "
            "be compared."
        )
    if score.better is None:
        return f"The difference in log loss, {size:.4f} ± {error:.4f}, may be noise: {cases} cannot tell which model is better."
    smaller = f"{size:.4f} ± {error:.4f} smaller, {size / max(error, 1e-300):.1f} standard errors"
    return f"{names[score.better]} is better: its log loss is {smaller}."


def _format_comparison(
    scores: dict[str, Comparison], names: tuple[str, str], rows: int
) -> str:
    lines = [["", *names, "difference", ""], ["rows", f"{rows}", "", "", ""]]
    for key in SCORES:
        (first, second), (size, error), better = *scores[key], scores[key].better
        said = "may be noise"
        if better is not None:
            said = f"{names[better]} is better"
        text = name_score(key)
        if key == "error":  # people read accuracies
            text = "accuracy"
            first = 1 - first
            second = 1 - second
            size = -size
        lines.append(
            [text, f"{first:.4f}", f"{second:.4f}", f"{size:+z.4f} ± {error:.4f}", said]
        )
    return format_grid(lines)
