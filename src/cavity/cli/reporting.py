"""`cavity report` and `cavity export`: an HTML report on a saved model, and its ONNX graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cavity.cli.evaluating import find_target, predict_rows
from cavity.cli.predicting import Model, encode_labels, format_label, read_chunks, report_notes
from cavity.cli.terminal import Terminal
from cavity.errors import BadInput, BadOption
from cavity.intake.frames import Prepared
from cavity.remote import as_path, get_name
from cavity.report.regression import write_regression_report
from cavity.tabular.columns import suggest_column
from cavity.tabular.files import TableFile, open_table

SEED = 0  # for the sample of rows


def report(
    path: str | Path,
    data: str | Path | None,
    out: str | Path,
    target: str | None,
    most: int,
    device: str | None,
    terminal: Terminal,
) -> None:
    """Write the report; of a long table, on a random sample of rows."""
    from cavity.report import write_report

    model = Model.open(path, device, regressor=True)
    if not hasattr(model.classifier, "classes_"):
        _report_regressor(model, path, data, out, target, terminal)
        return
    names = None if model.prepare is None else list(model.prepare.names)
    X, y, rows = (
        (None, None, 0) if data is None else _sample_rows(model, open_table(data), target, most, terminal)
    )
    shown = 0 if X is None else len(X)
    rows_to_show = None if X is None else Prepared(X)
    write_report(model.classifier, out, rows_to_show, y, names=names, title=get_name(as_path(path)))
    if shown < rows:
        terminal.note(f"the report shows a random sample of {shown} of {rows} rows; raise --rows for more")
    terminal.say(f"Wrote {out}")
    terminal.print_result({"out": str(out), "rows": rows, "shown": shown})


def _report_regressor(
    model: Model,
    path: str | Path,
    data: str | Path | None,
    out: str | Path,
    target: str | None,
    terminal: Terminal,
) -> None:
    """Write a short report: scores, if DATA has the target, and the model's facts."""
    rows = None
    if data is not None:
        file = open_table(data)
        rows = predict_rows(model, file, find_target(model, file, target), None, terminal)
    write_regression_report(
        model.classifier, out, None if rows is None else rows.columns, get_name(as_path(path))
    )
    total = 0 if rows is None else rows.total
    terminal.say(f"Wrote {out}")
    terminal.print_result({"out": str(out), "rows": total, "shown": total})


def _sample_rows(
    model: Model, file: TableFile, target: str | None, most: int, terminal: Terminal
) -> tuple[Any, Any, int]:
    """Sample at most `most` rows in file order. Returns X, the labels or None, and the number of all rows."""
    named = target or model.target
    if target is not None and target not in file.names:
        raise BadInput(
            f"{file.path} has no column {target!r} for the labels (--target); {suggest_column(target, file.names)}"
        )
    labelled = named is not None and named in file.names
    prepare = model.choose_preparation(file, named)
    places = {format_label(c): i for i, c in enumerate(model.classifier.classes_)}
    rng, notes = np.random.default_rng(SEED), Counter[str]()
    kept = [np.empty((0, len(prepare.names))), np.empty(0, dtype=np.int64), np.empty(0)]
    rows = unlabelled = 0
    for chunk in read_chunks(file, [*prepare.inputs, *([named] if labelled and named else [])], terminal):
        X = prepare.encode(chunk, notes)
        y = encode_labels(chunk, named, places) if labelled and named else np.zeros(len(X), dtype=np.int64)
        unlabelled += int((y < 0).sum())
        X, y = X[y >= 0], y[y >= 0]
        kept = [np.concatenate(pair) for pair in zip(kept, (X, y, rng.random(len(X))), strict=True)]
        if len(kept[0]) > most:
            chosen = np.sort(np.argpartition(kept[2], most)[:most])
            kept = [column[chosen] for column in kept]
        rows += len(X)
    if not rows:
        raise BadInput(f"{file.path} has no rows.")
    report_notes(notes, terminal, file, unlabelled)
    return kept[0], model.classifier.classes_[kept[1]] if labelled else None, rows


def export(path: str | Path, onnx: str | Path | None, dtype: str, terminal: Terminal) -> None:
    """Write the ONNX graph."""
    if onnx is None:
        raise BadOption("--onnx is missing: name the file to write, --onnx FILE.")
    from cavity.export import onnx as write_onnx

    model = Model.open(path)
    write_onnx(model.classifier, onnx, dtype=dtype)
    width = model.classifier._features().n
    terminal.say(f"Wrote {onnx}: input X (n, {width}), outputs label and probabilities")
    if hasattr(model.classifier, "preparation_"):
        terminal.note(
            "the graph takes prepared features: standardised numbers, one-hot categories, indicators of missing cells; "
            "`cavity info` lists the columns"
        )
    terminal.print_result({"out": str(onnx), "columns": list(model.prepare.names) if model.prepare else None})
