"""`cavity explain`: what moves the predictions of single rows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from cavity.cli.model_rows import sample_rows, select_rows
from cavity.cli.models import Model
from cavity.cli.terminal import Terminal, Text
from cavity.common.terms import TERMS
from cavity.common.text_tables import format_label, name_column
from cavity.errors import BadInput
from cavity.explain.contributions import Contributions
from cavity.tables.files.table_files import open_table

FIRST_ROWS = 5  # that are explained if none are asked for
BACKGROUND = 50  # rows whose cells are put into a row
SHOWN = 6  # columns of a row in the text


def explain(
    model: str,
    data: str,
    row: list[int] | None,
    background: Text,
    device: Text,
    terminal: Terminal,
) -> None:
    opened = Model.open(model, device)
    wanted = sorted(set(row or range(1, FIRST_ROWS + 1)))
    chosen = select_rows(opened, open_table(data), wanted, must=bool(row))
    others = sample_rows(
        opened, open_table(background or data), None, BACKGROUND, terminal
    )
    if others.total < 2:
        raise BadInput(
            f"{background or data} has a single row, but a row is compared with "
            f"others: give them with --background."
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = opened.classifier.explain_rows(
            chosen.X, others.X, n_background=BACKGROUND
        )
    if background is not None:  # else reading the rows has reported it
        for said in dict.fromkeys(str(warning.message) for warning in caught):
            terminal.note(said)
    found = replace(found, names=tuple(map(name_column, found.names)))
    rows = [
        _describe_row(found, i, number)
        for i, number in enumerate(chosen.numbers.tolist())
    ]
    unit = "units of the target"
    if found.classes is not None:
        unit = f"nats. {TERMS['contribution'].meaning}"
    terminal.say("\n".join([*map(_format_row, rows), f"Contributions are in {unit}"]))
    terminal.print_result(
        {"unit": "target" if found.classes is None else "nats", "rows": rows}
    )


def _describe_row(found: Contributions, i: int, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {"row": number}
    if found.classes is None:
        row["mean"] = float(found.prediction[i])
    else:
        best = int(found.prediction[i].argmax())
        row["label"] = format_label(found.classes[best])
        row["probability"] = float(np.exp(found.prediction[i, best]))
    for name, values in (
        ("contributions", found.of_prediction()),
        ("cells", found.values),
    ):
        row[name] = dict(zip(found.names, values[i].tolist(), strict=True))
    return row


def _format_row(row: dict[str, Any]) -> str:
    if "mean" in row:
        head = f"{row['mean']:.4g}"
    else:
        head = f"{row['label']} ({row['probability']:.3f})"
    moved = sorted(row["contributions"].items(), key=lambda item: -abs(item[1]))[:SHOWN]
    lines = [
        f"  {value:+.3f}  {name} = {row['cells'][name]}"
        for name, value in moved
        if value
    ]
    return "\n".join([f"row {row['row']}: {head}", *lines])
