"""`cavity fit`: inspect the columns, train, save the model, and report its quality."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity import distributed
from cavity.cli.logistic import compare_logistic
from cavity.cli.outputs import check_out
from cavity.cli.settings import NO_GROUPS, Settings, list_arguments
from cavity.cli.terminal import Interrupts, Terminal, Text, exit_code, fail
from cavity.common.progress import forward_stages
from cavity.common.text_tables import (
    format_label,
    format_pairs,
    list_names,
    name_column,
)
from cavity.common.version import __version__
from cavity.errors import BadInput, BadOption, name_in_errors
from cavity.estimators import GPClassifier, GPRegressor, view_fit
from cavity.estimators.fitted_view import check_arguments, skip_importance
from cavity.fitting.options import nest, read_training
from cavity.fitting.options.regression_methods import choose_regression_method
from cavity.prediction.estimate import Estimate
from cavity.prediction.target_estimate import TargetEstimate
from cavity.report.baselines import count_rows, logistic_log_loss
from cavity.report.scores import FEW_ROWS
from cavity.saving.summary import format_evidence
from cavity.tables.arrow_tables import import_pyarrow
from cavity.tables.columns.encoder import check_columns
from cavity.tables.columns.preparation import Preparation
from cavity.tables.columns.target_labels import MANY_VALUES, advise_classes
from cavity.tables.files.table_files import (
    LabelledRows,
    TableFile,
    TableRows,
    open_table,
)
from cavity.tables.files.text_files import explain_errors
from cavity.tables.validation import Prepared

IN_MEMORY = 256 << 20  # bytes of features; larger tables are read again in every pass
MOST_SHOWN = 60  # columns that are printed
LEAST_SECONDS = 0.1  # of a fit whose time limit passed while its table was read
REPORTED = (  # entries of the notes that --json prints
    "rows",
    "seconds",
    "logistic_log_loss",
    "few_rows",
    "warnings",
    "interrupted",
)
SHOWN = (RuntimeWarning, UserWarning)  # printed, and kept in the file


class Deadline(NamedTuple):
    """The time limit of the command, which includes reading the table."""

    begun: float
    limit: float | None

    def left(self) -> float | None:
        """Return the seconds that the fit may take, in three digits; None: any."""
        if self.limit is None:
            return None

        spent = time.perf_counter() - self.begun
        return float(f"{max(self.limit - spent, LEAST_SECONDS):.3g}")

    def is_over(self) -> bool:
        left = self.left()
        return left is not None and left <= LEAST_SECONDS


class InspectedTable(NamedTuple):
    """Table after the first pass, which learnt its preparation."""

    file: TableFile
    prepare: Preparation
    rows: int
    memory: int = IN_MEMORY  # bytes of features that are held

    @property
    def is_regression(self) -> bool:
        return self.prepare.target_ is not None and self.prepare.target_.number

    @property
    def fits_memory(self) -> bool:
        return 8 * self.rows * len(self.prepare.names) <= self.memory


def inspect_table(
    data: str | Path, settings: Settings, terminal: Terminal, memory: int = IN_MEMORY
) -> InspectedTable:
    """Make the first pass: learn the preparation of the columns and print it."""
    file = open_table(data, settings.strict)
    count = 0

    def count_rows() -> Iterator[Any]:
        nonlocal count
        for chunk in terminal.show_progress(file.chunks(), "columns"):
            count += chunk.table.num_rows
            yield chunk

    kind = "number" if settings.regression else "auto"
    with name_in_errors(file.path):
        prepare = Preparation(
            target=settings.target,
            ignore=[*settings.ignore, *filter(None, (settings.weight, settings.group))],
            kinds={settings.target: kind, **settings.columns},
            strict=settings.strict,
        ).fit_batches(count_rows())

    terminal.say(
        f"{data}: {count} rows, {len(file.names)} columns, target {settings.target!r}"
    )
    columns = prepare.describe()
    shown = [(name_column(name), how) for name, how in columns[:MOST_SHOWN]]
    terminal.say(format_pairs(shown))
    if len(columns) > MOST_SHOWN:
        rest = len(columns) - MOST_SHOWN
        terminal.say(f"  and {rest} more columns; `cavity info` lists all")
    for note in file.notes:
        terminal.note(note)
    target = prepare.target_
    assert target is not None
    if target.number and not settings.regression:
        terminal.note(
            "the target has many values, so this is a regression; if its whole numbers "
            f"are classes, {advise_classes(settings.target)}"
        )

    if target.missing:
        terminal.note(f"{target.missing} rows without a label are not used")
        count -= target.missing
    return InspectedTable(file, prepare, count, memory)


def read_rows(
    file: TableFile,
    prepare: Preparation,
    terminal: Terminal,
    weight: Text = None,
    group: Text = None,
) -> LabelledRows:
    """Read the labelled rows of a table."""
    rows = TableRows(file, prepare, weight, group)
    check_columns(prepare, file.names, file.path)
    absent = next((name for name in rows.columns if name not in file.names), None)
    if absent is not None:
        raise BadInput(f"{file.path} has no column {absent!r}.")

    parts = [
        rows.read(chunk)
        for chunk in terminal.show_progress(file.chunks(rows.columns), "rows")
    ]
    if not any(len(part.y) for part in parts):
        raise BadInput(f"{file.path} has no rows.")

    joined: Any = (
        None if column[0] is None else np.concatenate(column)
        for column in zip(*parts, strict=True)
    )
    return LabelledRows(*joined)


def make_model(settings: Settings, terminal: Terminal, regression: bool) -> Any:
    kind: Any = GPRegressor if regression else GPClassifier
    known = list_arguments(kind)
    other = next((name for name in settings.arguments if name not in known), None)
    if other is not None:
        remedy = "remove it"
        if not regression:
            remedy += ", or add --regression"
        raise BadOption(f"{other} is not an argument of {kind.__name__}: {remedy}.")

    model = kind(**nest(**settings.arguments), verbose=int(terminal.shows_bars))
    check_arguments(model)
    return model


def run(
    data: str | Path, settings: Settings, terminal: Terminal, memory: int = IN_MEMORY
) -> None:
    """Run the command; under torchrun, on every rank."""
    check_out(settings.out, data, settings.validation)
    checkpoint = settings.arguments.get("checkpoint")
    if checkpoint is not None:
        inputs = (data, settings.validation)
        check_out(checkpoint, *inputs, flag="--checkpoint", example="run.ckpt")
        if Path(checkpoint) == settings.out:
            raise BadOption(
                f"--checkpoint {checkpoint} is also --out: choose another name."
            )

    # wrong options are refused before the table is read
    model = make_model(settings, terminal, settings.regression)
    cpu = str(model.device).startswith("cpu")
    if "RANK" in os.environ:
        distributed.join("gloo" if cpu else None)
    deadline = Deadline(time.perf_counter(), settings.time_limit)
    try:
        with Interrupts() as interrupts:
            table = inspect_table(data, settings, terminal, memory)
            if table.is_regression:
                model = make_model(settings, terminal, True)
                if "method" not in settings.arguments:
                    method = choose_regression_method(table.rows, table.fits_memory)
                    model.set_params(method=method)

            _train(model, table, settings, deadline, terminal, interrupts)
    finally:
        distributed.leave()


def _train(
    model: Any,
    table: InspectedTable,
    settings: Settings,
    deadline: Deadline,
    terminal: Terminal,
    interrupts: Interrupts,
) -> None:
    begun = time.perf_counter()
    interrupts.announcement = (
        f"stopping: if a model exists so far, it is saved to {settings.out}; interrupt "
        f"again to quit"
    )
    found: dict[str, Any] = {}
    stopped = 0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = _fit(model, table, settings, deadline, terminal)
            interrupts.hold()  # inside `try`, so that no interrupt loses the model
        except KeyboardInterrupt as stop:
            stopped = exit_code(stop)
            _keep_first_model(model, stopped)

    said = {str(w.message) for w in caught if issubclass(w.category, SHOWN)}
    target = table.prepare.target_
    model.notes_ = {
        "data": str(table.file.path),
        "rows": table.rows,
        "unlabelled": target.missing if target else 0,
        "seconds": round(time.perf_counter() - begun, 3),
        "seed": settings.seed,
        "weight": settings.weight,
        "group": settings.group,
        "cavity": __version__,
        "warnings": sorted(said),
        "interrupted": bool(stopped),
        **found,
    }
    estimate = getattr(model, "estimate_", None)
    if deadline.is_over():
        skip_importance(model)
    if terminal.rank == 0:
        model.save(settings.out)
    _report(model, settings, terminal, estimate)
    if stopped or interrupts.stopped:
        raise fail(
            f"interrupted; saved the model after {model.n_epochs_} epochs to "
            f"{settings.out}.",
            stopped or interrupts.stopped,
        )


def show_stages(terminal: Terminal) -> AbstractContextManager[Any]:
    """Print the stages of a fit, unless bars show them."""
    if terminal.shows_bars:
        return nullcontext()

    return forward_stages(terminal.say)


def _keep_first_model(model: Any, stopped: int) -> None:
    """Keep the model of an interrupted fit; end the command if there is none."""
    if not hasattr(model, "_fitted"):
        raise fail(
            "interrupted before a first model existed; nothing was saved.", stopped
        )

    skip_importance(model)


def _fit(
    model: Any,
    table: InspectedTable,
    settings: Settings,
    deadline: Deadline,
    terminal: Terminal,
) -> dict[str, Any]:
    """Fit the model.

    Return what the notes say about a table in memory: baseline and rare classes.
    """
    prepare = table.prepare
    more: dict[str, Any] = {}  # arguments of `fit`
    if settings.validation is not None:
        held = read_rows(open_table(settings.validation), prepare, terminal)
        more["eval_set"] = (Prepared(held.X), held.y)
    if settings.group is not None and table.is_regression:
        raise BadOption(NO_GROUPS)

    terminal.say(
        f"Training on {len(prepare.names)} features (Ctrl-C stops and saves the "
        f"current model)"
    )
    with name_in_errors(table.file.path), show_stages(terminal):
        if table.fits_memory:
            return _fit_in_memory(model, table, settings, deadline, more, terminal)

        more["time_limit"] = deadline.left()
        _fit_in_pieces(model, table, settings, more)
        return {}


def _fit_in_memory(
    model: Any,
    table: InspectedTable,
    settings: Settings,
    deadline: Deadline,
    more: dict[str, Any],
    terminal: Terminal,
) -> dict[str, Any]:
    X, y, weight, group = read_rows(
        table.file, table.prepare, terminal, settings.weight, settings.group
    )
    classes, rows = np.unique(y, return_counts=True)
    if y.dtype.kind == "i" and len(classes) > MANY_VALUES:
        terminal.note(
            f"each of the {len(classes)} whole numbers of the target is a class; "
            f"--regression predicts the number"
        )

    if group is not None:
        more["groups"] = group
    more["time_limit"] = deadline.left()
    model.fit(Prepared(X, table.prepare), y, sample_weight=weight, **more)
    if table.is_regression:
        return {}

    few = {
        format_label(label): int(n)
        for label, n in zip(classes, rows, strict=True)
        if n < FEW_ROWS
    }
    logistic = logistic_log_loss(
        X, y, weight, settings.seed, group, is_over=deadline.is_over
    )
    return {
        "logistic_log_loss": logistic,
        "logistic_rows": count_rows(len(X), X.shape[1], len(classes)),
        "few_rows": few,
    }


def _fit_in_pieces(
    model: Any, table: InspectedTable, settings: Settings, more: dict[str, Any]
) -> None:
    if read_training(model.training).validation_fraction is not None:
        raise BadOption(
            "--validation-fraction needs a table that fits in memory, but this one is "
            "read in pieces: give a separate table, "
            'validation = "FILE" in the file of --config.'
        )

    rows = TableRows(table.file, table.prepare, settings.weight, settings.group)
    with explain_errors(table.file.path, (OSError, import_pyarrow().ArrowException)):
        model.fit(rows, **more)


def _report(
    model: Any,
    settings: Settings,
    terminal: Terminal,
    estimate: Estimate | TargetEstimate | None,
) -> None:
    notes: Any = model.notes_
    useless = None if estimate is None else estimate.verdict
    for warning in [*notes["warnings"], *_find_class_warnings(model, estimate)]:
        tell = terminal.warn if warning == useless else terminal.note
        tell(warning)

    _say_fit(model, terminal)
    figures: dict[str, Any] | None = None
    if estimate is not None:
        terminal.say(str(estimate))
        figures = estimate._asdict()
        figures.pop("scores", None)
    if _list_classes(model):
        quality = estimate if isinstance(estimate, Estimate) else None
        terminal.say(compare_logistic(notes, quality))

    size = settings.out.stat().st_size if terminal.rank == 0 else 0
    terminal.say(f"Saved {settings.out} ({max(1, round(size / 1000))} kB)")
    value = float(model.log_marginal_likelihood_)
    terminal.print_result(
        {
            "model": str(settings.out),
            "bytes": size,
            "classes": _list_classes(model),
            "columns": dict(model.preparation_.describe()),
            "plan": model.plan_.summarise(),
            "epochs": model.n_epochs_,
            "log_marginal_likelihood": None if math.isnan(value) else value,
            "estimate": figures,
            **{name: notes.get(name) for name in REPORTED},
        }
    )


def _list_classes(model: Any) -> list[Any]:
    """Return the labels of a classifier; a regressor has none."""
    return getattr(model, "classes_", np.empty(0)).tolist()


def _say_fit(model: Any, terminal: Terminal) -> None:
    fit = view_fit(model)
    classes = _list_classes(model)
    task = f"regression, method {model.method}"
    points = f"{fit.model.Z.shape[-2]} inducing points"
    if classes:
        task = f"{len(classes)} classes"
        points += " per class"
    held = ""
    if model.history_ and "validation_nll" in model.history_[-1]:
        held = f"; validation NLL {model.history_[-1]['validation_nll']:.4f}"
    evidence = format_evidence(float(model.log_marginal_likelihood_))
    terminal.say(
        f"Trained in {model.notes_['seconds']:.1f} s: {task}, {points}, "
        f"{model.n_epochs_} epochs, {fit.evidence_name} {evidence}{held}"
    )


def _find_class_warnings(
    model: Any, estimate: Estimate | TargetEstimate | None
) -> list[str]:
    found = []
    few = getattr(model, "notes_", {}).get("few_rows", {})
    if few:
        names = list_names([f"{name!r} ({n})" for name, n in few.items()])
        found.append(
            f"classes with fewer than {FEW_ROWS} rows, which a model can hardly learn: "
            f"{names}"
        )

    if isinstance(estimate, Estimate) and estimate.never_predicted:
        labels = [format_label(model.classes_[c]) for c in estimate.never_predicted]
        found.append(
            f"classes that are never predicted for rows of the training table: "
            f"{list_names(list(map(repr, labels)))}"
        )

    return found
