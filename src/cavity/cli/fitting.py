"""`cavity fit`: inspect the columns, train, save the model."""

from __future__ import annotations

import inspect
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
from cavity.data import Arrow
from cavity.data.fragments import Chunk, import_pyarrow
from cavity.errors import BadInput, BadOption
from cavity.estimators import GPClassifier, GPRegressor
from cavity.intake.frames import Prepared
from cavity.prediction.estimate import Estimate
from cavity.remote import Location, check_bucket, count_bytes
from cavity.report.baseline import logistic_log_loss
from cavity.report.regression import estimate_regression
from cavity.report.scores import FEW_ROWS
from cavity.tabular.cells import get_column, to_numbers
from cavity.tabular.files import TableFile, open_table, spool_table
from cavity.tabular.inspection import MANY_VALUES
from cavity.tabular.preparation import Preparation
from cavity.tabular.text_file import explain_errors

IN_MEMORY = 256 << 20  # bytes of features; larger tables are read again in every pass
EXACT_ROWS, FULL_BATCH_ROWS = (
    1500,
    20_000,
)  # of regression: "exact" up to the first, "vi" up to the second, then "svi"


class InspectedTable(NamedTuple):
    """Table after the first pass, which made its preparation."""

    file: TableFile
    prepare: Preparation
    rows: int

    @property
    def is_regression(self) -> bool:
        """Whether the target is a number."""
        return self.prepare.target_ is not None and self.prepare.target_.number

    @property
    def fits_memory(self) -> bool:
        """Whether the features stay in memory."""
        return 8 * self.rows * len(self.prepare.names) <= IN_MEMORY


def make_model(settings: Settings, terminal: Terminal, regression: bool) -> Any:
    """Make the estimator and check its arguments."""
    kind: Any = GPRegressor if regression else GPClassifier
    known = inspect.signature(kind).parameters
    other = next((name for name in settings.arguments if name not in known), None)
    if other is not None:
        task, flag = ("regression", "") if regression else ("classification", ", or add --regression")
        raise BadOption(f"{other} is not an argument of {kind.__name__}, for {task}: leave it out{flag}.")
    if regression and settings.validation is not None:
        raise BadOption("validation is for classification: leave it out.")
    model = kind(**settings.arguments, verbose=int(terminal.shows_bars))
    model._config()
    return model


def choose_method(model: Any, table: InspectedTable, settings: Settings, terminal: Terminal) -> Any:
    """Choose a method of regression by the number of rows, unless the settings name one."""
    if "method" not in settings.arguments and table.rows > EXACT_ROWS:
        model.set_params(method="vi" if table.fits_memory and table.rows <= FULL_BATCH_ROWS else "svi")
    return model


def run(data: str | Path, settings: Settings, terminal: Terminal) -> None:
    """Run the command; under torchrun, on every rank."""
    _check_out(settings.out)
    model = make_model(
        settings, terminal, settings.regression
    )  # refuse a wrong option before the table is read
    cpu = str(model.device).startswith("cpu")
    if "RANK" in os.environ:
        distributed.join("gloo" if cpu else None)
    try:
        with sigterm_as_interrupt():
            table = inspect_table(data, settings, terminal)
            if table.is_regression:
                model = choose_method(make_model(settings, terminal, True), table, settings, terminal)
            _train(model, table, settings, terminal)
    finally:
        distributed.leave()


def _train(model: Any, table: InspectedTable, settings: Settings, terminal: Terminal) -> None:
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
        stopped = _save(model, settings.out) or stopped
    _report_fit(model, settings, terminal, estimate)
    if stopped:
        raise fail(
            f"interrupted; saved the model after {model.n_epochs_} epochs to {settings.out}.",
            stopped,
        )


def _save(model: GPClassifier, out: Location) -> int:
    """Save the model. If an interrupt ends the save, save again and return its exit code, else 0."""
    try:
        model.save(out)
    except KeyboardInterrupt as stop:
        model.save(out)
        return exit_code(stop)
    return 0


def inspect_table(data: str | Path, settings: Settings, terminal: Terminal) -> InspectedTable:
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
            kinds={settings.target: "number" if settings.regression else "auto", **settings.columns},
            unseen=settings.unseen,
            strict=settings.strict,
        ).fit_batches(count_rows())
    terminal.say(f"{data}: {count} rows, {len(file.names)} columns, target {settings.target!r}")
    terminal.say(format_table([(name or "(no name)", what) for name, what in prepare.describe()]))
    for note in file.notes:
        terminal.note(note)
    assert prepare.target_ is not None
    if prepare.target_.number and not settings.regression:
        terminal.note(
            f"the target has many values, so this is a regression; for classes, set columns = {{ {settings.target} = "
            '"category" } in the file of --config'
        )
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


def _fit(model: Any, table: InspectedTable, settings: Settings, terminal: Terminal) -> dict[str, Any]:
    """Fit the model. Returns what else there is to say of a table in memory: baselines, classes of few rows."""
    prepare = table.prepare
    terminal.say(f"Training on {len(prepare.names)} features (Ctrl-C stops and saves the current model)")
    with name_file_in_errors(table.file):
        if table.fits_memory:
            X, y, weight = read_rows(table, settings.weight, terminal)
            if y.dtype.kind == "i" and len(np.unique(y)) > MANY_VALUES:
                terminal.note(
                    f"each of the {len(np.unique(y))} whole numbers of the target is a class; --regression predicts the number"
                )
            model.fit(Prepared(X, prepare), y, sample_weight=weight)
            if table.is_regression:
                return {"estimate": estimate_regression(model, X, y, weight, settings.seed)}
            return {
                "logistic_log_loss": logistic_log_loss(X, y, weight, settings.seed),
                "few_rows": _find_few(y),
            }
        if getattr(model, "validation_fraction", None) is not None:
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


def _check_out(path: Location) -> None:
    """Check before training that the model can be written."""
    if isinstance(path, str):
        check_bucket(path)
        return
    if path.is_dir():
        raise BadOption(f"--out {path} is a folder: name a file, such as {path / 'model.cavity'}.")
    if not path.parent.is_dir():
        raise BadOption(f"--out {path}: the folder {str(path.parent)!r} does not exist.")
    if not os.access(path.parent, os.W_OK):
        raise BadInput(f"--out {path}: the folder is not writable.")


def _report_fit(model: Any, settings: Settings, terminal: Terminal, estimate: Estimate | None) -> None:
    """Print the warnings and the result of the fit."""
    notes: Any = model.notes_
    for warning in [*notes["warnings"], *_find_class_warnings(model, estimate)]:
        terminal.note(warning)
    size = count_bytes(settings.out) if terminal.rank == 0 else 0
    classes = getattr(model, "classes_", np.empty(0)).tolist()
    last = model.history_[-1] if model.history_ else {}
    held = f"; validation NLL {last['validation_nll']:.4f}" if "validation_nll" in last else ""
    evidence = known_evidence(model)
    terminal.say(
        f"Trained in {notes['seconds']:.1f} s: "
        + (f"{len(classes)} classes, " if classes else f"regression, method {model.method}, ")
        + f"{model.inducing_points_.shape[-2]} inducing points{' per class' if classes else ''}, "
        f"{model.n_epochs_} epochs, log marginal likelihood {format_evidence(evidence)}{held}"
    )
    if notes.get("estimate"):
        terminal.say(_format_regression(notes["estimate"]))
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
            "estimate": to_json(notes.get("estimate") if estimate is None else estimate._asdict()),
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


def _format_regression(found: dict[str, Any]) -> str:
    """Say how good a regressor is on new rows, and how good the mean of the target is."""
    base = found["baseline"]
    return "\n".join(
        [
            f"Estimated on {found['rows']} rows held out of one more fit:",
            f"  rmse      {found['rmse']:.4g} (mean of the target {base['rmse']:.4g})",
            f"  nlpd      {found['nlpd']:.4g} (normal distribution {base['nlpd']:.4g})",
            f"  coverage  {found['coverage']:.3f} of the rows are within their 95 % interval",
        ]
    )
