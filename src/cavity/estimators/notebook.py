"""HTML of a fitted estimator below scikit-learn's diagram: plan, estimate, pool, columns."""

from __future__ import annotations

from typing import Any

from cavity.common.tabular import Tabular, make_html
from cavity.common.text_tables import name_column
from cavity.prediction.result import Result


def describe_fit(result: Result, estimate: Tabular | None) -> str:
    parts = {}
    if result.plan is not None:
        parts["Plan"] = result.plan._repr_html_()
    if estimate is not None:
        parts["Estimate"] = estimate._repr_html_()
    if result.members is not None:
        parts["Pool"] = result.members._repr_html_()
    parts["Columns"] = make_html(list_columns(result))
    folds = (
        f"<details><summary>{head}</summary>{inside}</details>"
        for head, inside in parts.items()
    )
    return f"<div>{''.join(folds)}</div>"


def list_columns(result: Result) -> dict[str, list[Any]]:
    """Return the columns of the table, their use and, if computed, their importance."""
    uses = result.features.encoder.describe()
    found: dict[str, list[Any]] = {
        "column": [name_column(name) for name, _ in uses],
        "use": [use for _, use in uses],
    }
    if result.importance is not None and len(result.importance) == len(uses):
        found["importance, nats"] = result.importance.tolist()
    return found
