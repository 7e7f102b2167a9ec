"""The headline of the report: how well the model predicts, against which baseline, and where it fails."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.common.scoring import count_confusion
from cavity.report.findings import Findings, Scored
from cavity.report.scores import FEW_ROWS
from cavity.report.templates import list_columns

CALIBRATED = 0.05  # expected calibration error of probabilities that can be trusted
MANY = 1000  # rows from which on a larger one means something


def find_lead(found: Findings) -> dict[str, Any]:
    """Find the verdict, the columns that matter most, and where the model fails."""
    lead: dict[str, Any] = {"verdict": None, "best": []}
    if found.ranking is not None:
        places, values, errors = found.ranking
        known = zip(places, values, errors or [0.0] * len(values), strict=True)
        lead["best"] = [found.columns[j] for j, value, error in known if value > max(0.01, 2 * error)][:3]
    scored = found.judged
    if scored is None:
        return lead
    if not found.classes:
        return lead | {"verdict": judge_numbers(scored)}
    prior = found.fit.class_prior
    counts = np.bincount(scored.truth, minlength=len(found.classes)) if prior is None else prior
    return lead | {
        "verdict": judge_classes(scored),
        "frequent": found.classes[int(counts.argmax())],
        "calibration": describe_calibration(scored),
        "failures": describe_failures(scored, found.classes),
    }


def judge_classes(scored: Scored) -> tuple[str, str]:
    """Compare the log loss with that of class frequencies, and the error with that of the most frequent class."""
    if not scored.ranges["nll"][1] < scored.plain["nll"]:
        return "bad", "Not shown to be better than guessing"
    if scored.ranges["error"][1] < 0.5 * scored.plain["error"]:
        return "good", "Much better than guessing"
    return "fair", "Better than guessing"


def judge_numbers(scored: Scored) -> tuple[str, str]:
    ratio = scored.ranges["rmse"][1] / scored.plain["rmse"]
    if not ratio < 1:
        return "bad", "Not shown to be better than the mean"
    return ("good", "Much better than the mean") if ratio < 0.5 else ("fair", "Better than the mean")


def describe_calibration(scored: Scored) -> str:
    said, ece = float(np.exp(scored.outcome.max(1)).mean()), scored.scores["ece"]
    right = 1 - scored.scores["error"]
    low, high = (1 - end for end in reversed(scored.ranges["error"]))
    promise = f"promise {said:.1%} right answers, and {right:.1%} are."
    if not low <= said <= high:
        return f"It is {'too sure' if said > right else 'not sure enough'} of itself: its probabilities {promise}"
    if ece > CALIBRATED and len(scored.outcome) >= MANY:
        return f"Take single probabilities with care: they are off by {100 * ece:.0f} points on average, in both directions."
    return f"Its probabilities can be trusted, as far as these rows tell: they {promise}"


def describe_failures(scored: Scored, classes: list[str]) -> str:
    predicted, n = scored.outcome.argmax(1), len(classes)
    confusion = count_confusion(scored.truth, predicted, n)
    rows, hits = confusion.sum(1), confusion.diagonal()
    if hits.sum() == rows.sum():
        return "It makes no error on these rows."
    miss = np.where(rows > 0, (rows - hits) / np.maximum(rows, 1), 0.0)
    enough = np.where(rows >= FEW_ROWS, miss, -1.0) if (rows >= FEW_ROWS).any() else miss
    c = int(enough.argmax())
    others = confusion[c] - np.where(np.arange(n) == c, confusion[c], 0)
    missed = f"{rows[c] - hits[c]} of {rows[c]:,} row{'' if rows[c] == 1 else 's'}"
    text = f"It fails most often on {classes[c]}: {missed} are missed"
    mostly = 2 * others.max() > others.sum()
    text += f", mostly taken for {classes[int(others.argmax())]}." if mostly else "."
    never = [classes[k] for k in np.flatnonzero((rows > 0) & (confusion.sum(0) == 0))]
    return text + (f" Never predicted: {list_columns(never)}." if never else "")
