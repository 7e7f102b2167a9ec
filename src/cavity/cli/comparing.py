"""`cavity compare`: two models on the same rows, with the paired standard error of each difference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from cavity.cli.evaluating import predict_rows
from cavity.cli.model_rows import find_roles
from cavity.cli.models import Model
from cavity.cli.reporting import note_training_rows
from cavity.cli.terminal import Terminal, Text
from cavity.common.scoring import Mean, compare_log_proba, score_log_proba
from cavity.common.terms import name_score
from cavity.common.text_tables import format_grid
from cavity.errors import BadFile, BadInput
from cavity.rows.files.table_files import open_table

SCORES = ("nll", "error", "brier")  # less is better
CLEAR = 2.0  # standard errors from which on a difference is not noise


class Comparison(NamedTuple):
    values: tuple[float, float]
    difference: Mean  # of the second and the first

    @property
    def better(self) -> int | None:
        """The number of the better model; None if the difference may be noise."""
        size, error = self.difference
        return None if not abs(size) > CLEAR * error else int(size < 0)


def compare(
    model: str,
    other: str,
    data: str,
    target: Text,
    weight: Text,
    group: Text,
    device: Text,
    terminal: Terminal,
) -> None:
    paths = (model, other)
    models = first, second = Model.open(model, device), Model.open(other, device)
    for path, opened in zip(paths, models, strict=True):
        if opened.classes is None:
            raise BadFile(f"{path} is a regressor, but this command needs a classifier.")
    odd = sorted(set(first.labels) ^ set(second.labels))
    if odd:
        raise BadInput(
            f"only one of the models has the class {odd[0]!r}: compare models of the same classes."
        )
    file = open_table(data)
    roles = find_roles(first, file, target, weight, group)
    for opened in models:
        note_training_rows(opened, data, terminal)
    found = predict_rows(first, file, roles, terminal)
    again = predict_rows(second, open_table(data), roles._replace(group=None), terminal)
    (log_p, y, w), unit = found.columns, found.unit
    other_log_p = again.columns[0][:, [second.labels.index(name) for name in first.labels]]
    scores = compare_scores(log_p, other_log_p, y, w, unit)
    names = model, other
    if Path(model).name != Path(other).name:
        names = Path(model).name, Path(other).name
    cases = f"{len(y)} rows" if unit is None else f"{unit.max() + 1} groups of rows"
    verdict = describe_difference(scores["nll"], names, cases)
    terminal.say(f"{_format(scores, names, found.total)}\n{verdict}")
    result = {
        name: {
            "values": score.values,
            "difference": score.difference.value,
            "standard_error": score.difference.error,
            "better": None if score.better is None else paths[score.better],
        }
        for name, score in scores.items()
    }
    terminal.print_result({"rows": found.total, "models": paths, **result, "verdict": verdict})


def compare_scores(log_p: Any, other: Any, y: Any, weight: Any, unit: Any = None) -> dict[str, Comparison]:
    """Compare log-probabilities [n C] of the same rows. `unit`: the same number for rows of a group, counted once in errors."""
    differences = compare_log_proba(log_p, other, y, weight, unit)
    values = [score_log_proba(p, y, weight) for p in (log_p, other)]
    return {k: Comparison((values[0][k], values[1][k]), differences[k]) for k in SCORES}


def describe_difference(score: Comparison, names: tuple[str, str], cases: str) -> str:
    size, error = abs(score.difference.value), score.difference.error
    if size == 0 and error == 0:
        return "Both models give these rows the same predictions."
    if not math.isfinite(size):
        return "A model gives a row's own class a probability of 0: the log loss cannot be compared."
    if score.better is None:
        return f"The difference in log loss, {size:.4f} ± {error:.4f}, may be noise: {cases} cannot tell which model is better."
    return (
        f"{names[score.better]} is better: its log loss is {size:.4f} ± {error:.4f} smaller, "
        f"{size / max(error, 1e-300):.1f} standard errors."
    )


def _format(scores: dict[str, Comparison], names: tuple[str, str], rows: int) -> str:
    lines = [["", *names, "difference", ""], ["rows", f"{rows}", "", "", ""]]
    for key in SCORES:
        (first, second), (size, error), better = *scores[key], scores[key].better
        said = "may be noise" if better is None else f"{names[better]} is better"
        text = name_score(key)
        if key == "error":  # people read accuracies
            text, first, second, size = "accuracy", 1 - first, 1 - second, -size
        lines.append([text, f"{first:.4f}", f"{second:.4f}", f"{size:+z.4f} ± {error:.4f}", said])
    return format_grid(lines)
