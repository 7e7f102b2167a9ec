"""`cavity fit`: inspect the columns, train, save the model."""

from __future__ import annotations

import os
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from cavity import distributed
from cavity._version import __version__
from cavity.cli.fit_summary import report_fit
from cavity.cli.outputs import check_out
from cavity.cli.reading import InspectedTable, inspect_table, name_file_in_errors, read_rows
from cavity.cli.settings import Settings, list_arguments
from cavity.cli.terminal import Interrupts, Terminal, exit_code, fail
from cavity.errors import BadOption
from cavity.estimators import GPClassifier, GPRegressor
from cavity.estimators.fitted_view import check_arguments, choose_regression_method, skip_importance
from cavity.options import nest, read_training
from cavity.report.baseline import logistic_log_loss
from cavity.report.regression import estimate_regression
from cavity.report.scores import FEW_ROWS
from cavity.rows.arrow_tables import import_pyarrow
from cavity.rows.columns.target_labels import MANY_VALUES
from cavity.rows.files.arrow_source import Arrow
from cavity.rows.files.table_files import open_table, spool_table
from cavity.rows.files.text_files import explain_errors
from cavity.rows.frames import Prepared
from cavity.saving.json_checks import format_label
from cavity.training.progress import forward_stages


def make_model(settings: Settings, terminal: Terminal, regression: bool) -> Any:
    """Make the estimator and check its arguments."""
    kind: Any = GPRegressor if regression else GPClassifier
    known = list_arguments(kind)
    other = next((name for name in settings.arguments if name not in known), None)
    if other is not None:
        task, flag = ("regression", "") if regression else ("classification", ", or add --regression")
        raise BadOption(f"{other} is not an argument of {kind.__name__}, for {task}: leave it out{flag}.")
    model = kind(**nest(**settings.arguments), verbose=int(terminal.shows_bars))
    check_arguments(model)
    return model


def run(data: str | Path, settings: Settings, terminal: Terminal) -> None:
    """Run the command; under torchrun, on every rank."""
    check_out(settings.out, data, settings.validation)
    if settings.arguments.get("checkpoint") is not None:
        check_out(settings.arguments["checkpoint"], data, settings.validation, flag="--checkpoint")
    model = make_model(
        settings, terminal, settings.regression
    )  # refuse a wrong option before the table is read
    cpu = str(model.device).startswith("cpu")
    if "RANK" in os.environ:
        distributed.join("gloo" if cpu else None)
    try:
        with Interrupts() as interrupts:
            table = inspect_table(data, settings, terminal)
            if table.is_regression:
                model = make_model(settings, terminal, True)
                if "method" not in settings.arguments:
                    model.set_params(method=choose_regression_method(table.rows, table.fits_memory))
            _train(model, table, settings, terminal, interrupts)
    finally:
        distributed.leave()


def _train(
    model: Any, table: InspectedTable, settings: Settings, terminal: Terminal, interrupts: Interrupts
) -> None:
    begun, stopped = time.perf_counter(), 0
    interrupts.announcement = (
        f"stopping: saving the model so far to {settings.out}; interrupt again to quit without saving"
    )
    more: dict[str, Any] = {"time_limit": settings.time_limit}
    if settings.validation is not None:
        held = read_rows(InspectedTable(open_table(settings.validation), table.prepare, 0), None, terminal)
        more["eval_set"] = (Prepared(held[0]), held[1])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found: dict[str, Any] = {}
        try:
            found = _fit(model, table, settings, more, terminal)
            interrupts.hold()  # inside `try`: no moment is left in which an interrupt loses the model
        except KeyboardInterrupt as stop:
            stopped = exit_code(stop)
            if not hasattr(model, "_fitted"):
                raise fail("interrupted before a first model existed; nothing was saved.", stopped) from None
            skip_importance(model)
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
    report_fit(model, settings, terminal, estimate)
    if stopped or interrupts.stopped:
        raise fail(
            f"interrupted; saved the model after {model.n_epochs_} epochs to {settings.out}.",
            stopped or interrupts.stopped,
        )


def _fit(
    model: Any, table: InspectedTable, settings: Settings, more: dict[str, Any], terminal: Terminal
) -> dict[str, Any]:
    """Fit the model; `more`: other arguments of `fit`.

    Returns what else there is to say of a table in memory: baselines, classes of few rows.
    """
    prepare = table.prepare
    terminal.say(f"Training on {len(prepare.names)} features (Ctrl-C stops and saves the current model)")
    silent = (
        nullcontext() if terminal.shows_bars else forward_stages(terminal.say)
    )  # else verbose=1 says them
    with name_file_in_errors(table.file), silent:
        if table.fits_memory:
            X, y, weight = read_rows(table, settings.weight, terminal)
            if y.dtype.kind == "i" and len(np.unique(y)) > MANY_VALUES:
                terminal.note(
                    f"each of the {len(np.unique(y))} whole numbers of the target is a class; --regression predicts the number"
                )
            model.fit(Prepared(X, prepare), y, sample_weight=weight, **more)
            if table.is_regression:
                limited = (
                    read_training(model.training).max_seconds is not None or settings.time_limit is not None
                )
                return {
                    "estimate": None if limited else estimate_regression(model, X, y, weight, settings.seed)
                }
            return {
                "logistic_log_loss": logistic_log_loss(X, y, weight, settings.seed),
                "few_rows": _find_few(y),
            }
        if read_training(model.training).validation_fraction is not None:
            raise BadOption(
                "--validation-fraction needs a table that fits in memory, but this one is read in pieces: give a separate table, "
                'validation = "FILE" in the file of --config.'
            )
        columns = [settings.target, *([settings.weight] if settings.weight else [])]
        with (
            spool_table(table.file, prepare, columns) as path,
            explain_errors(table.file.path, (OSError, import_pyarrow().ArrowException)),
        ):
            model.fit(Arrow(path, weight=settings.weight, prepare=prepare), **more)
    return {}


def _find_few(y: Any) -> dict[str, int]:
    """Return the classes of few rows, with their numbers."""
    classes, rows = np.unique(y, return_counts=True)
    return {format_label(c): int(n) for c, n in zip(classes, rows, strict=True) if n < FEW_ROWS}
