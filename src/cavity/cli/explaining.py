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

FIRST_ROWS = 5  # explained by default
BACKGROUND = 50  # rows whose cells replace the cells of a row
SHOWN = 6  # columns per row in the text


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
            f"{background or data} has only one row, but cells are compared with "
            f"other rows: give a table of them with --background."
        )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = opened.classifier.explain_rows(
            chosen.X, others.X, n_background=BACKGROUND
        )

    if background is not None:  # else reading the rows has reported it
        terminal.note_warnings(caught)
    found = replace(found, names=tuple(map(name_column, found.names)))
    rows = [
        _describe_row(found, i, number)
        for i, number in enumerate(chosen.numbers.tolist())
    ]
    unit = "target"
    said = "units of the target"
    if found.classes is not None:
        term = TERMS["contribution"]
        unit = term.unit
        said = f"{unit}. {term.meaning}"
    for row_found in rows:
        terminal.say(_format_row(row_found))
    terminal.say(f"Contributions are in {said}")
    terminal.print_result({"unit": unit, "rows": rows})


def _describe_row(found: Contributions, i: int, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {"row": number}
    if found.classes is None:
        row["mean"] = float(found.prediction[i])
    else:
        best = int(found.prediction[i].argmax())
        row["label"] = format_label(found.classes[best])
        row["probability"] = float(np.exp(found.prediction[i, best]))

    moves = found.of_prediction()[i].tolist()
    row["contributions"] = dict(zip(found.names, moves, strict=True))
    row["cells"] = dict(zip(found.names, found.values[i].tolist(), strict=True))
    return row


def _format_row(row: dict[str, Any]) -> str:
    if "mean" in row:
        head = f"{row['mean']:.4g}"
    else:
        head = f"{row['label']} ({row['probability']:.3f})"

    moved = row["contributions"]
    lines = [f"row {row['row']}: {head}"]
    for name in sorted(moved, key=lambda name: -abs(moved[name]))[:SHOWN]:
        if moved[name]:
            lines.append(f"  {moved[name]:+.3f}  {name} = {row['cells'][name]}")
    return "\n".join(lines)
