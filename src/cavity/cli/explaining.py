"""`cavity explain`: what moves the predictions of single rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.cli.model_rows import sample_rows, select_rows
from cavity.cli.models import Model
from cavity.cli.outputs import check_out
from cavity.cli.predicting import open_writer
from cavity.cli.terminal import Terminal, Text
from cavity.errors import BadInput
from cavity.explain.contributions import Contributions
from cavity.rows.arrow_tables import import_pyarrow
from cavity.rows.files.table_files import open_table
from cavity.saving.json_checks import format_label

FIRST_ROWS = 5  # that are explained if none are asked for
BACKGROUND = 50  # rows whose cells are put into a row
SHOWN = 6  # columns of a row in the text


def explain(
    model: str,
    data: str,
    row: list[int] | None,
    background: Text,
    out: Text,
    spreadsheet: bool,
    device: Text,
    terminal: Terminal,
) -> None:
    """Print the contributions of the columns to the predictions of rows, or write them to a file."""
    if out is not None:
        check_out(out, model, data, background, example="contributions.csv")
    opened = Model.open(model, device)
    wanted = sorted(set(row or range(1, FIRST_ROWS + 1)))
    chosen = select_rows(opened, open_table(data), wanted, must=bool(row))
    others = sample_rows(opened, open_table(background or data), None, BACKGROUND, terminal)
    if others.total < 2:
        raise BadInput(
            f"{background or data} has a single row, and a row is explained by comparing it with others: "
            "give a file of more rows with --background, such as the training rows."
        )
    found = opened.classifier.explain_rows(chosen.X, others.X, n_background=BACKGROUND)
    found = found._replace(names=tuple(name or "(no name)" for name in found.names))
    numbers = chosen.numbers.tolist()
    if out is not None:
        with open_writer(out, spreadsheet) as write:
            write(import_pyarrow().table(_make_columns(found, numbers)))
        terminal.say(f"Wrote {len(numbers) * len(found.names)} contributions to {out}")
    else:
        terminal.say("\n".join(_format_row(found, i, number) for i, number in enumerate(numbers)))
    terminal.print_result(
        {
            "unit": "target" if found.classes is None else "nats",
            "rows": [_as_dict(found, *p) for p in enumerate(numbers)],
        }
    )


def _describe(found: Contributions, i: int) -> dict[str, Any]:
    if found.classes is None:
        return {"mean": float(found.prediction[i])}
    best = int(found.prediction[i].argmax())
    return {
        "label": format_label(found.classes[best]),
        "probability": float(np.exp(found.prediction[i, best])),
    }


def _format_row(found: Contributions, i: int, number: int) -> str:
    said, moved = _describe(found, i), found.of_prediction()[i]
    head = f"{said['mean']:.4g}" if found.classes is None else f"{said['label']} ({said['probability']:.3f})"
    order = [j for j in np.argsort(-np.abs(moved), kind="stable")[:SHOWN] if moved[j]]
    lines = [f"  {moved[j]:+.3f}  {found.names[j]} = {found.values[i, j]}" for j in order]
    return "\n".join([f"row {number}: {head}", *lines])


def _as_dict(found: Contributions, i: int, number: int) -> Any:
    contributions = dict(zip(found.names, found.of_prediction()[i].tolist(), strict=True))
    cells = dict(zip(found.names, found.values[i].tolist(), strict=True))
    return {"row": number} | _describe(found, i) | {"contributions": contributions, "cells": cells}


def _make_columns(found: Contributions, numbers: list[int]) -> dict[str, Any]:
    """Return the columns of a file with a line per row and column."""
    said = [_describe(found, i) for i in range(len(numbers))]
    n = len(found.names)
    return (
        {"row": np.repeat(numbers, n)}
        | {name: np.repeat([row[name] for row in said], n).tolist() for name in said[0]}
        | {
            "column": list(found.names) * len(numbers),
            "cell": [str(cell) for cell in found.values.ravel()],
            "contribution": found.of_prediction().ravel(),
        }
    )
