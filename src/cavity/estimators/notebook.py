"""What a notebook shows of a fitted estimator below scikit-learn's diagram: plan,
estimate and columns.
"""

from __future__ import annotations

from typing import Any

from cavity.common.tabular import Tabular, make_html
from cavity.common.text_tables import name_column
from cavity.prediction.result import Result


def describe_fit(result: Result, estimate: Tabular | None) -> str:
    parts: dict[str, Any] = {"Plan": result.plan, "Estimate": estimate}
    shown = {
        head: part._repr_html_() for head, part in parts.items() if part is not None
    }
    shown["Columns"] = make_html(list_columns(result))
    folds = (
        f"<details><summary>{head}</summary>{inside}</details>"
        for head, inside in shown.items()
    )
    return f"<div>{''.join(folds)}</div>"


def list_columns(result: Result) -> dict[str, list[Any]]:
    """Return the columns of the table, how each is used and, if it is known already,
    its importance.
    """
    uses = result.features.encoder.describe()
    names = [name_column(name) for name, _ in uses]
    use = [use for _, use in uses]
    found: dict[str, list[Any]] = {"column": names, "use": use}
    if result.importance is not None and len(result.importance) == len(uses):
        found["importance, nats"] = result.importance.tolist()
    return found
