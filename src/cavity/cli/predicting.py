"""`cavity predict` and `cavity evaluate`: a saved model, and rows from a file, some at a time."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity.cli.terminal import Terminal, table
from cavity.data.fragments import Chunk, import_pyarrow
from cavity.errors import BadFile, BadInput, BadOption
from cavity.estimators import load
from cavity.report.calibration import BINS, reliability
from cavity.tabular.cells import get_column, read_labels
from cavity.tabular.files import TableFile, open_table
from cavity.tabular.preparation import Preparation

MOST_SHOWN = 12  # classes of a confusion matrix on a terminal


class Model(NamedTuple):
    """A loaded classifier, or a regressor where a command takes one, and the preparation of its columns."""

    classifier: Any
    prepare: Preparation | None  # None: the model was saved from Python, its columns have no names

    @classmethod
    def open(cls, path: Path, device: str | None = None, regressor: bool = False) -> Model:
        classifier = load(path, device)
        if not regressor and not hasattr(classifier, "classes_"):
            raise BadFile(
                f"{path} is a regressor's, and this command is for classifiers; `cavity info` and `cavity predict` take both."
            )
        prepare = getattr(classifier, "preparation_", None)
        names = getattr(classifier, "feature_names_in_", None)
        if prepare is None and names is not None:
            prepare = Preparation.identity([str(name) for name in names])
            del classifier.feature_names_in_  # rows come as arrays, in this order
        return cls(classifier, prepare)

    @property
    def target(self) -> str | None:
        return None if self.prepare is None or self.prepare.target is None else self.prepare.target.name

    def fitting(self, file: TableFile, target: str | None) -> Preparation:
        """The preparation for a file; without names, its columns in order are those of the training rows."""
        if self.prepare is not None:
            self.prepare.check(file.names)
            return self.prepare
        names = [name for name in file.names if name != target]
        if len(names) != self.classifier.n_features_in_:
            raise BadInput(
                f"{file.path} has {len(names)} columns, and the model, which knows no names, was trained with "
                f"{self.classifier.n_features_in_}: give these columns in the order of the training rows."
            )
        return Preparation.identity(names)

    def outputs(self, X: Any, uncertainty: bool = False) -> dict[str, Any]:
        """The columns of a prediction: the label, a probability for each class, and what they do not know, in nats.

        Of a regressor: mean and standard deviation of the function, to which the noise of a new target comes.
        """
        if not hasattr(self.classifier, "classes_"):
            if uncertainty:
                raise BadOption(
                    "--uncertainty is the entropy of a label; a regressor's column std says it already."
                )
            return dict(zip(("mean", "std"), self.classifier.predict(X, return_std=True), strict=True))
        P = self.classifier.predict_proba(X)
        classes = self.classifier.classes_
        columns = {"label": classes[P.argmax(1)]} | {f"p_{spelt(c)}": P[:, i] for i, c in enumerate(classes)}
        return columns | (self.classifier.predict_uncertainty(X)._asdict() if uncertainty else {})


def spelt(label: Any) -> str:
    """A class as text: whole numbers without a point, truth values as Arrow has them."""
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def predict(
    path: Path,
    data: Path,
    out: Path | None,
    keep: list[str],
    uncertainty: bool,
    device: str | None,
    terminal: Terminal,
) -> None:
    """Write what is predicted of every row, in the order of the file."""
    model, file = Model.open(path, device, regressor=True), open_table(data)
    prepare = model.fitting(file, None)
    absent = next((name for name in keep if name not in file.names), None)
    if absent is not None:
        raise BadInput(f"--keep {absent!r}: {file.path} has no such column.")
    notes: Counter[str] = Counter()
    rows, arrow, types = 0, import_pyarrow(), file.types(keep)
    with _writer(out) as write:
        for chunk in chunks_of(file, [*prepare.inputs, *keep], terminal):
            found = model.outputs(prepare.transform(chunk, notes), uncertainty)
            kept = {name: _as(get_column(chunk.table, name), types.get(name)) for name in keep}
            write(arrow.table(kept | {_free(name, kept): column for name, column in found.items()}))
            rows += chunk.table.num_rows
        if not rows:
            raise BadInput(f"{file.path} has no rows.")
    leave(notes, terminal)
    if out is not None:
        terminal.say(f"Wrote {rows} rows to {out}")
    terminal.result({"out": str(out), "rows": rows, "notes": dict(notes)})


def _as(column: Any, kind: Any) -> Any:
    """One type for all files of a folder."""
    return column if kind is None or column.type == kind else column.cast(kind)


def _free(name: str, taken: dict[str, Any]) -> str:
    return name if name not in taken else f"predicted {name}"


def chunks_of(file: TableFile, columns: list[str], terminal: Terminal) -> Iterator[Chunk]:
    """These columns of a file, some rows at a time, with a bar."""
    yield from terminal.bar(
        file.chunks(list(dict.fromkeys(columns))), "rows", lambda chunk: chunk.table.num_rows
    )


def leave(notes: Counter[str], terminal: Terminal) -> None:
    """Say which cells were not as in the training rows."""
    for note, count in notes.items():
        terminal.note(f"{note} ({count} cells)")


@contextmanager
def _writer(out: Path | None) -> Iterator[Any]:
    """A function that adds a table to the output: CSV on stdout, or a file, written aside and renamed."""
    import pyarrow.csv
    import pyarrow.parquet

    if out is not None and out.suffix.lower() not in (".csv", ".parquet", ".pq"):
        raise BadOption(f"--out {out}: predictions are written as .csv or .parquet.")
    aside = None if out is None else out.with_name(f".{out.name}.{os.getpid()}.part")
    as_csv = out is None or out.suffix.lower() == ".csv"
    open_ones: list[Any] = []

    def write(part: Any) -> None:
        if not open_ones:
            kind = pyarrow.csv.CSVWriter if as_csv else pyarrow.parquet.ParquetWriter
            open_ones.append(kind(sys.stdout.buffer if aside is None else str(aside), part.schema))
        open_ones[0].write_table(part)

    try:
        yield write
        for writer in open_ones:
            writer.close()
        if aside is not None and out is not None:
            aside.replace(out)
    except BrokenPipeError:
        raise  # the reader has seen enough
    except OSError as error:
        raise BadFile(f"{out or 'stdout'} could not be written ({error.strerror or error}).") from error
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


class Scores:
    """Errors, log-probabilities, calibration and confusion, added up chunk by chunk."""

    def __init__(self, n_classes: int) -> None:
        self.confusion = np.zeros((n_classes, n_classes), dtype=np.int64)  # true, predicted
        self.nll = 0.0
        self.bins = np.zeros((3, BINS))  # rows, Σ confidence, Σ right

    def add(self, log_p: Any, y: Any) -> None:
        np.add.at(self.confusion, (y, log_p.argmax(1)), 1)
        self.nll -= float(log_p[np.arange(len(y)), y].sum())
        found = reliability(np.exp(log_p), y)
        self.bins += np.nan_to_num([found.rows, found.rows * found.confidence, found.rows * found.accuracy])

    def result(self) -> dict[str, Any]:
        n = int(self.confusion.sum())
        _, confidence, right = self.bins
        return {
            "rows": n,
            "error": float(1 - np.trace(self.confusion) / n),
            "nll": self.nll / n,
            "ece": float(np.abs(right - confidence).sum() / n),
        }


def evaluate(path: Path, data: Path, target: str | None, device: str | None, terminal: Terminal) -> None:
    """Compare predictions with the labels in the file."""
    model, file = Model.open(path, device), open_table(data)
    target = target or model.target
    if target is None:
        raise BadOption("the model does not know which column holds the labels: name it with --target.")
    if target not in file.names:
        raise BadInput(
            f"{file.path} has no column {target!r}, which holds the labels; is it another one (--target)?"
        )
    prepare = model.fitting(file, target)
    places = {spelt(c): i for i, c in enumerate(model.classifier.classes_)}
    scores, notes = Scores(len(places)), Counter[str]()
    for chunk in chunks_of(file, [*prepare.inputs, target], terminal):
        y = codes(chunk, target, places)
        scores.add(model.classifier.predict_log_proba(prepare.transform(chunk, notes)), y)
    if not scores.confusion.sum():
        raise BadInput(f"{file.path} has no rows.")
    leave(notes, terminal)
    found = scores.result()
    terminal.say(
        table(
            [("rows", str(found["rows"])), *((k, f"{found[k]:.4f}") for k in ("error", "nll", "ece"))],
            indent=0,
        )
    )
    if len(places) <= MOST_SHOWN:
        terminal.say(_matrix(scores.confusion, list(places)))
    terminal.result(
        found | {"classes": list(places), "confusion": scores.confusion.tolist(), "notes": dict(notes)}
    )


def codes(chunk: Chunk, target: str, places: dict[str, int]) -> Any:
    """The labels of a chunk as numbers of classes."""
    text = read_labels(get_column(chunk.table, target), target, chunk.first).to_pylist()
    other = {_plainest(name): place for name, place in places.items()}
    codes = [places[label] if label in places else other.get(_plainest(label), -1) for label in text]
    if -1 in codes:
        row = codes.index(-1)
        known = ", ".join(map(repr, list(places)[:8])) + (", ..." if len(places) > 8 else "")
        raise BadInput(
            f"row {chunk.first + row + 1} of {chunk.where} has the label {text[row]!r:.60}, unknown to the model ({known})."
        )
    return np.array(codes)


def _plainest(label: str) -> str:
    """Labels that other tools spell otherwise: 2.0 and 2, True and true."""
    if label.lower() in ("true", "false"):
        return label.lower()
    number = re.fullmatch(r"([+-]?\d+)\.0*", label)
    return number[1] if number else label


def _matrix(confusion: Any, names: list[str]) -> str:
    """True classes down, predicted ones across."""
    short = [name if len(name) <= 12 else name[:11] + "…" for name in names]
    width = max([len(str(confusion.max())), *map(len, short)])
    corner = "true / predicted"
    left = max(len(corner), width)
    head = " ".join([f"{corner:<{left}}", *(f"{name:>{width}}" for name in short)])
    lines = [
        " ".join([f"{name:<{left}}", *(f"{n:>{width}}" for n in row)])
        for name, row in zip(short, confusion, strict=True)
    ]
    return "\n".join(["", head, *lines])
