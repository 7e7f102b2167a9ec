"""HTML report on a fitted model: one self-contained page without network access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cavity.common.files import write_bytes
from cavity.common.scoring import count_confusion
from cavity.errors import BadInput
from cavity.prediction.decisions import Costs
from cavity.report import sections
from cavity.report.decisions import describe_decisions
from cavity.report.findings import Findings, Model, Scored, find
from cavity.report.scores import FEW_ROWS
from cavity.report.templates import list_columns, render_report

CALIBRATED = 0.05  # largest calibration error of probabilities that can be trusted
MANY = 1000  # fewer rows cannot show a larger one


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
    costs: Costs | None = None,
    positive: Any = None,
) -> Path:
    """Write an HTML report on a fitted classifier or regressor.

    With rows X, the report shows which columns matter, how predictions depend on them,
    and which rows are uncertain. With y, it shows how good the model is.

    Parameters
    ----------
    model : GPClassifier or GPRegressor
        Fitted model.
    path : str or Path
        File to write.
    X, y : array-like, optional
        Rows of raw cells, and their labels or targets. For unbiased scores, give rows
        that were not used for training.
    title : str, optional
        Title of the page.
    row_numbers : sequence of int, optional
        Numbers of the rows on the page, by default from 0.
    note : str, optional
        A remark for the headline, such as where the rows come from.
    training_rows : bool, optional
        Whether the model was trained on these rows. The headline then says so, and
        gives the estimate for new rows.
    costs : cavity.Costs, optional
        What errors of a classifier cost: the page then has a section on decisions.
    positive : label, optional
        Class of a classifier that the curves show. By default the class of the
        threshold of `costs`, or the rarer of two classes.

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
    >>> training = Training(tol=1.0)
    >>> clf = GPClassifier("sep", n_inducing=5, training=training, random_state=0)
    >>> clf = clf.fit(X[::2], y[::2])
    >>> file = f"{tempfile.mkdtemp()}/report.html"
    >>> path = report.write_report(clf, file, X[1::2], y[1::2])
    """
    if X is None and y is not None:
        raise BadInput("labels y were given without rows X: give both or neither.")

    if positive is None and costs is not None:
        positive = costs.positive
    found = find(model, X, y, positive)
    decisions = describe_decisions(found, costs)
    page = make_page(
        found, title, row_numbers, note, training_rows, decisions=decisions
    )
    write_bytes(path, page.encode())
    return Path(path)


def make_page(
    found: Findings,
    title: str,
    row_numbers: Any,
    note: str,
    training_rows: bool,
    *,
    decisions: dict[str, Any],
) -> str:
    """Render the page; its content is listed in the order of the sections."""
    model = found.model
    plan = found.fit.plan  # None in files of other versions
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
        decisions=decisions,
        trust=sections.draw_trust(found),
        dependences=sections.draw_dependences(found),
        rows=sections.list_rows(found, row_numbers),
        quality=sections.describe_data(found),
        members=sections.list_members(found),
        plan=None if plan is None else plan.choices,
        facts=sections.describe_model(model),
    )


def find_lead(found: Findings) -> dict[str, Any]:
    """Find the verdict, the columns that matter most, and where the model fails."""
    lead: dict[str, Any] = {"verdict": None, "best": []}
    if found.ranking is not None:
        places, values, errors, _ = found.ranking
        errors = errors or [0.0] * len(values)
        clear = [
            found.columns[j]
            for j, value, error in zip(places, values, errors, strict=True)
            if value > max(0.01, 2 * error)
        ]
        lead["best"] = clear[:3]

    scored = found.judged
    if scored is None:
        return lead
    if not found.classes:
        return lead | {"verdict": judge_numbers(scored)}

    counts: Any = found.fit.class_prior
    if counts is None:
        counts = np.bincount(scored.truth, minlength=len(found.classes))
    return lead | {
        "verdict": judge_classes(scored),
        "frequent": found.classes[int(counts.argmax())],
        "calibration": describe_calibration(scored),
        "failures": describe_failures(scored, found.classes),
    }


def judge_classes(scored: Scored) -> tuple[str, str]:
    """Compare the log loss with class frequencies, the error with the frequent class."""
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
        return "good", "Much better than the mean"

    return "fair", "Better than the mean"


def describe_calibration(scored: Scored) -> str:
    said = float(np.exp(scored.outcome.max(1)).mean())
    right = 1 - scored.scores["error"]
    low, high = (1 - end for end in reversed(scored.ranges["error"]))
    promise = f"promise {said:.1%} right answers, and {right:.1%} are."
    if not low <= said <= high:
        trait = "too sure" if said > right else "not sure enough"
        return f"It is {trait} of itself: its probabilities {promise}"

    ece = scored.scores["ece"]
    if ece > CALIBRATED and len(scored.outcome) >= MANY:
        return (
            f"Take single probabilities with care: they are off by {100 * ece:.0f} "
            f"points on average, in both directions."
        )

    return (
        f"Its probabilities can be trusted, as far as these rows tell: they {promise}"
    )


def describe_failures(scored: Scored, classes: list[str]) -> str:
    confusion = count_confusion(scored.truth, scored.outcome.argmax(1), len(classes))
    rows = confusion.sum(1)
    missed = rows - confusion.diagonal()
    if not missed.any():
        return "It makes no error on these rows."

    share = missed / np.maximum(rows, 1)
    if (rows >= FEW_ROWS).any():
        share[rows < FEW_ROWS] = -1.0
    c = int(share.argmax())
    others = confusion[c].copy()
    others[c] = 0
    plural = "" if rows[c] == 1 else "s"
    verb = "is" if missed[c] == 1 else "are"
    text = (
        f"It fails most often on {classes[c]}: {missed[c]} of {rows[c]:,} row{plural} "
        f"{verb} missed"
    )
    if 2 * others.max() > missed[c]:
        mostly = "" if others.max() == missed[c] else "mostly "
        text += f", {mostly}taken for {classes[others.argmax()]}"
    text += "."
    never = [classes[k] for k in np.flatnonzero((rows > 0) & ~confusion.any(0))]
    if never:
        text += f" Never predicted: {list_columns(never)}."
    return text
