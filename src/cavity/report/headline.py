"""The headline of the report, in words: what the model predicts, how well, against which baseline, and where it fails."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cavity.common.scoring import count_confusion
from cavity.common.text_tables import list_names, shorten
from cavity.explain.raw_rows import find_columns
from cavity.prediction.estimate import format_loss
from cavity.report.findings import Findings, Scored
from cavity.report.scores import FEW_ROWS
from cavity.report.svg import format_number

MAX_NAMES = 6
CALIBRATED = 0.05  # expected calibration error of probabilities that can be trusted
MANY = 1000  # rows from which on a larger one means something
NAME_WIDTH = 40


def list_columns(names: list[str]) -> str:
    """Join names of columns or classes; long ones are cut, and those with a comma quoted."""
    short = [shorten(name or "(no name)", NAME_WIDTH) for name in names]
    return list_names([f"“{name}”" if "," in name else name for name in short], MAX_NAMES)


def write_lead(found: Findings, note: str, seen: bool) -> dict[str, Any]:
    """Write the headline: a verdict, sentences, main numbers, and a note of caution; `seen`: rows of the training file."""
    scored = found.judged
    lead: dict[str, Any] = {"verdict": None, "sentences": [describe_task(found)], "tiles": []}
    if scored is None:
        estimate = getattr(found.model, "estimate_", None)
        lead["sentences"] += [] if estimate is None else describe_estimate(estimate)
    elif found.classes:
        lead["sentences"] += describe_classes(found, scored, seen)
        lead |= {"verdict": judge_classes(scored), "tiles": tile_classes(scored)}
    else:
        lead["sentences"] += describe_numbers(found, scored)
        lead |= {"verdict": judge_numbers(scored), "tiles": tile_numbers(scored)}
    return lead | {"note": " ".join([note, *(describe_training_rows(found.model) if seen else [])]).strip()}


def describe_task(found: Findings) -> str:
    """Say what is predicted from what, and which columns matter most."""
    about = "a number, {:.4g} ± {:.3g} in the training rows".format(*found.fit.units)
    if found.classes:
        n = len(found.classes)
        about = f"{n:,} class{'es' * (n > 1)}: {list_columns(found.classes)}"
    used = len(set(find_columns(found.fit.features)[1].tolist()))
    part = "" if used == len(found.columns) else f"{used} of "
    text = f"The model predicts {found.target} ({about}) from {part}{count(len(found.columns), 'column')}."
    if found.ranking is not None:
        places, values, errors, _ = found.ranking
        known = zip(places, values, errors or [0.0] * len(values), strict=True)
        best = [found.columns[j] for j, value, error in known if value > max(0.01, 2 * error)][:3]
        if best:
            text += f" What matters most: {list_columns(best)}."
    return text


def count(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def judge_classes(scored: Scored) -> tuple[str, str]:
    """Compare the log loss with that of class frequencies, and the error with that of the most frequent class."""
    if not scored.ranges["nll"][1] < scored.plain["nll"]:
        return "bad", "Not shown to be better than guessing"
    if scored.ranges["error"][1] < 0.5 * scored.plain["error"]:
        return "good", "Much better than guessing"
    return "fair", "Better than guessing"


def describe_classes(found: Findings, scored: Scored, training_rows: bool) -> list[str]:
    """Say how good a classifier is, whether its probabilities can be trusted, and where it fails.

    Training rows cannot tell whether probabilities can be trusted: these are calibrated for new rows.
    """
    s, (low, high), classes = scored.scores, _find_accuracy_interval(scored), found.classes
    counts = getattr(found.model, "class_prior_", None)
    counts = np.bincount(scored.truth, minlength=len(classes)) if counts is None else counts
    frequent = classes[int(counts.argmax())]
    return [
        f"On {count(len(scored.truth), 'row')}, it is right for {1 - s['error']:.1%} "
        f"(95 % interval {low:.1%} to {high:.1%}). "
        f"Always guessing {frequent}, the most frequent class, is right for {1 - scored.plain['error']:.1%}.",
        *([] if training_rows else [_describe_calibration(scored)]),
        _describe_failures(scored, classes),
    ]


def _find_accuracy_interval(scored: Scored) -> tuple[float, float]:
    low, high = scored.ranges["error"]
    return 1 - high, 1 - low


def _describe_calibration(scored: Scored) -> str:
    said, ece = float(np.exp(scored.outcome.max(1)).mean()), scored.scores["ece"]
    right = 1 - scored.scores["error"]
    low, high = _find_accuracy_interval(scored)
    promise = f"promise {said:.1%} right answers, and {right:.1%} are."
    if not low <= said <= high:
        return f"It is {'too sure' if said > right else 'not sure enough'} of itself: its probabilities {promise}"
    if ece > CALIBRATED and len(scored.outcome) >= MANY:
        return f"Take single probabilities with care: they are off by {100 * ece:.0f} points on average, in both directions."
    return f"Its probabilities can be trusted, as far as these rows tell: they {promise}"


def _describe_failures(scored: Scored, classes: list[str]) -> str:
    predicted, n = scored.outcome.argmax(1), len(classes)
    confusion = count_confusion(scored.truth, predicted, n)
    rows, hits = confusion.sum(1), confusion.diagonal()
    if hits.sum() == rows.sum():
        return "It makes no error on these rows."
    miss = np.where(rows > 0, (rows - hits) / np.maximum(rows, 1), 0.0)
    enough = np.where(rows >= FEW_ROWS, miss, -1.0) if (rows >= FEW_ROWS).any() else miss
    c = int(enough.argmax())
    others = confusion[c] - np.where(np.arange(n) == c, confusion[c], 0)
    missed = f"{rows[c] - hits[c]} of {count(int(rows[c]), 'row')}"
    text = f"It fails most often on {classes[c]}: {missed} are missed"
    text += f", mostly taken for {classes[int(others.argmax())]}." if others.any() else "."
    never = [classes[k] for k in np.flatnonzero((rows > 0) & (confusion.sum(0) == 0))]
    return text + (f" Never predicted: {list_columns(never)}." if never else "")


def tile_classes(scored: Scored) -> list[tuple[str, str, str]]:
    s, plain = scored.scores, scored.plain
    return [
        ("Accuracy", f"{1 - s['error']:.1%}", f"guessing: {1 - plain['error']:.1%}"),
        ("Log loss, nats per row", format_loss(s["nll"]), f"class frequencies: {plain['nll']:.3f}"),
        ("Calibration error", f"{s['ece']:.3f}", "0 is best"),
        ("AUC, mean over classes", f"{s['auc']:.3f}", "guessing: 0.5"),
        ("Rows", f"{len(scored.truth):,}", "scored here"),
    ]


def describe_estimate(estimate: Any) -> list[str]:
    """Say how good a model should be on new rows, from its own training."""
    return [
        f"Estimated at training, from {estimate.origin}: it is right for {estimate.accuracy:.1%} "
        f"of new rows (the most frequent class: {estimate.baseline_accuracy:.1%}), with a log loss of "
        f"{format_loss(estimate.log_loss, estimate.standard_error)} nats (class frequencies: {estimate.baseline_log_loss:.3f}).",
        *([] if estimate.verdict is None else [f"Beware: {estimate.verdict}"]),
    ]


def describe_training_rows(model: Any) -> list[str]:
    """Say that scores of training rows are too good, and how good the model is on new rows."""
    estimate, errors = getattr(model, "estimate_", None), getattr(model, "notes_", {}).get("estimate")
    return [
        "These rows are those of the training file, so the scores are too good. Give rows that the model has not seen.",
        *([] if estimate is None else describe_estimate(estimate)),
        *([] if errors is None else describe_errors(errors)),
    ]


def describe_errors(estimate: dict[str, Any]) -> list[str]:
    """Say how far off a regressor should be on new rows, from one more fit at training."""
    return [
        f"Estimated at training, from {estimate['rows']:,} rows held out of one more fit: predictions for new rows are off by "
        f"{estimate['rmse']:.4g} (root mean square; the mean of the target: {estimate['baseline']['rmse']:.4g}), and "
        f"{estimate['coverage']:.1%} of these rows are within their 95 % interval."
    ]


def judge_numbers(scored: Scored) -> tuple[str, str]:
    """Compare the error with that of the training rows' mean."""
    ratio = scored.ranges["rmse"][1] / scored.plain["rmse"]
    if not ratio < 1:
        return "bad", "Not shown to be better than the mean"
    return ("good", "Much better than the mean") if ratio < 0.5 else ("fair", "Better than the mean")


def describe_numbers(found: Findings, scored: Scored) -> list[str]:
    """Say how good a regressor is, whether its intervals can be trusted, and where it fails."""
    s, (low, high) = scored.scores, scored.ranges["rmse"]
    inside = s["coverage"]
    width = "too few" if inside < 0.95 else "more than they should"
    width = "as they should" if abs(inside - 0.95) <= 0.03 else width
    return [
        f"On {count(len(scored.truth), 'row')}, its predictions are off by {format_number(s['rmse'], 3)} (root mean square; "
        f"95 % interval {format_number(low, 3)} to {format_number(high, 3)}). Always guessing the mean of the training "
        f"rows is off by {format_number(scored.plain['rmse'], 3)}.",
        f"It explains {s['r2']:.0%} of the variance of {found.target} in these rows. "
        f"Its 95 % intervals hold {inside:.0%} of them, {width}.",
        _describe_worst_range(scored),
    ]


def _describe_worst_range(scored: Scored) -> str:
    mean = scored.outcome[:, 0]
    if len(mean) < 4 * FEW_ROWS:
        return ""
    edges, square = np.quantile(mean, [0, 0.25, 0.5, 0.75, 1]), (scored.truth - mean) ** 2
    part = np.clip(np.searchsorted(edges, mean, side="right") - 1, 0, 3)
    error = [math.sqrt(square[part == k].mean()) if (part == k).any() else 0 for k in range(4)]
    k = int(np.argmax(error))
    rest = math.sqrt(square[part != k].mean())
    ends = (format_number(e, 3) for e in edges[k : k + 2])
    return f"Errors are largest where it predicts {' to '.join(ends)}: {error[k]:.3g}, against {rest:.3g} elsewhere."


def tile_numbers(scored: Scored) -> list[tuple[str, str, str]]:
    s, plain = scored.scores, scored.plain
    return [
        ("Root mean squared error", f"{s['rmse']:.4g}", f"the mean: {plain['rmse']:.4g}"),
        ("Mean absolute error", f"{s['mae']:.4g}", f"the mean: {plain['mae']:.4g}"),
        ("Variance explained, R²", f"{s['r2']:.1%}", "100 % is best"),
        ("Rows within their 95 % interval", f"{s['coverage']:.1%}", "should be 95 %"),
        ("Rows", f"{len(scored.truth):,}", "scored here"),
    ]
