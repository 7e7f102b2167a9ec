"""HTML report on a fitted model: one self-contained page without network access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cavity.common.files import write_bytes
from cavity.common.scoring import count_confusion
from cavity.errors import BadInput
from cavity.report import sections
from cavity.report.findings import Findings, Model, Scored, find
from cavity.report.scores import FEW_ROWS
from cavity.report.templates import list_columns, render_report

CALIBRATED = 0.05  # expected calibration error of probabilities that can be trusted
MANY = 1000  # rows from which on a larger one means something


def write_report(
    model: Model,
    path: str | Path,
    X: Any = None,
    y: Any = None,
    *,
    title: str = "",
    row_numbers: Any = None,
    note: str = "",
    training_rows: bool = False,
) -> Path:
    """Write an HTML report on a fitted classifier or regressor.

    Rows X add what matters, how predictions depend on columns, and which rows are
    uncertain; y, how good the model is.

    Parameters
    ----------
    model : GPClassifier or GPRegressor
        Fitted model.
    path : str or Path
        File to write.
    X, y : array-like, optional
        Rows, raw cells as they are, and their labels or targets. For unbiased scores,
        give rows that were not used for training.
    title : str, optional
        Title of the page.
    row_numbers : sequence of int, optional
        What the page calls the rows, by default their numbers from 0.
    note : str, optional
        A remark for the headline, such as where the rows come from.
    training_rows : bool, optional
        Whether the model was trained on these rows: the headline then says so, and
        gives the estimate for new rows.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, Training, report
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier("sep", n_inducing=5, training=Training(tol=1.0), random_state=0).fit(X[::2], y[::2])
    >>> path = report.write_report(clf, f"{tempfile.mkdtemp()}/report.html", X[1::2], y[1::2])
    """
    if X is None and y is not None:
        raise BadInput("labels y were given without rows X: give both or neither.")
    write_bytes(
        path,
        make_page(find(model, X, y), title, row_numbers, note, training_rows).encode(),
    )
    return Path(path)


def make_page(
    found: Findings, title: str, row_numbers: Any, note: str, training_rows: bool
) -> str:
    """Return the page: what the template says, in the order of its sections."""
    # files of other versions have no plan
    model = found.model
    plan = found.fit.plan
    return render_report(
        found=found,
        title=title or f"Report on a model of {found.target}",
        note=note,
        seen=training_rows,
        lead=find_lead(found),
        notes=getattr(model, "notes_", {}),
        estimate=getattr(model, "estimate_", None),
        warnings=model.fit_warnings_,
        classes=sections.describe_classes(found),
        few_rows=FEW_ROWS,
        trust=sections.draw_trust(found),
        dependences=sections.draw_dependences(found),
        rows=sections.list_rows(found, row_numbers),
        quality=sections.describe_data(found),
        plan=None if plan is None else plan.choices,
        facts=sections.describe_model(model),
    )


def find_lead(found: Findings) -> dict[str, Any]:
    """Find the verdict, the columns that matter most, and where the model fails."""
    lead: dict[str, Any] = {"verdict": None, "best": []}
    if found.ranking is not None:
        places, values, errors = found.ranking
        known = zip(places, values, errors or [0.0] * len(values), strict=True)
        lead["best"] = [
            found.columns[j]
            for j, value, error in known
            if value > max(0.01, 2 * error)
        ][:3]
    scored = found.judged
    if scored is None or not found.classes:
        if scored is None:
            return lead
        return lead | {"verdict": judge_numbers(scored)}
    prior = found.fit.class_prior
    if prior is None:
        counts: Any = np.bincount(scored.truth, minlength=len(found.classes))
    else:
        counts = prior
    return lead | {
        "verdict": judge_classes(scored),
        "frequent": found.classes[int(counts.argmax())],
        "calibration": describe_calibration(scored),
        "failures": describe_failures(scored, found.classes),
    }


def judge_classes(scored: Scored) -> tuple[str, str]:
    """Compare the log loss with that of class frequencies, and the error with that of
    the most frequent class.
    """
    if not scored.ranges["nll"][1] < scored.plain["nll"]:
        return "bad", "Not shown to be better than guessing"
    if scored.ranges["error"][1] < 0.5 * scored.plain["error"]:
        return "good", "Much better than guessing"
    return "fair", "Better than guessing"


def judge_numbers(scored: Scored) -> tuple[str, str]:
    ratio = scored.ranges["rmse"][1] / scored.plain["rmse"]
    if not ratio < 1:
        return "bad", "Not shown to be better than the mean"
    if ratio < 0.5:
        return ("good", "Much better than the mean")
    return ("fair", "Better than the mean")


def describe_calibration(scored: Scored) -> str:
    said = float(np.exp(scored.outcome.max(1)).mean())
    ece = scored.scores["ece"]
    right = 1 - scored.scores["error"]
    low, high = (1 - end for end in reversed(scored.ranges["error"]))
    promise = f"promise {said:.1%} right answers, and {right:.1%} are."
    if not low <= said <= high:
        return f"It is {'too sure' if said > right else 'not sure enough'} of itself: its probabilities {promise}"
    if ece > CALIBRATED and len(scored.outcome) >= MANY:
        return f"Take single probabilities with care: they are off by {100 * ece:.0f} points on average, in both directions."
    return (
        f"Its probabilities can be trusted, as far as these rows tell: they {promise}"
    )


def describe_failures(scored: Scored, classes: list[str]) -> str:
    predicted = scored.outcome.argmax(1)
    n = len(classes)
    confusion = count_confusion(scored.truth, predicted, n)
    rows = confusion.sum(1)
    hits = confusion.diagonal()
    if hits.sum() == rows.sum():
        return "It makes no error on these rows."
    miss = np.where(rows > 0, (rows - hits) / np.maximum(rows, 1), 0.0)
    if (rows >= FEW_ROWS).any():
        enough = np.where(rows >= FEW_ROWS, miss, -1.0)
    else:
        enough = miss
    c = int(enough.argmax())
    others = np.where(np.arange(n) == c, 0, confusion[c])
    missed = f"{others.sum()} of {rows[c]:,} row{'' if rows[c] == 1 else 's'}"
    mostly = ""
    if 2 * others.max() > others.sum():
        mostly = f", mostly taken for {classes[others.argmax()]}"
    text = f"It fails most often on {classes[c]}: {missed} are missed{mostly}."
    never = [classes[k] for k in np.flatnonzero((rows > 0) & (confusion.sum(0) == 0))]
    return text + (f" Never predicted: {list_columns(never)}." if never else "")
