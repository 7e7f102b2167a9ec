"""`cavity suspects`: rows of a table whose label is improbable."""

from __future__ import annotations

import csv
import warnings
from typing import Any

import numpy as np

from cavity.cli import settings as reading
from cavity.cli.fitting import (
    InspectedTable,
    inspect_table,
    make_model,
    read_rows,
    show_stages,
)
from cavity.cli.outputs import check_out
from cavity.cli.settings import Settings
from cavity.cli.terminal import Terminal, Text
from cavity.common.text_tables import format_grid, format_label
from cavity.common.types import Ints
from cavity.errors import BadOption
from cavity.prediction.ranked_rows import SuspectLabels
from cavity.tables.validation import Prepared

HEAD = ("row", "label", "probability", "suggested")


def suspects(
    data: str,
    target: Text,
    ignore: list[str] | None,
    weight: Text,
    group: Text,
    rows: int,
    folds: int,
    effort: Text,
    seed: int | None,
    out: Text,
    device: Text,
    terminal: Terminal,
) -> None:
    """Fit a classifier to the table, and list rows by the probability of their label."""
    flags = {
        "target": target,
        "ignore": ignore,
        "weight": weight,
        "group": group,
        "effort": effort,
        "seed": seed,
        "device": device,
    }
    chosen = reading.read(flags, None, data)
    if out is not None:
        check_out(out, data, example="suspects.csv")
    model = make_model(chosen, terminal, regression=False)
    table = inspect_table(data, chosen, terminal)
    _check_table(table, chosen)
    found = _find_suspects(model, table, chosen, folds, terminal)
    numbers = _number_rows(table)
    lines = [
        (int(numbers[row]), format_label(label), float(p), format_label(other))
        for row, label, p, other in zip(
            found.rows, found.labels, found.scores, found.suggested, strict=True
        )
    ]
    if out is not None:
        with open(out, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([HEAD, *lines])
        terminal.say(f"Wrote {len(lines)} rows to {out}")

    first = lines[:rows]
    shown = [HEAD, *((f"{n}", a, f"{p:.4f}", b) for n, a, p, b in first)]
    terminal.say(format_grid(shown, right=(0, 2)))
    listed = [dict(zip(HEAD, line, strict=True)) for line in first]
    terminal.print_result({"scored": len(lines), "rows": listed})


def _check_table(table: InspectedTable, settings: Settings) -> None:
    if table.is_regression:
        raise BadOption(
            f"the target {settings.target!r} has many values, and suspects needs "
            "labels: name a column of classes with --target."
        )
    if not table.fits_memory:
        raise BadOption(
            f"{table.file.path} is too large for suspects: give a part of its rows."
        )


def _find_suspects(
    model: Any,
    table: InspectedTable,
    settings: Settings,
    folds: int,
    terminal: Terminal,
) -> SuspectLabels:
    """Fit the model, and score every label by models that did not see its row."""
    X, y, weight, group = read_rows(
        table.file, table.prepare, terminal, settings.weight, settings.group
    )
    with warnings.catch_warnings(record=True) as caught, show_stages(terminal):
        warnings.simplefilter("always")
        model.fit(Prepared(X, table.prepare), y, weight, groups=group)
        found: SuspectLabels = model.suspect_labels(folds=folds)

    terminal.note_warnings(caught)
    return found


def _number_rows(table: InspectedTable) -> Ints:
    """Return the numbers, from 1, of the rows of a file that have a label."""
    prepare = table.prepare
    assert prepare.target_ is not None
    numbers = [
        chunk.first + 1 + np.flatnonzero(prepare.find_labelled(chunk))
        for chunk in table.file.chunks([prepare.target_.name])
    ]
    return np.concatenate(numbers)
