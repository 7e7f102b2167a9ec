"""What `cavity fit` prints at its end: warnings, how good the model is, where it was saved."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.cli.evaluating import to_json
from cavity.cli.settings import Settings
from cavity.cli.terminal import Terminal, format_evidence, known_evidence
from cavity.common.object_stores import count_bytes
from cavity.common.text_tables import list_names
from cavity.estimators import GPClassifier, view_fit
from cavity.prediction.estimate import Estimate, format_loss
from cavity.report.scores import FEW_ROWS
from cavity.rows.columns.column_kinds import Group
from cavity.saving.json_checks import format_label


def report_fit(model: Any, settings: Settings, terminal: Terminal, estimate: Estimate | None) -> None:
    """Print the warnings and the result of the fit."""
    notes: Any = model.notes_
    for warning in [*notes["warnings"], *_describe_groups(model), *_find_class_warnings(model, estimate)]:
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
        f"{model.n_epochs_} epochs, {view_fit(model).evidence_name} {format_evidence(evidence)}{held}"
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
            "plan": model.plan_.summarise(),
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


def _describe_groups(model: Any) -> list[str]:
    """Say which columns identify groups of rows; only the fit knows the classes of a group."""
    return [
        f"column {column.name!r} identifies {len(column.values)} groups of rows: the classes of a group's other rows are "
        "features, too (--ignore drops the column)"
        for column in model.preparation_.columns_
        if isinstance(column, Group)
    ]


def _find_class_warnings(model: GPClassifier, estimate: Estimate | None) -> list[str]:
    """Say which classes have few rows, and which are never predicted."""
    found, few = [], getattr(model, "notes_", {}).get("few_rows", {})
    if few:
        names = list_names([f"{name!r} ({n})" for name, n in few.items()])
        found.append(f"classes with fewer than {FEW_ROWS} rows, which a model can hardly learn: {names}")
    if estimate is not None and estimate.never_predicted:
        names = list_names([repr(format_label(model.classes_[c])) for c in estimate.never_predicted])
        found.append(f"classes that are never predicted for rows of the training table: {names}")
    return found


def _format_estimate(estimate: Estimate, logistic: float | None) -> str:
    """Say how good the model is on new rows, and how good simple models are."""
    other = "" if logistic is None else f", logistic regression {format_loss(logistic)}"
    loss = format_loss(estimate.log_loss, estimate.standard_error)
    worse = logistic is not None and logistic <= estimate.log_loss - estimate.optimism
    return "\n".join(
        [
            f"Estimated on {estimate.origin}:",
            f"  log loss  {loss} (class frequencies {estimate.baseline_log_loss:.3f}{other})",
            f"  accuracy  {estimate.accuracy:.3f} (most frequent class {estimate.baseline_accuracy:.3f})",
            f"  {estimate.trust}",
            *(["  Logistic regression is no worse, and simpler: compare both on new rows."] if worse else []),
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
