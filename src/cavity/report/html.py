"""HTML report on a fitted model: one self-contained page without network access."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from cavity.common import tensor_files
from cavity.errors import BadInput
from cavity.estimators.fitted_view import view_fit
from cavity.explain.raw_rows import find_columns, read_raw_rows
from cavity.report import headline, sections
from cavity.report.charts import draw_calibration, draw_coverage, draw_learning, draw_rejection, draw_scatter
from cavity.report.findings import (
    Scored,
    find_dependences,
    find_novelty,
    name_columns,
    rank_columns,
    score_classifier,
    score_regressor,
)
from cavity.report.markup import Section, render_document, render_facts, render_list, render_table
from cavity.report.model_card import describe_model, list_warnings
from cavity.report.regression import SCORES
from cavity.saving.json_checks import format_label

UNUSUAL = 0.95  # novelty that one in twenty training rows exceeds
SCORE_NAMES = {
    "error": "Error rate",
    "nll": "Log loss, nats per row",
    "brier": "Brier score",
    "ece": "Expected calibration error",
    "auc": "AUC, mean over classes",
    "f1": "F1, mean over classes",
}


def write_report(
    model: Any,
    path: str | Path,
    X: Any = None,
    y: Any = None,
    *,
    names: Any = None,
    title: str = "",
    row_numbers: Any = None,
    note: str = "",
    training_rows: bool = False,
) -> Path:
    """Write an HTML report on a fitted classifier or regressor.

    With rows X, it says what matters, how predictions depend on the most important columns, which rows are uncertain, and what
    the cells are like. With y, it begins with how good the model is against a baseline and where it fails. Without rows, it has
    what the model knows about itself. The page needs no network.

    Parameters
    ----------
    model : GPClassifier or GPRegressor
        Fitted model.
    path : str or Path
        File to write.
    X : array-like of shape (n, D), or a frame, optional
        Rows to predict, raw cells as they are. For honest scores, give rows that were not used for training.
    y : array-like of shape (n,), optional
        Labels or targets of the rows.
    names : sequence of str, optional
        Names of the columns of an array, by default those of the fit.
    title : str, optional
        Title of the page.
    row_numbers : sequence of int, optional
        What the page calls the rows, by default their numbers from 0.
    note : str, optional
        A remark for the headline, such as where the rows come from.
    training_rows : bool, optional
        Whether the model was trained on these rows. The headline then says that scores are too good, gives the estimate for new
        rows, and does not judge the probabilities, which are calibrated for new rows.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, Training, report
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier("sep", n_inducing=5, training=Training(tol=1.0), random_state=0).fit(X[::2], y[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report.write_report(clf, Path(folder) / "report.html", X[1::2], y[1::2])
    ...     path.name
    'report.html'
    """
    text = render_page(
        model, X, y, names=names, title=title, row_numbers=row_numbers, note=note, training_rows=training_rows
    )
    tensor_files.write_bytes(path, text.encode())
    return Path(path)


def render_page(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    names: Any = None,
    title: str = "",
    row_numbers: Any = None,
    note: str = "",
    training_rows: bool = False,
) -> str:
    """Render the report as text."""
    check_is_fitted(model, "inducing_points_")
    is_classifier = hasattr(model, "classes_")
    if X is None and y is not None:
        raise BadInput("labels y were given without rows X: give both or neither.")
    scored, fit = None, view_fit(model)
    if X is not None:
        raw = name_columns(read_raw_rows(X, fit.features, fit.model), names)
        scored = (score_classifier if is_classifier else score_regressor)(model, raw, y)
    ranking = rank_columns(model, scored, y)
    columns = _name_columns(model, scored, names)
    target = find_target(model)
    classes = [format_label(c) for c in model.classes_] if is_classifier else []
    found = [] if scored is None else find_dependences(model, scored, ranking)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        rows = "" if scored is None else sections.render_rows(model, scored, ranking, classes, row_numbers)
    lead = _render_lead(model, scored, ranking, columns, target, classes, note, training_rows)
    return render_document(
        title or f"Report on a model of {target}",
        [
            Section("warnings", "Warnings", render_list(list_warnings(model), "warnings")),
            Section("classes", "Classes", "" if scored is None else sections.render_classes(scored, classes)),
            Section("calibration", "How far to trust it", _render_trust(scored, target)),
            Section("importance", "Which columns matter", sections.render_importance(columns, ranking)),
            Section(
                "dependence",
                "How predictions depend on columns",
                sections.render_dependences(found, ranking, columns, target),
            ),
            Section("hard", "Rows worth a look", rows),
            Section(
                "data", "Data quality", sections.render_quality(model, scored, _list_remarks(model, scored))
            ),
            Section("scores", "All scores", _render_scores(scored), folded=True),
            Section("plan", "What the fit decided", _render_plan(model), folded=True),
            Section(
                "model",
                "About the model",
                render_facts(describe_model(model), "Properties of the model")
                + f'<div class="grid">{draw_learning(model.history_)}</div>',
                folded=True,
            ),
        ],
        lead,
    )


def _render_plan(model: Any) -> str:
    """Render the decisions of the fit; empty for files of older versions."""
    plan = getattr(model, "plan_", None)
    return "" if plan is None else render_table("Plan of the fit", ("Decision", "Value", "Why"), plan.choices)


def find_target(model: Any) -> str:
    """Return the name of what the model predicts."""
    prepare = view_fit(model).features.preparation
    known = None if prepare is None or prepare.target_ is None else prepare.target_.name
    return known or ("the label" if hasattr(model, "classes_") else "the target")


def _name_columns(model: Any, scored: Scored | None, names: Any) -> list[str]:
    if scored is not None:
        return list(scored.raw.names)
    known = names if names is not None else getattr(model, "feature_names_in_", None)
    return [f"column {j}" for j in range(model.n_features_in_)] if known is None else list(map(str, known))


def _render_lead(
    model: Any,
    scored: Scored | None,
    ranking: Any,
    columns: list[str],
    target: str,
    classes: list[str],
    note: str,
    training_rows: bool,
) -> str:
    if training_rows:
        note = " ".join([note, *headline.describe_training_rows(model)]).strip()
    fit = view_fit(model)
    shift, scale = fit.units
    about = (
        f"{headline.count(len(classes), 'class').replace('classs', 'classes')}: {headline.list_columns(classes)}"
        if classes
        else f"a number, {shift:.4g} ± {scale:.3g} in the training rows"
    )
    used = len(set(find_columns(fit.features)[1].tolist()))
    sentences = [headline.describe_task(target, about, columns, used, ranking)]
    if scored is None or scored.scores is None:
        estimate = getattr(model, "estimate_", None)
        sentences += [] if estimate is None else headline.describe_estimate(estimate)
        return headline.render_lead(None, sentences, None, note)
    if classes:
        prior = getattr(model, "class_prior_", None)
        sentences += headline.describe_classes(scored, classes, prior, training_rows)
        return headline.render_lead(
            headline.judge_classes(scored), sentences, headline.tile_classes(scored), note
        )
    sentences += headline.describe_numbers(scored, target)
    return headline.render_lead(
        headline.judge_numbers(scored), sentences, headline.tile_numbers(scored), note
    )


def _render_trust(scored: Scored | None, target: str) -> str:
    if scored is None or scored.truth is None:
        return ""
    if scored.is_regression:
        mean, std = scored.outcome.T
        figures = draw_scatter(mean, std, scored.truth, target) + draw_coverage(mean, std, scored.truth)
    else:
        P = np.exp(scored.outcome)
        figures = draw_calibration(P, scored.truth) + draw_rejection(P, scored.truth)
    return f'<div class="grid">{figures}</div>'


def _render_scores(scored: Scored | None) -> str:
    if scored is None or scored.scores is None or scored.plain is None or scored.truth is None:
        return ""
    names = SCORES if scored.is_regression else SCORE_NAMES
    lines = [
        [
            text,
            _format(scored.scores[k]),
            " to ".join(map(_format, scored.ranges[k])),
            _format(scored.plain[k]),
        ]
        for k, text in names.items()
    ]
    plain = "Mean and spread of the training rows" if scored.is_regression else "Class frequencies"
    return render_table(
        f"Scores of {len(scored.truth)} rows", ["Score", "Model", "95 % interval", plain], lines
    )


def _format(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else "–"


def _list_remarks(model: Any, scored: Scored | None) -> list[str]:
    """Return what is known of the training rows, and of columns that the model does not use."""
    notes, prepare = getattr(model, "notes_", {}), view_fit(model).features.preparation
    remarks = []
    novelty = None if scored is None else find_novelty(model, scored)
    if novelty is not None:
        remarks.append(
            f"{(novelty > UNUSUAL).mean():.1%} of these rows are more unusual than 95 % of the training rows; if nothing has "
            "changed, expect about 5 %."
        )
    if notes.get("rows"):
        lost = (
            f"; {notes['unlabelled']} rows without a label were not used" if notes.get("unlabelled") else ""
        )
        remarks.append(
            f"The model was trained on {notes['rows']:,} rows of {notes.get('data', 'a table')}{lost}."
        )
    aside = [] if prepare is None else [f"{c.name or '(no name)'} ({c.why})" for c in prepare.ignored_]
    if aside:
        remarks.append(
            f"Columns that are not used: {'; '.join(aside[:12])}{'; ...' if len(aside) > 12 else ''}."
        )
    return remarks
