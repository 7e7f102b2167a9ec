"""`cavity fit`: inspect the columns, train, save the model, and say how good it is."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cavity import distributed
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
from cavity.prediction.estimate import Estimate, format_loss
from cavity.prediction.target_estimate import TargetEstimate
from cavity.report.baselines import logistic_log_loss
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
REPORTED = (
    "rows",
    "seconds",
    "logistic_log_loss",
    "few_rows",
    "warnings",
    "interrupted",
)  # of the notes
# warnings that the command prints and the file keeps
SHOWN = (RuntimeWarning, UserWarning)


class InspectedTable(NamedTuple):
    """Table after the first pass, which made its preparation."""

    file: TableFile
    prepare: Preparation
    rows: int

    @property
    def is_regression(self) -> bool:
        return self.prepare.target_ is not None and self.prepare.target_.number

    @property
    def fits_memory(self) -> bool:
        return 8 * self.rows * len(self.prepare.names) <= IN_MEMORY


def inspect_table(
    data: str | Path, settings: Settings, terminal: Terminal
) -> InspectedTable:
    """Make the first pass: learn the preparation of the columns and print it."""
    file = open_table(data, settings.strict)
    count = 0

    def count_rows() -> Iterator[Any]:
        nonlocal count
        for chunk in terminal.show_progress(file.chunks(), "columns"):
            count += chunk.table.num_rows
            yield chunk

    ignore = [*settings.ignore, *filter(None, (settings.weight, settings.group))]
    with name_in_errors(file.path):
        prepare = Preparation(
            target=settings.target,
            ignore=ignore,
            kinds={
                settings.target: "number" if settings.regression else "auto",
                **settings.columns,
            },
            strict=settings.strict,
        ).fit_batches(count_rows())
    terminal.say(
        f"{data}: {count} rows, {len(file.names)} columns, target {settings.target!r}"
    )
    terminal.say(
        format_pairs([(name_column(name), what) for name, what in prepare.describe()])
    )
    for note in file.notes:
        terminal.note(note)
    assert prepare.target_ is not None
    if prepare.target_.number and not settings.regression:
        terminal.note(
            "the target has many values, so this is a regression; if its whole numbers "
            "are classes, "
            f"{advise_classes(settings.target)}"
        )
    if prepare.target_.missing:
        terminal.note(f"{prepare.target_.missing} rows without a label are not used")
        count -= prepare.target_.missing
    return InspectedTable(file, prepare, count)


def read_rows(
    file: TableFile,
    prepare: Preparation,
    terminal: Terminal,
    weight: Text = None,
    group: Text = None,
) -> LabelledRows:
    """Read the rows with a label."""
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
        None if c[0] is None else np.concatenate(c) for c in zip(*parts, strict=True)
    )
    return LabelledRows(*joined)


def make_model(settings: Settings, terminal: Terminal, regression: bool) -> Any:
    kind: Any = GPRegressor if regression else GPClassifier
    known = list_arguments(kind)
    other = next((name for name in settings.arguments if name not in known), None)
    if other is not None:
        task, flag = (
            ("regression", "")
            if regression
            else ("classification", ", or add --regression")
        )
        raise BadOption(
            f"{other} is not an argument of {kind.__name__}, for {task}: leave it "
            f"out{flag}."
        )
    model = kind(**nest(**settings.arguments), verbose=int(terminal.shows_bars))
    check_arguments(model)
    return model


def run(data: str | Path, settings: Settings, terminal: Terminal) -> None:
    """Run the command; under torchrun, on every rank."""
    check_out(settings.out, data, settings.validation)
    checkpoint = settings.arguments.get("checkpoint")
    if checkpoint is not None:
        check_out(
            checkpoint,
            data,
            settings.validation,
            flag="--checkpoint",
            example="run.ckpt",
        )
        if Path(checkpoint) == settings.out:
            raise BadOption(
                f"--checkpoint {checkpoint} is also --out: choose another name."
            )
    # before the table is read: it refuses wrong options
    model = make_model(settings, terminal, settings.regression)
    cpu = str(model.device).startswith("cpu")
    if "RANK" in os.environ:
        distributed.join("gloo" if cpu else None)
    try:
        with Interrupts() as interrupts:
            table = inspect_table(data, settings, terminal)
            if table.is_regression:
                model = make_model(settings, terminal, True)
                if "method" not in settings.arguments:
                    model.set_params(
                        method=choose_regression_method(table.rows, table.fits_memory)
                    )
            _train(model, table, settings, terminal, interrupts)
    finally:
        distributed.leave()


def _train(
    model: Any,
    table: InspectedTable,
    settings: Settings,
    terminal: Terminal,
    interrupts: Interrupts,
) -> None:
    begun = time.perf_counter()
    stopped = 0
    saved = f"if there is a model so far, it is saved to {settings.out}"
    interrupts.announcement = f"stopping: {saved}; interrupt again to quit"
    more: dict[str, Any] = {"time_limit": settings.time_limit}
    if settings.validation is not None:
        held = read_rows(open_table(settings.validation), table.prepare, terminal)
        more["eval_set"] = (Prepared(held.X), held.y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found: dict[str, Any] = {}
        try:
            found = _fit(model, table, settings, more, terminal)
            # inside `try`: no moment is left in which an interrupt loses the model
            interrupts.hold()
        except KeyboardInterrupt as stop:
            stopped = exit_code(stop)
            if not hasattr(model, "_fitted"):
                raise fail(
                    "interrupted before a first model existed; nothing was saved.",
                    stopped,
                ) from None
            skip_importance(model)
    model.notes_ = {
        "data": str(table.file.path),
        "rows": table.rows,
        "unlabelled": table.prepare.target_.missing if table.prepare.target_ else 0,
        "seconds": round(time.perf_counter() - begun, 3),
        "seed": settings.seed,
        "weight": settings.weight,
        "group": settings.group,
        "cavity": __version__,
        "warnings": sorted(
            {str(w.message) for w in caught if issubclass(w.category, SHOWN)}
        ),
        "interrupted": bool(stopped),
    } | found
    estimate = getattr(model, "estimate_", None)  # the file has it, too
    if terminal.rank == 0:
        model.save(settings.out)
    _report(model, settings, terminal, estimate)
    if stopped or interrupts.stopped:
        said = f"interrupted; saved the model after {model.n_epochs_} epochs to {settings.out}."
        raise fail(said, stopped or interrupts.stopped)


def _fit(
    model: Any,
    table: InspectedTable,
    settings: Settings,
    more: dict[str, Any],
    terminal: Terminal,
) -> dict[str, Any]:
    """Fit the model (`more`: other arguments of `fit`); return what a report says of a
    table in memory: baselines, rare classes.
    """
    prepare = table.prepare
    if settings.group is not None and table.is_regression:
        raise BadOption(NO_GROUPS)
    terminal.say(
        f"Training on {len(prepare.names)} features (Ctrl-C stops and saves the "
        f"current model)"
    )
    silent: Any = nullcontext()
    if not terminal.shows_bars:
        silent = forward_stages(terminal.say)
    with name_in_errors(table.file.path), silent:
        if table.fits_memory:
            X, y, weight, group = read_rows(
                table.file, prepare, terminal, settings.weight, settings.group
            )
            classes, rows = np.unique(y, return_counts=True)
            if y.dtype.kind == "i" and len(classes) > MANY_VALUES:
                said = (
                    f"each of the {len(classes)} whole numbers of the target is a class"
                )
                terminal.note(f"{said}; --regression predicts the number")
            if group is not None:
                more["groups"] = group
            model.fit(Prepared(X, prepare), y, sample_weight=weight, **more)
            if table.is_regression:
                return {}
            few = {
                format_label(c): int(n)
                for c, n in zip(classes, rows, strict=True)
                if n < FEW_ROWS
            }
            logistic = logistic_log_loss(X, y, weight, settings.seed, group)
            return {"logistic_log_loss": logistic, "few_rows": few}
        if read_training(model.training).validation_fraction is not None:
            raise BadOption(
                "--validation-fraction needs a table that fits in memory, but this one "
                "is read in pieces: give a separate table, "
                'validation = "FILE" in the file of --config.'
            )
        with explain_errors(
            table.file.path, (OSError, import_pyarrow().ArrowException)
        ):
            model.fit(
                TableRows(table.file, prepare, settings.weight, settings.group), **more
            )
    return {}


def _report(
    model: Any,
    settings: Settings,
    terminal: Terminal,
    estimate: Estimate | TargetEstimate | None,
) -> None:
    notes: Any = model.notes_
    for warning in [*notes["warnings"], *_find_class_warnings(model, estimate)]:
        terminal.note(warning)
    size = 0
    if terminal.rank == 0:
        size = settings.out.stat().st_size
    classes = getattr(model, "classes_", np.empty(0)).tolist()
    if model.history_:
        last = model.history_[-1]
    else:
        last = {}
    held = ""
    if "validation_nll" in last:
        held = f"; validation NLL {last['validation_nll']:.4f}"
    value = float(model.log_marginal_likelihood_)
    evidence = None if math.isnan(value) else value
    terminal.say(
        f"Trained in {notes['seconds']:.1f} s: "
        + (
            f"{len(classes)} classes, "
            if classes
            else f"regression, method {model.method}, "
        )
        + f"{view_fit(model).model.Z.shape[-2]} inducing "
        f"points{' per class' if classes else ''}, "
        f"{model.n_epochs_} epochs, {view_fit(model).evidence_name} "
        f"{format_evidence(evidence)}{held}"
    )
    figures: dict[str, Any] | None = None
    if estimate is not None:
        terminal.say(str(estimate))
        figures = {
            name: value
            for name, value in estimate._asdict().items()
            if name != "scores"
        }
    logistic = notes.get("logistic_log_loss")
    if isinstance(estimate, Estimate) and logistic is not None:
        worse = logistic <= estimate.log_loss
        simpler = (
            ", at least as good, and simpler: compare both on new rows" if worse else ""
        )
        terminal.say(
            f"Logistic regression has a log loss of {format_loss(logistic)}{simpler}."
        )
    terminal.say(f"Saved {settings.out} ({max(1, round(size / 1000))} kB)")
    terminal.print_result(
        {
            "model": str(settings.out),
            "bytes": size,
            "classes": classes,
            "columns": dict(model.preparation_.describe()),
            "plan": model.plan_.summarise(),
            "epochs": model.n_epochs_,
            "log_marginal_likelihood": evidence,
            "estimate": figures,
            **{name: notes.get(name) for name in REPORTED},
        }
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
        names = list_names(
            [repr(format_label(model.classes_[c])) for c in estimate.never_predicted]
        )
        found.append(
            f"classes that are never predicted for rows of the training table: {names}"
        )
    return found
