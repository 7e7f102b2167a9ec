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
from cavity.report.findings import Scored, find_dependences, name_columns, rank_columns, score_rows
from cavity.report.markup import Section, grid, render_document, render_facts, render_list, render_table
from cavity.report.model_card import describe_model
from cavity.saving.json_checks import format_label

UNUSUAL = 0.95  # novelty that one in twenty training rows exceeds
TARGET_SCORES = {
    "rmse": "Root mean squared error",
    "mae": "Mean absolute error",
    "r2": "Share of the variance explained (R²)",
    "nlpd": "Negative log density, nats per row",
    "coverage": "Rows within their 95 % interval",
}
CLASS_SCORES = {
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
    check_is_fitted(model, "inducing_points_")
    if X is None and y is not None:
        raise BadInput("labels y were given without rows X: give both or neither.")
    scored, fit = None, view_fit(model)
    if X is not None:
        scored = score_rows(model, name_columns(read_raw_rows(X, fit.features, fit.model), names), y)
    ranking = rank_columns(model, scored, y)
    columns = _name_columns(model, scored, names)
    target = _find_target(model)
    classes = [format_label(c) for c in getattr(model, "classes_", ())]
    found = [] if scored is None else find_dependences(model, scored, ranking)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        rows = "" if scored is None else sections.render_rows(model, scored, ranking, classes, row_numbers)
    if training_rows:
        note = " ".join([note, *headline.describe_training_rows(model)]).strip()
    task = _describe_task(fit, ranking, columns, target, classes)
    about = render_facts(describe_model(model), "Properties of the model")
    parts = [
        Section("warnings", "Warnings", render_list(model.fit_warnings_, "warnings")),
        Section("classes", "Classes", sections.render_classes(scored, classes)),
        Section("calibration", "How far to trust it", _render_trust(scored, target)),
        Section("importance", "Which columns matter", sections.render_importance(columns, ranking)),
        Section(
            "dependence",
            "How predictions depend on columns",
            sections.render_dependences(found, ranking, columns, target),
        ),
        Section("hard", "Rows worth a look", rows),
        Section("data", "Data quality", sections.render_quality(model, scored, _list_remarks(model, scored))),
        Section("scores", "All scores", _render_scores(scored), folded=True),
        Section("plan", "What the fit decided", _render_plan(model), folded=True),
        Section("model", "About the model", f"{about}{grid(draw_learning(model.history_))}", folded=True),
    ]
    lead = headline.render_lead(model, scored, task, target, classes, note, training_rows)
    page = render_document(title or f"Report on a model of {target}", parts, lead)
    tensor_files.write_bytes(path, page.encode())
    return Path(path)


def _render_plan(model: Any) -> str:
    """Render the decisions of the fit; empty for files of older versions."""
    plan = getattr(model, "plan_", None)
    return "" if plan is None else render_table("Plan of the fit", ("Decision", "Value", "Why"), plan.choices)


def _find_target(model: Any) -> str:
    prepare = view_fit(model).features.preparation
    known = None if prepare is None or prepare.target_ is None else prepare.target_.name
    return known or ("the label" if hasattr(model, "classes_") else "the target")


def _name_columns(model: Any, scored: Scored | None, names: Any) -> list[str]:
    if scored is not None:
        return list(scored.raw.names)
    known = names if names is not None else getattr(model, "feature_names_in_", None)
    return [f"column {j}" for j in range(model.n_features_in_)] if known is None else list(map(str, known))


def _describe_task(fit: Any, ranking: Any, columns: list[str], target: str, classes: list[str]) -> str:
    about = "a number, {:.4g} ± {:.3g} in the training rows".format(*fit.units)
    if classes:
        about = f"{len(classes):,} class{'es' * (len(classes) > 1)}: {headline.list_columns(classes)}"
    used = len(set(find_columns(fit.features)[1].tolist()))
    return headline.describe_task(target, about, columns, used, ranking)


def _render_trust(scored: Scored | None, target: str) -> str:
    if scored is None or scored.truth is None:
        return ""
    if scored.is_regression:
        mean, std = scored.outcome.T
        return grid(draw_scatter(mean, std, scored.truth, target) + draw_coverage(mean, std, scored.truth))
    P = np.exp(scored.outcome)
    return grid(draw_calibration(P, scored.truth) + draw_rejection(P, scored.truth))


def _render_scores(scored: Scored | None) -> str:
    if scored is None or scored.truth is None:
        return ""
    names = TARGET_SCORES if scored.is_regression else CLASS_SCORES
    lines = []
    for k, text in names.items():
        ends = " to ".join(map(_format, scored.ranges[k]))
        lines.append([text, _format(scored.scores[k]), ends, _format(scored.plain[k])])
    plain = "Mean and spread of the training rows" if scored.is_regression else "Class frequencies"
    head = ["Score", "Model", "95 % interval", plain]
    return render_table(f"Scores of {len(scored.truth)} rows", head, lines)


def _format(value: float) -> str:
    return f"{value:.4g}" if np.isfinite(value) else "–"


def _list_remarks(model: Any, scored: Scored | None) -> list[str]:
    """Return what is known of the training rows, and of columns that the model does not use."""
    notes, prepare = getattr(model, "notes_", {}), view_fit(model).features.preparation
    remarks = []
    if scored is not None and scored.novelty is not None:
        remarks.append(
            f"{(scored.novelty > UNUSUAL).mean():.1%} of these rows are more unusual than 95 % of the training rows; if nothing "
            "has changed, expect about 5 %."
        )
    if notes.get("rows"):
        trained = f"The model was trained on {notes['rows']:,} rows of {notes.get('data', 'a table')}"
        lost = notes.get("unlabelled")
        remarks.append(trained + (f"; {lost} rows without a label were not used." if lost else "."))
    aside = [] if prepare is None else [f"{c.name or '(no name)'} ({c.why})" for c in prepare.ignored_]
    if aside:
        more = "; ..." if len(aside) > 12 else ""
        remarks.append(f"Columns that are not used: {'; '.join(aside[:12])}{more}.")
    return remarks
