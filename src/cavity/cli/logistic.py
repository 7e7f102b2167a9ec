"""What commands say of logistic regression, the simpler model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cavity.prediction.estimate import Estimate, format_loss
from cavity.prediction.target_estimate import TargetEstimate

LOSS = "logistic_log_loss"  # in the notes of a model
ROWS = "logistic_rows"
NOT_COMPARED = "Logistic regression was not compared: {}."


def compare_logistic(notes: Mapping[str, Any], estimate: Estimate | None) -> str:
    """Return the log loss of logistic regression, or why there is none.

    `notes`: of a model that `cavity fit` made.
    """
    loss = notes.get(LOSS)
    if loss is None:
        return NOT_COMPARED.format(_find_reason(notes))

    of = ""
    if notes[ROWS] < notes["rows"] - notes["unlabelled"]:
        of = f" on a random sample of {notes[ROWS]} rows"
    simpler = ""
    if estimate is not None and loss <= estimate.log_loss:
        simpler = ", at least as good, and simpler: compare both on new rows"
    return f"Logistic regression has a log loss of {format_loss(loss)}{of}{simpler}."


def recall_logistic(
    notes: Mapping[str, Any], estimate: Estimate | TargetEstimate | None
) -> str:
    """Return the comparison of the fit, for rows that came later."""
    loss = notes.get(LOSS)
    if loss is None:
        return NOT_COMPARED.format(_find_reason(notes))

    own = ""
    if isinstance(estimate, Estimate):
        own = f", the model {format_loss(estimate.log_loss)}"
    return (
        "On held-out rows of the training table, logistic regression had a log loss of "
        f"{format_loss(loss)}{own}."
    )


def _find_reason(notes: Mapping[str, Any]) -> str:
    if "rows" not in notes:
        return "`cavity fit` does it, but the model was fitted in Python"
    if notes.get("interrupted"):
        return "the fit was interrupted"
    if LOSS not in notes:
        return "the table did not fit in memory"

    return "no time was left, or a class had too few rows for folds"
