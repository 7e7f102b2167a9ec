"""`cavity report`: an HTML report on a saved model."""

from __future__ import annotations

import warnings
from pathlib import Path

from cavity.cli.costs import read_costs
from cavity.cli.model_rows import Sample, check_column, find_stored, sample_rows
from cavity.cli.models import Model
from cavity.cli.outputs import check_out
from cavity.cli.terminal import Terminal, Text
from cavity.tables.files.table_files import open_table


def report(
    model: str,
    data: Text,
    out: str,
    target: Text,
    rows: int,
    costs: Text,
    positive: Text,
    device: Text,
    terminal: Terminal,
) -> None:
    check_out(out, model, data, example="report.html")
    from cavity.report import write_report

    opened = Model.open(model, device)
    given = None
    if costs is not None:
        given = read_costs(costs, opened)
    found = Sample(None, None, None, 0)
    seen = False
    note = ""
    if data is not None:
        file = open_table(data)
        check_column(file, target, "labels (--target)")
        if not target and opened.target in file.names:
            target = opened.target
        found = sample_rows(opened, file, target, rows, terminal)
        seen = found.y is not None and note_training_rows(opened, data, terminal)
        weight = find_stored(opened, file, "weight")
        if weight is not None and found.y is not None:
            note = f"The weights in column {weight!r} are not used: rows count equally."
            terminal.note(
                f"the report does not use the weights in column {weight!r}; "
                f"`cavity evaluate` does"
            )

    with warnings.catch_warnings():
        if data is not None:
            warnings.simplefilter("ignore")  # reading the rows has reported it
        about = {"row_numbers": found.numbers, "training_rows": seen, "note": note}
        about |= {"costs": given, "positive": positive}
        title = f"Report on {Path(model).name}"
        write_report(opened.classifier, out, found.X, found.y, title=title, **about)

    shown = min(rows, found.total)
    if shown < found.total:
        sample = f"a random sample of {shown} of {found.total} rows"
        terminal.note(f"the report shows {sample}; raise --rows for more")
    terminal.say(f"Wrote {out}")
    terminal.print_result({"out": out, "rows": found.total, "shown": shown})


def note_training_rows(model: Model, data: str | Path, terminal: Terminal) -> bool:
    """Return whether the model was trained on this file, and print a note if so."""
    trained = getattr(model.classifier, "notes_", {}).get("data")
    seen = trained is not None and Path(data).resolve() == Path(trained).resolve()
    if seen:
        terminal.note(
            "these are the rows that the model was trained on, so its scores are too "
            "good"
        )

    return seen
