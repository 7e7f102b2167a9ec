"""Costs of decisions, read from a TOML file with the arguments of `cavity.Costs`.

positive = "default"            other = 1
false_positive = 1              refuse = 0.5
false_negative = 10             [errors.default]
refuse = 0.7                    paid = 10
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cavity.cli.models import Predictor
from cavity.cli.settings import read_toml
from cavity.common.text_tables import format_grid
from cavity.errors import BadOption, name_in_errors
from cavity.prediction.decisions import Costs

if TYPE_CHECKING:  # it loads torch
    from cavity.report.decisions import RuleCosts

ARGUMENTS = [field.name for field in fields(Costs)]


def read_costs(path: str | Path, model: Predictor) -> Costs:
    """Read the costs of a classifier's decisions, and check that they fit its classes."""
    if model.classes is None:
        raise BadOption(f"--costs {path}: a regressor has no classes to decide for.")

    name = f"--costs {path}"
    content = read_toml(Path(path), name)
    with name_in_errors(name, BadOption):
        costs = _make_costs(content)
        costs.matrix(model.classes)
    return costs


def _make_costs(given: dict[str, Any]) -> Costs:
    unknown = [name for name in given if name not in ARGUMENTS]
    if unknown:
        raise BadOption(
            f"unknown key {unknown[0]!r:.60}; known keys are {', '.join(ARGUMENTS)}."
        )

    errors = given.get("errors", {})
    rows = errors.values() if isinstance(errors, dict) else [errors]
    if not all(isinstance(row, dict) for row in rows):
        raise BadOption(
            "errors must have a table per true class, such as [errors.default] with "
            "paid = 10."
        )

    return Costs(**given)


def format_costs(found: RuleCosts) -> str:
    """Format what each rule costs per row."""
    head = ["cost per row", "", "95% interval", "more than decide"]
    text = format_grid([head, *found.lines()])
    if found.thresholds is not None:
        text += f"\ndecision: {found.thresholds.describe()}"
    return f"\n{text}"
