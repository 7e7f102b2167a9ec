"""`cavity report` and `cavity export`: a saved model as a page to read, or as a graph that other programs run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cavity.cli.predicting import Model, chunks_of, codes, leave, spelt
from cavity.cli.terminal import Terminal
from cavity.errors import BadInput, BadOption
from cavity.estimators import load
from cavity.tabular.files import TableFile, open_table

SEED = 0  # of the choice of rows


def report(
    path: Path,
    data: Path | None,
    out: Path,
    target: str | None,
    most: int,
    device: str | None,
    terminal: Terminal,
) -> None:
    """Write the page; of a long table, that of a random choice of rows."""
    from cavity.report import write_report

    model = Model.open(path, device)
    names = None if model.prepare is None else list(model.prepare.names)
    X, y, rows = (None, None, 0) if data is None else _rows(model, open_table(data), target, most, terminal)
    shown = 0 if X is None else len(X)
    write_report(model.classifier, out, X, y, names=names, title=f"{path.name}")
    if shown < rows:
        terminal.note(f"the page is of {shown} rows drawn from {rows}; --rows asks for more")
    terminal.say(f"Wrote {out}")
    terminal.result({"out": str(out), "rows": rows, "shown": shown})


def _rows(
    model: Model, file: TableFile, target: str | None, most: int, terminal: Terminal
) -> tuple[Any, Any, int]:
    """At most so many rows, each as likely as any other, in their order; their labels where the file has them; all rows' number."""
    named = target or model.target
    if target is not None and target not in file.names:
        raise BadInput(f"{file.path} has no column {target!r}, which was to hold the labels (--target).")
    labelled = named is not None and named in file.names
    prepare = model.fitting(file, named)
    places = {spelt(c): i for i, c in enumerate(model.classifier.classes_)}
    rng, notes = np.random.default_rng(SEED), Counter[str]()
    kept = [np.empty((0, model.classifier.n_features_in_)), np.empty(0, dtype=np.int64), np.empty(0)]
    rows = 0
    for chunk in chunks_of(file, [*prepare.inputs, *([named] if labelled and named else [])], terminal):
        X = prepare.transform(chunk, notes)
        y = codes(chunk, named, places) if labelled and named else np.zeros(len(X), dtype=np.int64)
        kept = [np.concatenate(pair) for pair in zip(kept, (X, y, rng.random(len(X))), strict=True)]
        if len(kept[0]) > most:
            chosen = np.sort(np.argpartition(kept[2], most)[:most])
            kept = [column[chosen] for column in kept]
        rows += len(X)
    if not rows:
        raise BadInput(f"{file.path} has no rows.")
    leave(notes, terminal)
    return kept[0], model.classifier.classes_[kept[1]] if labelled else None, rows


def export(path: Path, onnx: Path | None, dtype: str, terminal: Terminal) -> None:
    """Write the ONNX graph."""
    if onnx is None:
        raise BadOption("say where the graph goes: --onnx FILE.")
    from cavity import export as writing

    model = Model.open(path)
    writing.onnx(load(path), onnx, dtype=dtype)  # with the names of its columns
    terminal.say(
        f"Wrote {onnx}: input X (n, {model.classifier.n_features_in_}), outputs label and probabilities"
    )
    if hasattr(model.classifier, "preparation_"):
        terminal.note(
            "the graph takes prepared numbers: standardised, one-hot, with indicators, as `cavity info` lists"
        )
    terminal.result({"out": str(onnx), "columns": list(model.prepare.names) if model.prepare else None})
