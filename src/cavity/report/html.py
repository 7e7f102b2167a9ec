"""One self-contained page about a fitted model: no network, no scripts but its own filter, everything escaped."""

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
from cavity.report import card
from cavity.report.card import Facts, Judged
from cavity.report.figures import Picture, pictures
from cavity.report.look import SCRIPT, STYLE

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
SHOWN_COLUMNS = 6  # of a row, in the table of rows


def write_report(
    clf: Any, path: str | Path, X: Any = None, y: Any = None, *, names: Any = None, title: str = ""
) -> Path:
    """Write the page about a fitted GPClassifier to `path`, with what it makes of rows X (n, D) and of their labels y (n,).

    Without rows: model card, learning curve, relevance, warnings. For honest scores give rows that the model has not
    seen. `names` are those of the columns, by default the table's own. matplotlib is needed: `pip install cavity[plot]`.
    """
    text = page(clf, X, y, names=names, title=title)
    persist.write_bytes(path, text.encode())
    return Path(path)


def page(clf: Any, X: Any = None, y: Any = None, *, names: Any = None, title: str = "") -> str:
    """The page as text."""
    about = card.model(clf)
    columns = card.column_names(clf, X, names)
    if len(columns) != clf.n_features_in_:
        raise BadInput(f"names has {len(columns)} entries for {clf.n_features_in_} columns: give one each.")
    judged = judge(clf, X, y)
    with (
        warnings.catch_warnings()
    ):  # the rows were checked against the names of fit; from here on they are numbers
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in letters that the font lacks
        figures = {picture.name: picture for picture in pictures(clf, judged, columns)}
        certain = _rows(clf, judged, columns)
    sections = [
        ("warnings", "Warnings", _warnings(card.warnings_of(clf))),
        ("model", "Model card", _facts(about, "Facts about the model")),
        ("data", "Data", _data(clf, judged, columns)),
        ("learning", "Learning curve", _figure(figures.get("learning"))),
        (
            "calibration",
            "Calibration",
            _figure(figures.get("calibration")) + _figure(figures.get("rejection")),
        ),
        ("confusion", "Confusion matrix", _figure(figures.get("confusion"))),
        ("regions", "Decision regions", _figure(figures.get("regions"))),
        ("rows", "Most and least certain rows", certain),
        ("relevance", "Feature relevance", _figure(figures.get("relevance"))),
    ]
    return _page(title or f"Report on a model of {len(clf.classes_)} classes", sections)


def judge(clf: Any, X: Any, y: Any) -> Judged | None:
    """What the model says of the rows."""
    if X is None:
        if y is not None:
            raise BadInput("labels y were given without rows X: give both, or neither.")
        return None
    P = clf.predict_proba(X)
    predicted = np.asarray(clf.classes_[P.argmax(1)])
    try:
        rows = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(
            "the report shows numbers, and X has columns that are none: give the rows as the model sees them, after preparation."
        ) from None
    if y is None:
        return Judged(rows, P, predicted, None, None)
    labels = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if labels.shape != (len(rows),):
        raise BadInput(f"X has {len(rows)} rows and y has shape {labels.shape}: give one label a row.")
    place = {label: k for k, label in enumerate(clf.classes_.tolist())}
    unknown = [label for label in labels.tolist() if label not in place]
    if unknown:
        raise BadInput(
            f"y has the label {str(unknown[0])!r}, which the model does not know; it knows {list(place)[:20]}."
        )
    found = np.array([place[label] for label in labels.tolist()], dtype=np.int64)
    return Judged(rows, P, predicted, np.asarray(clf.classes_[found]), found)


def text(value: Any) -> str:
    """Any value as text that HTML cannot mistake for its own."""
    return escape(_CONTROL.sub("\ufffd", str(value)), quote=True)


def _page(title: str, sections: list[tuple[str, str, str]]) -> str:
    present = [section for section in sections if section[2]]
    links = "".join(f'<li><a href="#{name}">{text(head)}</a></li>' for name, head, _ in present)
    body = "".join(
        f'<section id="{name}" aria-labelledby="{name}-head"><h2 id="{name}-head">{text(head)}</h2>{inside}</section>\n'
        for name, head, inside in present
    )
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<link rel="icon" href="data:,">\n<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n'
        f'<a class="skip" href="#content">Skip to the content</a>\n<header><h1>{text(title)}</h1></header>\n'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n<main id="content">\n{body}</main>\n'
        f"<footer><p>Made by cavity {text(__version__)}. This page needs no network and sends nothing.</p></footer>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _warnings(messages: list[str]) -> str:
    if not messages:
        return "<p>The fit gave no warnings.</p>"
    return '<ul class="warnings">' + "".join(f"<li>{text(m)}</li>" for m in messages) + "</ul>"


def _facts(facts: Facts, caption: str) -> str:
    rows = "".join(f'<tr><th scope="row">{text(k)}</th><td>{text(v)}</td></tr>' for k, v in facts)
    return _scrolling(caption, f"<tbody>{rows}</tbody>", "facts")


def _scrolling(caption: str, inside: str, kind: str = "") -> str:
    """A table that a narrow screen can move sideways, with the keyboard too."""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{text(caption)}"><table class="{kind}">'
        f"<caption>{text(caption)}</caption>{inside}</table></div>"
    )


def _table(caption: str, head: list[str], rows: list[list[str]], total: int) -> str:
    names = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    cells = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>' + "".join(f"<td>{text(v)}</td>" for v in row[1:]) + "</tr>"
        for row in rows
    )
    more = f"<p>and {total - len(rows)} more.</p>" if total > len(rows) else ""
    return _scrolling(caption, f"<thead><tr>{names}</tr></thead><tbody>{cells}</tbody>", "numbers") + more


def _data(clf: Any, judged: Judged | None, names: list[str]) -> str:
    if judged is None:
        return ""
    n, D = judged.X.shape
    size: Facts = [("Rows", f"{n}"), ("Columns", f"{D}"), ("Classes of the model", f"{len(clf.classes_)}")]
    classes = ["Class", *(["True rows"] if judged.y is not None else []), "Predicted rows"]
    columns = ["Column", "Smallest", "Mean", "Largest", "Standard deviation"]
    return (
        _facts([*size, *card.scores(judged)], "The rows that were given, and scores on them")
        + _table("Rows of each class", classes, card.classes(clf, judged), len(clf.classes_))
        + _table("Columns", columns, card.columns(judged.X, names), D)
    )


def _figure(picture: Picture | None) -> str:
    if picture is None:
        return ""
    return (
        f'<figure id="figure-{picture.name}"><picture><source media="(prefers-color-scheme: dark)" srcset="{picture.dark}">'
        f'<img src="{picture.light}" alt="{text(picture.alt)}"></picture>'
        f"<figcaption>{text(picture.caption)}</figcaption></figure>"
    )


def _rows(clf: Any, judged: Judged | None, names: list[str]) -> str:
    """The table with its filter; the filter is the script's, and hidden where there are no scripts."""
    if judged is None:
        return ""
    least, most = card.extremes(judged)
    shown = np.concatenate([least, most])
    parts = clf.predict_uncertainty(judged.X[shown])
    head = ["Row", "Group", "Predicted", "Probability"] + (["True", "Right"] if judged.y is not None else [])
    head += ["Total (nats)", "Aleatoric", "Epistemic", *names[:SHOWN_COLUMNS]]
    rows = []
    for k, n in enumerate(shown):
        row = [f"{n}", "least certain" if k < len(least) else "most certain", f"{judged.predicted[n]}"]
        row.append(f"{judged.P[n].max():.4f}")
        if judged.y is not None:
            row += [f"{judged.y[n]}", "right" if judged.y[n] == judged.predicted[n] else "wrong"]
        row += [f"{part[k]:.4f}" for part in parts]
        rows.append([*row, *(f"{value:.4g}" for value in judged.X[n, :SHOWN_COLUMNS])])
    table = _table("Most and least certain rows", head, rows, 0).replace("<table", '<table id="certain"', 1)
    return (
        '<form class="filter" id="filter-form" hidden><label for="filter">Filter the rows</label>'
        '<input type="search" id="filter" autocomplete="off" placeholder="a class, wrong, least …" aria-controls="certain">'
        f'<output id="filter-count" for="filter" role="status">{len(rows)} of {len(rows)} rows</output></form>{table}'
    )
