"""HTML report on a fitted model: one self-contained page without network access; all text is escaped."""

from __future__ import annotations

import base64
import hashlib
import re
import warnings
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cavity import persist
from cavity._version import __version__
from cavity.errors import BadInput
from cavity.estimators import GPClassifier
from cavity.intake.frames import Prepared
from cavity.intake.validation import check_rows
from cavity.report import model_card
from cavity.report.figures import ReportFigure, draw_figures
from cavity.report.model_card import Facts, Predictions
from cavity.report.style import SCRIPT, STYLE

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
SHOWN_COLUMNS = 6  # columns of X in the table of rows


def write_report(
    clf: GPClassifier, path: str | Path, X: Any = None, y: Any = None, *, names: Any = None, title: str = ""
) -> Path:
    """Write an HTML report on a fitted classifier.

    Without X, the report has the model card, the learning curve, feature relevance and warnings. With X, it adds
    predictions and, with y, scores. It needs matplotlib: `pip install "cavity[plot]"`.

    Parameters
    ----------
    clf : GPClassifier
        Fitted classifier.
    path : str or Path
        File to write.
    X : array-like of shape (n, D), optional
        Rows to predict. For honest scores, give rows that were not used for training.
    y : array-like of shape (n,), optional
        Labels of the rows.
    names : sequence of str, optional
        Names of the columns, by default those of X or of the fit.
    title : str, optional
        Title of the page.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, report
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier("sep", n_inducing=5, tol=1.0, random_state=0).fit(X[::2], y[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report.write_report(clf, Path(folder) / "report.html", X[1::2], y[1::2])
    ...     path.name
    'report.html'
    """
    text = render_page(clf, X, y, names=names, title=title)
    persist.write_bytes(path, text.encode())
    return Path(path)


def render_page(
    clf: GPClassifier, X: Any = None, y: Any = None, *, names: Any = None, title: str = ""
) -> str:
    """Render the report as text."""
    about = model_card.describe_model(clf)
    columns = model_card.find_column_names(clf, X, names)
    if len(columns) != clf._features().n:
        raise BadInput(
            f"names has {len(columns)} entries, but X has {clf._features().n} columns: give one name per column."
        )
    predictions = predict_rows(clf, X, y)
    with warnings.catch_warnings():  # predict_rows has checked the names of the columns; arrays have none
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # a name with letters that the font lacks
        figures = {figure.name: figure for figure in draw_figures(clf, predictions, columns)}
        certain = _render_rows(clf, predictions, columns)
    sections = [
        ("warnings", "Warnings", render_warnings(model_card.list_warnings(clf))),
        ("model", "Model card", render_facts(about, "Properties of the model")),
        ("data", "Data", _render_data(clf, predictions, columns)),
        ("columns", "How columns are used", render_preparation(clf)),
        ("learning", "Learning curve", _render_figure(figures.get("learning"))),
        (
            "calibration",
            "Calibration",
            _render_figure(figures.get("calibration")) + _render_figure(figures.get("rejection")),
        ),
        ("confusion", "Confusion matrix", _render_figure(figures.get("confusion"))),
        ("regions", "Decision regions", _render_figure(figures.get("regions"))),
        ("rows", "Most and least certain rows", certain),
        ("relevance", "Feature relevance", _render_figure(figures.get("relevance"))),
    ]
    return render_document(title or f"Report on a model of {len(clf.classes_)} classes", sections)


def predict_rows(clf: GPClassifier, X: Any, y: Any) -> Predictions | None:
    """Predict the rows, and encode their labels."""
    if X is None:
        if y is not None:
            raise BadInput("labels y were given without rows X: give both or neither.")
        return None
    rows = check_rows(X, clf._features())
    P = clf.predict_proba(Prepared(rows))
    predicted = np.asarray(clf.classes_[P.argmax(1)])
    if y is None:
        return Predictions(rows, P, predicted, None, None)
    labels = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if labels.shape != (len(rows),):
        raise BadInput(f"X has {len(rows)} rows and y has shape {labels.shape}: give one label per row.")
    codes = {label: k for k, label in enumerate(clf.classes_.tolist())}
    unknown = [label for label in labels.tolist() if label not in codes]
    if unknown:
        raise BadInput(
            f"y has the label {str(unknown[0])!r}, which is not a class of the model ({str(list(codes)[:20])[1:-1]})."
        )
    found = np.array([codes[label] for label in labels.tolist()], dtype=np.int64)
    return Predictions(rows, P, predicted, np.asarray(clf.classes_[found]), found)


def escape_text(value: Any) -> str:
    """Convert a value to text and escape it for HTML."""
    return escape(_CONTROL.sub("\ufffd", str(value)), quote=True)


def render_document(title: str, sections: list[tuple[str, str, str]]) -> str:
    """Render the page from sections: name, heading, HTML."""
    present = [section for section in sections if section[2]]
    links = "".join(f'<li><a href="#{name}">{escape_text(head)}</a></li>' for name, head, _ in present)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{escape_text(head)}</h2>{inside}</section>\n'
        for name, head, inside in present
    )
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n<title>{escape_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n'
        f'<a class="skip" href="#content">Skip to the content</a>\n<header><h1>{escape_text(title)}</h1></header>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main id="content">\n{body}</main>\n'
        f"<footer><p>Written by cavity {escape_text(__version__)}. This page works offline and sends no data.</p></footer>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def render_warnings(messages: list[str]) -> str:
    """Render the warnings of a fit."""
    if not messages:
        return "<p>The fit gave no warnings.</p>"
    return '<ul class="warnings">' + "".join(f"<li>{escape_text(m)}</li>" for m in messages) + "</ul>"


def render_facts(facts: Facts, caption: str) -> str:
    """Render pairs of texts as a table."""
    rows = "".join(
        f'<tr><th scope="row">{escape_text(k)}</th><td>{escape_text(v)}</td></tr>' for k, v in facts
    )
    return _render_scrolling(caption, f"<tbody>{rows}</tbody>", "facts")


def _render_scrolling(caption: str, inside: str, kind: str = "") -> str:
    """Render a table that can be scrolled sideways on a narrow screen, also with the keyboard."""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape_text(caption)}"><table class="{kind}">'
        f"<caption>{escape_text(caption)}</caption>{inside}</table></div>"
    )


def render_table(caption: str, head: list[str], rows: list[list[str]], total: int) -> str:
    """Render a table, and how many of `total` rows it leaves out."""
    names = "".join(f'<th scope="col">{escape_text(name)}</th>' for name in head)
    cells = "".join(
        f'<tr><th scope="row">{escape_text(row[0])}</th>'
        + "".join(f"<td>{escape_text(v)}</td>" for v in row[1:])
        + "</tr>"
        for row in rows
    )
    more = f"<p>and {total - len(rows)} more.</p>" if total > len(rows) else ""
    return (
        _render_scrolling(caption, f"<thead><tr>{names}</tr></thead><tbody>{cells}</tbody>", "numbers") + more
    )


def _render_data(clf: GPClassifier, predictions: Predictions | None, names: list[str]) -> str:
    if predictions is None:
        return ""
    n, D = predictions.X.shape
    size: Facts = [("Rows", f"{n}"), ("Columns", f"{D}"), ("Classes of the model", f"{len(clf.classes_)}")]
    classes = ["Class", *(["True rows"] if predictions.y is not None else []), "Predicted rows"]
    columns = ["Column", "Minimum", "Mean", "Maximum", "Standard deviation"]
    return (
        render_facts([*size, *model_card.compute_scores(predictions)], "Size of the data, and scores")
        + render_table(
            "Rows per class", classes, model_card.count_classes(clf, predictions), len(clf.classes_)
        )
        + render_table("Columns", columns, model_card.summarise_columns(predictions.X, names), D)
    )


def render_preparation(clf: Any) -> str:
    """Render how the columns of a table are used."""
    prepare = clf._features().preparation
    if prepare is None:
        return ""
    return render_facts(
        [(name or "(no name)", how) for name, how in prepare.describe()], "Columns of the table"
    )


def _render_figure(figure: ReportFigure | None) -> str:
    if figure is None:
        return ""
    return (
        f'<figure id="figure-{figure.name}"><picture><source media="(prefers-color-scheme: dark)" srcset="{figure.dark}">'
        f'<img src="{figure.light}" alt="{escape_text(figure.alt)}"></picture>'
        f"<figcaption>{escape_text(figure.caption)}</figcaption></figure>"
    )


def _render_rows(clf: GPClassifier, predictions: Predictions | None, names: list[str]) -> str:
    """Render the table of rows with its filter, which is hidden if scripts are disabled."""
    if predictions is None:
        return ""
    least, most = model_card.find_extremes(predictions)
    shown = np.concatenate([least, most])
    parts = clf.predict_uncertainty(Prepared(predictions.X[shown]))
    head = ["Row", "Group", "Predicted", "Probability"] + (
        ["True", "Right"] if predictions.y is not None else []
    )
    head += ["Total (nats)", "Aleatoric", "Epistemic", *names[:SHOWN_COLUMNS]]
    rows = []
    for k, n in enumerate(shown):
        row = [f"{n}", "least certain" if k < len(least) else "most certain", f"{predictions.predicted[n]}"]
        row.append(f"{predictions.P[n].max():.4f}")
        if predictions.y is not None:
            row += [
                f"{predictions.y[n]}",
                "right" if predictions.y[n] == predictions.predicted[n] else "wrong",
            ]
        row += [f"{part[k]:.4f}" for part in parts]
        rows.append([*row, *(f"{value:.4g}" for value in predictions.X[n, :SHOWN_COLUMNS])])
    table = render_table("Most and least certain rows", head, rows, 0).replace(
        "<table", '<table id="certain"', 1
    )
    return (
        '<form class="filter" id="filter-form" hidden><label for="filter">Filter the rows</label>'
        '<input type="search" id="filter" autocomplete="off" placeholder="a class, wrong, least …" aria-controls="certain">'
        f'<output id="filter-count" for="filter" role="status">{len(rows)} of {len(rows)} rows</output></form>{table}'
    )
