"""`cavity drift`: whether the rows of a file are like the training rows."""

from __future__ import annotations

from collections import Counter
from functools import reduce

import numpy as np
import typer

from cavity.cli.models import Predictor
from cavity.cli.predicting import read_chunks, report_notes
from cavity.cli.terminal import FAILED, Terminal, Text
from cavity.common.text_tables import format_grid, list_names
from cavity.common.types import Floats
from cavity.errors import BadInput
from cavity.prediction.drift import Drift, compare_columns, find_shares
from cavity.saving.model_file import read_result
from cavity.tables.columns.column_shares import CellCounts, add_counts, count_column
from cavity.tables.columns.encoder import note_new_columns
from cavity.tables.files.table_files import TableFile, open_table

MOST_LINES = 20  # columns that are printed; all that changed are printed


def drift(
    model: str, data: str, level: float, device: Text, terminal: Terminal
) -> None:
    predictor = Predictor(read_result(model, device))
    find_shares(predictor.result.shares)
    found = compare_file(predictor, open_table(data), terminal)
    changed = found.changed(level)
    terminal.say(_format(found, len(changed)))
    said = "No column has changed"
    if changed:
        said = f"Changed: {list_names(changed)}"
    terminal.say(f"{said} (level {level:g} for all columns together).")
    if found.unusual is not None:
        terminal.say(
            f"{found.unusual:.1%} of the rows are more unusual than 95% of the training "
            "rows; if nothing has changed, expect about 5%."
        )
    columns = {name: list(values) for name, values in found.columns().items()}
    terminal.print_result(
        {
            "rows": found.rows,
            "changed": changed,
            "unusual": found.unusual,
            "columns": columns,
        }
    )
    if changed:
        raise typer.Exit(FAILED)


def compare_file(predictor: Predictor, file: TableFile, terminal: Terminal) -> Drift:
    """Compare the rows of a file with the training rows, chunk by chunk."""
    shares = find_shares(predictor.result.shares)
    target = predictor.target
    prepare = predictor.choose_preparation(file, target)
    notes = Counter[str]()
    parts = list[list[CellCounts]]()
    novelty = list[Floats]()
    rows = 0
    for chunk in read_chunks(file, list(prepare.inputs), terminal):
        pairs = zip(prepare.columns_, shares, strict=True)
        parts.append([count_column(*pair, chunk) for pair in pairs])
        X = prepare.encode(chunk, notes)
        whole = np.isfinite(X).all(1)
        rows += len(X)
        if predictor.result.novelty is not None and whole.any():
            novelty.append(predictor.predict_novelty(X[whole]))

    if not rows:
        raise BadInput(f"{file.path} has no rows.")

    note_new_columns(prepare, file.names, rows, notes)
    report_notes(notes, terminal, file)
    counts = [reduce(add_counts, column) for column in zip(*parts, strict=True)]
    unusual = np.concatenate(novelty) if novelty else None
    return compare_columns(prepare.columns_, shares, counts, unusual)


def _format(found: Drift, changed: int) -> str:
    head = ["column", "p", "distance", "by chance", "new", "missing", "largest change"]
    lines = [head]
    for j in range(min(len(found.names), max(changed, MOST_LINES))):
        missing = f"{found.missing_before[j]:.1%} → {found.missing[j]:.1%}"
        if not found.missing[j] and not found.missing_before[j]:
            missing = ""
        line = [
            found.names[j],
            f"{found.p_value[j]:.2g}",
            f"{found.distance[j]:.3f}",
            f"{found.noise[j]:.3f}",
            f"{found.new[j]:.1%}" if found.new[j] else "",
            missing,
            found.largest[j],
        ]
        lines.append(line)

    return format_grid(lines)
