"""`cavity fit`: inspect the columns, train, save the model."""

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
from cavity.cli.evaluating import shorten, to_json
from cavity.cli.predicting import format_label
from cavity.cli.settings import Settings
from cavity.cli.terminal import (
    Terminal,
    exit_code,
    fail,
    format_evidence,
    format_table,
    known_evidence,
    sigterm_as_interrupt,
)
from cavity.config import read_classifier
from cavity.data import Arrow
from cavity.data.fragments import Chunk, import_pyarrow
from cavity.errors import BadInput, BadOption
from cavity.estimators import GPClassifier
from cavity.intake.frames import Prepared
from cavity.prediction.estimate import Estimate
from cavity.report.baseline import logistic_log_loss
from cavity.report.scores import FEW_ROWS
from cavity.tabular.cells import get_column, to_numbers
from cavity.tabular.files import TableFile, explain_errors, open_table, spool_table
from cavity.tabular.preparation import Preparation

IN_MEMORY = 256 << 20  # bytes of features; larger tables are read again in every pass


class InspectedTable(NamedTuple):
    """Table after the first pass, which made its preparation."""

    file: TableFile
    prepare: Preparation
    rows: int


def run(data: Path, settings: Settings, terminal: Terminal) -> None:
    """Run the command; under torchrun, on every rank."""
    _check_out(settings.out)
    model = GPClassifier(**settings.arguments, verbose=int(terminal.shows_bars))
    read_classifier(model.get_params(deep=False))  # refuse a wrong option before the table is read
    cpu = str(model.device).startswith("cpu")
    if "RANK" in os.environ:
        distributed.join("gloo" if cpu else None)
    try:
        with sigterm_as_interrupt():
            _train(model, inspect_table(data, settings, terminal), settings, terminal)
    finally:
        distributed.leave()


def _train(model: GPClassifier, table: InspectedTable, settings: Settings, terminal: Terminal) -> None:
    begun, stopped = time.perf_counter(), 0
    if settings.validation is not None:
        held = read_rows(InspectedTable(open_table(settings.validation), table.prepare, 0), None, terminal)
        model.set_params(callbacks=[Validation(Prepared(held[0]), held[1], model.patience)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found: dict[str, Any] = {}
        try:
            found = _fit(model, table, settings, terminal)
        except KeyboardInterrupt as stop:
            stopped = exit_code(stop)
            if not hasattr(model, "_fitted"):
                raise fail("interrupted before a first model existed; nothing was saved.", stopped) from None
    model.notes_ = {
        "data": str(table.file.path),
        "rows": table.rows,
        "unlabelled": table.prepare.target_.missing if table.prepare.target_ else 0,
        "seconds": round(time.perf_counter() - begun, 3),
        "seed": settings.seed,
        "weight": settings.weight,
        "cavity": __version__,
        "warnings": sorted(
            {str(w.message) for w in caught if issubclass(w.category, RuntimeWarning | UserWarning)}
        ),
        "interrupted": bool(stopped),
    } | found
    estimate = getattr(model, "estimate_", None)  # the file has it, too
    if terminal.rank == 0:
        model.save(settings.out)
    _report_fit(model, settings, terminal, estimate)
    if stopped:
        raise fail(
            f"interrupted; saved the model after {model.n_epochs_} epochs to {settings.out}.",
            stopped,
        )


def inspect_table(data: Path, settings: Settings, terminal: Terminal) -> InspectedTable:
    """Make the first pass: learn the preparation of the columns and print it."""
    file = open_table(data, settings.strict)
    count = 0

    def count_rows() -> Iterator[Any]:
        nonlocal count
        for chunk in terminal.show_progress(file.chunks(), "columns", _count_rows):
            count += chunk.table.num_rows
            yield chunk

    ignore = [*settings.ignore, *([settings.weight] if settings.weight else [])]
    with name_file_in_errors(file):
        prepare = Preparation(
            target=settings.target,
            ignore=ignore,
            kinds=settings.columns,
            unseen=settings.unseen,
            strict=settings.strict,
        ).fit_batches(count_rows())
    terminal.say(f"{data}: {count} rows, {len(file.names)} columns, target {settings.target!r}")
    terminal.say(format_table([(name or "(no name)", what) for name, what in prepare.describe()]))
    for note in file.notes:
        terminal.note(note)
    assert prepare.target_ is not None
    if prepare.target_.missing:
        terminal.note(f"{prepare.target_.missing} rows without a label are not used")
        count -= prepare.target_.missing
    return InspectedTable(file, prepare, count)


@contextmanager
def name_file_in_errors(file: TableFile) -> Iterator[None]:
    """Add the name of the file to errors that lack it."""
    try:
        yield
    except BadInput as error:
        raise error if str(file.path) in str(error) else BadInput(f"{file.path}: {error}") from error


def _fit(
    model: GPClassifier, table: InspectedTable, settings: Settings, terminal: Terminal
) -> dict[str, Any]:
    """Fit the model. Returns the log loss of logistic regression and the classes of few rows, for a table in memory."""
    prepare = table.prepare
    terminal.say(f"Training on {len(prepare.names)} features (Ctrl-C stops and saves the current model)")
    with name_file_in_errors(table.file):
        if 8 * table.rows * len(prepare.names) <= IN_MEMORY:
            X, y, weight = read_rows(table, settings.weight, terminal)
            model.fit(Prepared(X, prepare), y, sample_weight=weight)
            return {
                "logistic_log_loss": logistic_log_loss(X, y, weight, settings.seed),
                "few_rows": _find_few(y),
            }
        if model.validation_fraction is not None:
            raise BadOption(
                "--validation-fraction needs a table that fits in memory, but this one is read in pieces: give a separate table, "
                'validation = "FILE" in the file of --config.'
            )
        more = [settings.target, *([settings.weight] if settings.weight else [])]
        with (
            spool_table(table.file, prepare, more) as path,
            explain_errors(table.file.path, (OSError, import_pyarrow().ArrowException)),
        ):
            model.fit(Arrow(path, weight=settings.weight, prepare=prepare))
    return {}


def _find_few(y: Any) -> dict[str, int]:
    """Return the classes of few rows, with their numbers."""
    classes, rows = np.unique(y, return_counts=True)
    return {format_label(c): int(n) for c, n in zip(classes, rows, strict=True) if n < FEW_ROWS}


def read_rows(table: InspectedTable, weight: str | None, terminal: Terminal) -> tuple[Any, Any, Any]:
    """Read and prepare the whole table: X, labels and weights."""
    parts = []
    target = table.prepare.target_
    assert target is not None
    table.prepare.check(table.file.names)
    columns = [*table.prepare.inputs, target.name, *([weight] if weight else [])]
    absent = next((c for c in columns if c not in table.file.names), None)
    if absent is not None:
        raise BadInput(f"{table.file.path} has no column {absent!r}.")
    for chunk in terminal.show_progress(table.file.chunks(columns), "rows", _count_rows):
        keep = table.prepare.find_labelled(chunk)
        w = None if weight is None else _weights(chunk, weight)[keep]
        labelled = Chunk(chunk.table.filter(import_pyarrow().array(keep)), chunk.first, chunk.where)
        parts.append((table.prepare.encode(chunk)[keep], table.prepare.labels(labelled), w))
    if not any(len(part[1]) for part in parts):
        raise BadInput(f"{table.file.path} has no rows.")
    X, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return X, y, None if weight is None else np.concatenate([part[2] for part in parts])


def _weights(chunk: Chunk, name: str) -> Any:
    value, lacks = to_numbers(get_column(chunk.table, name), name, chunk.first)
    if lacks.any():
        row = chunk.first + int(np.flatnonzero(lacks)[0]) + 1
        raise BadInput(f"the weight (column {name!r}) is missing in row {row}: give one weight per row.")
    return value


def _count_rows(chunk: Chunk) -> int:
    return int(chunk.table.num_rows)


def _check_out(path: Path) -> None:
    """Check before training that the model can be written."""
    if path.is_dir():
        raise BadOption(f"--out {path} is a folder: name a file, such as {path / 'model.cavity'}.")
    if not path.parent.is_dir():
        raise BadOption(f"--out {path}: the folder {str(path.parent)!r} does not exist.")
    if not os.access(path.parent, os.W_OK):
        raise BadInput(f"--out {path}: the folder is not writable.")


def _report_fit(
    model: GPClassifier, settings: Settings, terminal: Terminal, estimate: Estimate | None
) -> None:
    """Print the warnings and the result of the fit."""
    notes: Any = model.notes_
    for warning in [*notes["warnings"], *_find_class_warnings(model, estimate)]:
        terminal.note(warning)
    size = settings.out.stat().st_size if terminal.rank == 0 else 0
    classes = model.classes_.tolist()
    last = model.history_[-1] if model.history_ else {}
    held = f"; validation NLL {last['validation_nll']:.4f}" if "validation_nll" in last else ""
    evidence = known_evidence(model)
    terminal.say(
        f"Trained in {notes['seconds']:.1f} s: {len(classes)} classes, "
        f"{model.inducing_points_.shape[1]} inducing points per class, "
        f"{model.n_epochs_} epochs, log marginal likelihood {format_evidence(evidence)}{held}"
    )
    if estimate is not None:
        terminal.say(_format_estimate(estimate, notes.get("logistic_log_loss")))
    terminal.say(f"Saved {settings.out} ({max(1, round(size / 1000))} kB)")
    terminal.print_result(
        {
            "model": str(settings.out),
            "bytes": size,
            "rows": notes["rows"],
            "classes": classes,
            "columns": dict(model.preparation_.describe()),
            "epochs": model.n_epochs_,
            "seconds": notes["seconds"],
            "log_marginal_likelihood": evidence,
            "estimate": None if estimate is None else to_json(estimate._asdict()),
            "logistic_log_loss": notes.get("logistic_log_loss"),
            "few_rows": notes.get("few_rows"),
            "warnings": notes["warnings"],
            "interrupted": notes["interrupted"],
        }
    )


def _find_class_warnings(model: GPClassifier, estimate: Estimate | None) -> list[str]:
    """Say which classes have few rows, and which are never predicted."""
    found, few = [], getattr(model, "notes_", {}).get("few_rows", {})
    if few:
        names = shorten([f"{name!r} ({n})" for name, n in few.items()])
        found.append(f"classes with fewer than {FEW_ROWS} rows, which a model can hardly learn: {names}")
    if estimate is not None and estimate.never_predicted:
        names = shorten([repr(format_label(model.classes_[c])) for c in estimate.never_predicted])
        found.append(f"classes that are never predicted for rows of the training table: {names}")
    return found


def _format_estimate(estimate: Estimate, logistic: float | None) -> str:
    """Say how good the model is on new rows, and how good simple models are."""
    other = "" if logistic is None else f", logistic regression {logistic:.3f}"
    loss = f"{estimate.log_loss:.3f} ± {estimate.standard_error:.3f}"
    return "\n".join(
        [
            f"Estimated on {estimate.rows} rows ({estimate.how}):",
            f"  log loss  {loss} (class frequencies {estimate.baseline_log_loss:.3f}{other})",
            f"  accuracy  {estimate.accuracy:.3f} (most frequent class {estimate.baseline_accuracy:.3f})",
            f"  {estimate.trust}",
        ]
    )
