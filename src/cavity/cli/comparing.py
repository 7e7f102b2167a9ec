"""`cavity compare`: two classifiers on the same rows, with paired standard errors."""

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
from cavity.tables.files.table_files import open_table

SCORES = ("nll", "error", "brier")  # less is better
CLEAR = 2.0  # standard errors; a smaller difference may be noise


class Comparison(NamedTuple):
    values: tuple[float, float]
    difference: Mean  # second minus first

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
    first, second = _open_classifiers(paths, device)
    file = open_table(data)
    roles = find_roles(first, file, **asked)
    for opened in (first, second):
        note_training_rows(opened, data, terminal)
    found = predict_rows(first, file, roles, terminal)
    again = predict_rows(second, open_table(data), roles._replace(group=None), terminal)

    log_p, y, w = found.columns
    other_log_p, *_ = again.columns
    order = [second.labels.index(name) for name in first.labels]
    compared = compare_scores(log_p, other_log_p[:, order], y, w, found.unit)

    names = (model, other)
    if Path(model).name != Path(other).name:
        names = (Path(model).name, Path(other).name)
    cases = f"{len(y)} rows"
    if found.unit is not None:
        cases = f"{found.unit.max() + 1} groups of rows"
    verdict = describe_difference(compared["nll"], names, cases)
    terminal.say(_format_comparison(compared, names, found.total))
    terminal.say(verdict)

    result: dict[str, Any] = {"rows": found.total, "models": paths}
    for name, score in compared.items():
        better = score.better
        result[name] = {
            "values": score.values,
            "difference": score.difference.value,
            "standard_error": score.difference.error,
            "better": None if better is None else paths[better],
        }

    terminal.print_result(result | {"verdict": verdict})


def _open_classifiers(paths: tuple[str, str], device: Text) -> list[Model]:
    """Open two models, and check that they are classifiers of the same classes."""
    models = []
    for path in paths:
        opened = Model.open(path, device)
        if opened.classes is None:
            raise BadFile(
                f"{path} is a regressor, but this command needs a classifier."
            )

        models.append(opened)

    first, second = models
    odd = sorted(set(first.labels) ^ set(second.labels))
    if odd:
        raise BadInput(
            f"only one of the models has the class {odd[0]!r}: compare models with the "
            f"same classes."
        )

    return models


def compare_scores(
    log_p: Any, other: Any, y: Any, weight: Any, unit: Any = None
) -> dict[str, Comparison]:
    """Compare log-probabilities [n C] of the same rows.

    `unit`: the same number for rows of a group, which count once in standard errors.
    """
    differences = compare_log_proba(log_p, other, y, weight, unit)
    first = score_log_proba(log_p, y, weight)
    second = score_log_proba(other, y, weight)
    return {k: Comparison((first[k], second[k]), differences[k]) for k in SCORES}


def describe_difference(score: Comparison, names: tuple[str, str], cases: str) -> str:
    size = abs(score.difference.value)
    error = score.difference.error
    if size == 0 and error == 0:
        return "Both models give these rows the same predictions."
    if not math.isfinite(size):
        return (
            "The log losses cannot be compared: a model gives the true class of a row "
            "a probability of 0."
        )
    if score.better is None:
        return (
            f"The difference in log loss, {size:.4f} ± {error:.4f}, may be noise: "
            f"{cases} cannot tell which model is better."
        )

    errors = size / max(error, 1e-300)
    return (
        f"{names[score.better]} is better: its log loss is {size:.4f} ± {error:.4f} "
        f"smaller, {errors:.1f} standard errors."
    )


def _format_comparison(
    scores: dict[str, Comparison], names: tuple[str, str], rows: int
) -> str:
    lines = [["", *names, "difference", ""], ["rows", f"{rows}", "", "", ""]]
    for key in SCORES:
        score = scores[key]
        first, second = score.values
        size, error = score.difference
        verdict = "may be noise"
        if score.better is not None:
            verdict = f"{names[score.better]} is better"
        name = key
        if key == "error":  # people read accuracies
            name = "accuracy"
            first = 1 - first
            second = 1 - second
            size = -size

        difference = f"{size:+z.4f} ± {error:.4f}"
        lines.append(
            [name_score(name), f"{first:.4f}", f"{second:.4f}", difference, verdict]
        )

    return format_grid(lines)
