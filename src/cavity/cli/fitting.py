"""`cavity fit`: look at the columns, train, save."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity import distributed
from cavity._version import __version__
from cavity.callbacks import Validation
from cavity.cli.settings import Settings
from cavity.cli.terminal import INTERRUPTED, Terminal, fail, table
from cavity.data import Arrow
from cavity.data.fragments import Chunk, import_pyarrow
from cavity.errors import BadInput, BadOption
from cavity.estimators import GPClassifier
from cavity.tabular.cells import get_column, to_numbers
from cavity.tabular.files import TableFile, explain_errors, open_table, spool_table
from cavity.tabular.preparation import Preparation

IN_MEMORY = 256 << 20  # bytes of prepared numbers; more are read again in every pass


class Looked(NamedTuple):
    """A table after the first pass."""

    file: TableFile
    prepare: Preparation
    rows: int


def run(data: Path, settings: Settings, terminal: Terminal) -> None:
    """The whole command; under torchrun on every rank."""
    _check_out(settings.out)
    model = GPClassifier(**settings.arguments, verbose=int(terminal.shows_bars))
    cpu = str(model.device).startswith("cpu")
    if "RANK" in os.environ:
        distributed.join("gloo" if cpu else None)
    try:
        _train(model, look(data, settings, terminal), settings, terminal)
    finally:
        distributed.leave()


def _train(model: GPClassifier, looked: Looked, settings: Settings, terminal: Terminal) -> None:
    begun, interrupted = time.perf_counter(), False
    if settings.validation is not None:
        held = rows(Looked(open_table(settings.validation), looked.prepare, 0), None, terminal)
        model.set_params(callbacks=[Validation(held[0], held[1], model.patience)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _fit(model, looked, settings, terminal)
        except KeyboardInterrupt:
            if not hasattr(model, "_fitted"):
                raise fail("interrupted before there was a model to save.", INTERRUPTED) from None
            interrupted = True
    model.preparation_ = looked.prepare
    model.notes_ = {
        "data": str(looked.file.path),
        "rows": looked.rows,
        "seconds": round(time.perf_counter() - begun, 3),
        "seed": settings.seed,
        "cavity": __version__,
        "warnings": sorted(
            {str(w.message) for w in caught if issubclass(w.category, RuntimeWarning | UserWarning)}
        ),
        "interrupted": interrupted,
    }
    if terminal.rank == 0:
        model.save(settings.out)
    _tell(model, settings, terminal)
    if interrupted:
        raise fail(
            f"interrupted; {settings.out} holds the model as it stood after {model.n_epochs_} epochs.",
            INTERRUPTED,
        )


def look(data: Path, settings: Settings, terminal: Terminal) -> Looked:
    """The first pass: what the columns hold, and what becomes of them."""
    file = open_table(data)
    count = 0

    def counted() -> Iterator[Any]:
        nonlocal count
        for chunk in terminal.bar(file.chunks(), "columns", _size):
            count += chunk.table.num_rows
            yield chunk

    ignore = [*settings.ignore, *([settings.weight] if settings.weight else [])]
    with about(file):
        prepare = Preparation.fit(counted(), settings.target, ignore, settings.columns, settings.unseen)
    terminal.say(f"{data}: {count} rows, {len(file.names)} columns, target {settings.target!r}")
    terminal.say(table([(name or "(no name)", what) for name, what in prepare.describe()]))
    return Looked(file, prepare, count)


@contextmanager
def about(file: TableFile) -> Iterator[None]:
    """Errors say of which file they speak."""
    try:
        yield
    except BadInput as error:
        raise error if str(file.path) in str(error) else BadInput(f"{file.path}: {error}") from error


def _fit(model: GPClassifier, looked: Looked, settings: Settings, terminal: Terminal) -> None:
    prepare = looked.prepare
    terminal.say(
        f"Training on {len(prepare.names)} numbers a row (Ctrl-C ends it and keeps the model as it stands)"
    )
    with about(looked.file):
        if 8 * looked.rows * len(prepare.names) <= IN_MEMORY:
            X, y, weight = rows(looked, settings.weight, terminal)
            model.fit(X, y, sample_weight=weight)
            return
        if model.validation_fraction is not None:
            raise BadOption(
                "--validation-fraction holds rows out of a table that fits into memory, and this one is read in pieces: give rows "
                'of their own, validation = "FILE" in the file of --config.'
            )
        more = [settings.target, *([settings.weight] if settings.weight else [])]
        with (
            spool_table(looked.file, prepare, more) as path,
            explain_errors(looked.file.path, (OSError, import_pyarrow().ArrowException)),
        ):
            model.fit(Arrow(path, weight=settings.weight, prepare=prepare))
    del model.feature_names_in_  # they are in the preparation, which hands over arrays


def rows(looked: Looked, weight: str | None, terminal: Terminal) -> tuple[Any, Any, Any]:
    """A whole table, prepared: X, labels and weights."""
    parts = []
    target = looked.prepare.target
    assert target is not None
    looked.prepare.check(looked.file.names)
    columns = [*looked.prepare.inputs, target.name, *([weight] if weight else [])]
    absent = next((c for c in columns if c not in looked.file.names), None)
    if absent is not None:
        raise BadInput(f"{looked.file.path} has no column {absent!r}.")
    for chunk in terminal.bar(looked.file.chunks(columns), "rows", _size):
        w = None if weight is None else _weights(chunk, weight)
        parts.append((looked.prepare.transform(chunk), looked.prepare.labels(chunk), w))
    if not parts:
        raise BadInput(f"{looked.file.path} has no rows.")
    X, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return X, y, None if weight is None else np.concatenate([part[2] for part in parts])


def _weights(chunk: Chunk, name: str) -> Any:
    value, lacks = to_numbers(get_column(chunk.table, name), name, chunk.first)
    if lacks.any():
        row = chunk.first + int(np.flatnonzero(lacks)[0]) + 1
        raise BadInput(
            f"the weight (column {name!r}) is missing in row {row}: give every row one, 0 to leave it out."
        )
    return value


def _size(chunk: Chunk) -> int:
    return int(chunk.table.num_rows)


def _check_out(path: Path) -> None:
    """Before hours of training: can the model be written there?"""
    if path.is_dir():
        raise BadOption(f"--out {path} is a folder: name a file in it, such as {path / 'model.cavity'}.")
    if not path.parent.is_dir():
        raise BadOption(f"--out {path}: there is no folder {str(path.parent)!r}.")
    if not os.access(path.parent, os.W_OK):
        raise BadInput(f"--out {path}: the folder may not be written to.")


def _tell(model: GPClassifier, settings: Settings, terminal: Terminal) -> None:
    notes: Any = model.notes_
    for warning in notes["warnings"]:
        terminal.note(warning)
    size = settings.out.stat().st_size if terminal.rank == 0 else 0
    classes = model.classes_.tolist()
    last = model.history_[-1] if model.history_ else {}
    held = f"; validation NLL {last['validation_nll']:.4f}" if "validation_nll" in last else ""
    terminal.say(
        f"Trained in {notes['seconds']:.1f} s: {len(classes)} classes, {model.inducing_points_.shape[1]} inducing points a class, "
        f"{model.n_epochs_} epochs, log marginal likelihood {model.log_marginal_likelihood_:.2f}{held}"
    )
    terminal.say(f"Saved {settings.out} ({max(1, round(size / 1000))} kB)")
    terminal.result(
        {
            "model": str(settings.out),
            "bytes": size,
            "rows": notes["rows"],
            "classes": classes,
            "columns": dict(model.preparation_.describe()),
            "epochs": model.n_epochs_,
            "seconds": notes["seconds"],
            "log_marginal_likelihood": model.log_marginal_likelihood_,
            "warnings": notes["warnings"],
            "interrupted": notes["interrupted"],
        }
    )
