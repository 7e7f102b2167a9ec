"""What a notebook shows of a fitted estimator below scikit-learn's diagram: plan, estimate and columns."""

from __future__ import annotations

from html import escape
from typing import Any

from cavity.common.tabular import Tabular, make_html
from cavity.common.text_tables import name_column
from cavity.prediction.result import Result


def describe_fit(result: Result, estimate: Tabular | None) -> str:
    parts: dict[str, Any] = {"Plan": result.plan, "Estimate": estimate}
    shown = {head: part._repr_html_() for head, part in parts.items() if part is not None}
    shown["Columns"] = make_html(list_columns(result))
    folds = (
        f"<details><summary>{escape(head)}</summary>{inside}</details>" for head, inside in shown.items()
    )
    return f"<div>{''.join(folds)}</div>"


def list_columns(result: Result) -> dict[str, list[Any]]:
    """Return the columns of the table, how each is used and, if it is known already, its importance."""
    uses = result.features.encoder.describe()
    found: dict[str, list[Any]] = {
        "column": [name_column(n) for n, _ in uses],
        "use": [use for _, use in uses],
    }
    if result.importance is not None and len(result.importance) == len(uses):
        found["importance, nats"] = result.importance.tolist()
    return found
