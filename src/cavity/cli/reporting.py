"""`cavity report`: an HTML report on a saved model."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.cli.evaluating import check_column, read_truth
from cavity.cli.models import Model
from cavity.cli.outputs import check_out
from cavity.cli.predicting import read_chunks, report_notes
from cavity.cli.terminal import Terminal, Text
from cavity.common.object_stores import as_path, get_name
from cavity.errors import BadInput
from cavity.rows.arrow_tables import import_pyarrow
from cavity.rows.files.table_files import TableFile, open_table
from cavity.rows.frames import Prepared

SEED = 0  # for the sample of rows


def report(
    path: str, data: Text, out: str, target: Text, most: int, device: Text, terminal: Terminal
) -> None:
    """Write the report; of a long table, on a random sample of rows."""
    check_out(out, path, data, example="report.html")
    from cavity.report import write_report

    model = Model.open(path, device)
    title = f"Report on {get_name(as_path(path))}"
    if data is None:
        write_report(model.classifier, out, title=title)
        found = Sample(None, None, None, 0)
    else:
        file = open_table(data)
        found = sample_rows(model, file, _find_labels(model, file, target), most, terminal)
        seen = found.y is not None and note_training_rows(model, data, terminal)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # reading the rows has reported it
            about = {"title": title, "row_numbers": found.numbers, "training_rows": seen}
            write_report(model.classifier, out, found.X, found.y, **about)
    shown = 0 if found.numbers is None else len(found.numbers)
    if shown < found.total:
        sample = f"a random sample of {shown} of {found.total} rows"
        terminal.note(f"the report shows {sample}; raise --rows for more")
    terminal.say(f"Wrote {out}")
    terminal.print_result({"out": str(out), "rows": found.total, "shown": shown})


class Sample(NamedTuple):
    X: Any  # raw rows, or prepared ones if the model has no preparation
    y: Any | None  # labels or targets
    numbers: Any  # of the rows in the file, from 1; None without a file
    total: int  # number of all rows


def note_training_rows(model: Model, data: str | Path, terminal: Terminal) -> bool:
    """Return whether the model was trained on this file, and print a note if so."""
    trained = getattr(model.classifier, "notes_", {}).get("data")
    ours, theirs = as_path(data), as_path(str(trained))
    seen = ours == theirs
    if isinstance(ours, Path) and isinstance(theirs, Path):
        seen = bool(trained) and ours.resolve() == theirs.resolve()
    if seen:
        terminal.note("these are the rows that the model was trained on, so its scores are too good")
    return seen


def _find_labels(model: Model, file: TableFile, target: str | None) -> str | None:
    """Return the column of the labels; None if the file has none."""
    check_column(file, target, "labels (--target)")
    return target or (model.target if model.target in file.names else None)


def select_rows(model: Model, file: TableFile, numbers: list[int], must: bool) -> Sample:
    """Read rows by their numbers in the file, from 1; `must`: the file has to have them all."""
    prepare = model.choose_preparation(file, model.target)
    parts, found = [], list[int]()
    for chunk in file.chunks(list(prepare.inputs)):
        here = [n for n in numbers if chunk.first < n <= chunk.first + chunk.table.num_rows]
        parts.append(chunk.table.take(np.array(here, dtype=np.int64) - chunk.first - 1))
        found += here
        if len(found) == len(numbers):
            break
    absent = [n for n in numbers if n not in found]
    if not found or (must and absent):
        raise BadInput(f"{file.path} has no row {absent[0]}.")
    cells = import_pyarrow().concat_tables(parts)
    return Sample(_as_rows(model, prepare, cells), None, np.array(found), len(found))


def _as_rows(model: Model, prepare: Any, cells: Any) -> Any:
    return cells if hasattr(model.classifier, "preparation_") else Prepared(prepare.encode(cells))


def sample_rows(model: Model, file: TableFile, named: str | None, most: int, terminal: Terminal) -> Sample:
    """Sample at most `most` rows in file order: those with a label, if `named` is a column of labels."""
    prepare = model.choose_preparation(file, named or model.target)
    rng, notes, arrow = np.random.default_rng(SEED), Counter[str](), import_pyarrow()
    kept: list[Any] = []  # raw rows, truth, numbers in the file, random numbers
    total = unlabelled = 0
    for chunk in read_chunks(file, [*prepare.inputs, *([named] if named else [])], terminal):
        prepare.encode(chunk, notes)
        n = chunk.table.num_rows
        truth, known = read_truth(model, chunk, named) if named else (np.zeros(n), np.full(n, True))
        unlabelled += int((~known).sum())
        rows = np.flatnonzero(known)
        new = [truth[rows], chunk.first + rows + 1, rng.random(len(rows))]
        cells = chunk.table.take(rows)
        if kept:
            cells = arrow.concat_tables([kept[0], cells])
            new = list(map(np.concatenate, zip(kept[1:], new, strict=True)))
        kept = [cells, *new]
        if len(kept[1]) > most:
            chosen = np.sort(np.argpartition(kept[3], most)[:most])
            kept = [kept[0].take(chosen), *(column[chosen] for column in kept[1:])]
        total += len(rows)
    if not total:
        raise BadInput(f"{file.path} has no rows{' with a label' if unlabelled else ''}.")
    report_notes(notes, terminal, file, unlabelled)
    y = None if named is None else kept[1] if model.classes is None else model.classes[kept[1]]
    return Sample(_as_rows(model, prepare, kept[0]), y, kept[2], total)
