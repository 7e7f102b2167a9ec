"""What the report tells: predictions with scores, ranked columns, partial dependence,
rows to check.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from cavity.common.text_tables import format_label
from cavity.common.types import Floats
from cavity.errors import BadInput
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import view_fit
from cavity.estimators.regressor import GPRegressor
from cavity.explain.contributions import Contributions
from cavity.explain.partial_dependence import PartialDependence
from cavity.explain.raw_rows import RawRows, choose_rows, find_columns, read_raw_rows
from cavity.prediction.result import Result
from cavity.report.scores import assess_classes, assess_targets
from cavity.tables.arrow_tables import to_plain
from cavity.tables.labels import encode, to_array
from cavity.tables.validation import Prepared

Model = GPClassifier | GPRegressor
# predictions for the importance of columns; fewer with many classes
MOST_SHUFFLED = 40_000
MOST_REPLACED = 30_000  # predictions for what moves single rows
CURVES = 6  # columns whose partial dependence is drawn
MAX_ROWS = 15  # hardest rows, and most uncertain rows


class Scored(NamedTuple):
    """Rows with predictions and, if the truth is known, scores next to those of a
    baseline.
    """

    raw: RawRows
    outcome: Floats  # log-probabilities [n C], or means and standard deviations [n 2]
    novelty: Floats | None  # [n]; None for models that cannot tell
    truth: Any = None  # numbers of classes, or numbers
    scores: Any = None
    ranges: Any = None
    # scores of class frequencies, or of the mean and spread of the training rows
    plain: Any = None


class Ranking(NamedTuple):
    """Columns by importance, in nats, the most important first."""

    places: list[int]
    values: list[float]
    errors: list[float] | None  # None if no labels were needed


class Findings(NamedTuple):
    """A model, and what the report tells of it."""

    model: Model
    fit: Result
    target: str
    classes: list[str]  # empty for a regressor
    columns: list[str]
    used: set[int]  # numbers of the columns that the model reads
    scored: Scored | None  # None without rows
    ranking: Ranking | None  # None if it is not known which columns matter

    @property
    def judged(self) -> Scored | None:
        """The rows, if their truth is known."""
        if self.scored is None or self.scored.truth is None:
            return None
        return self.scored


def find(model: Model, X: Any, y: Any) -> Findings:
    """Find what there is to tell of a fitted model, of rows and of their labels or
    targets, which may be None.
    """
    fit = view_fit(model)
    columns, owner = find_columns(fit.features)
    truth = None
    if y is not None:
        truth = np.asarray(to_array(to_plain(y, "y")))
    scored = None
    if X is not None:
        scored = score_rows(
            model, fit, read_raw_rows(X, fit.features, fit.model), truth
        )
    used = set(owner.tolist())
    ranking = rank_columns(model, scored, truth, used)
    target = fit.features.target or (
        "the target" if fit.classes is None else "the label"
    )
    if fit.classes is None:
        classes = []
    else:
        classes = list(map(format_label, fit.classes))
    return Findings(model, fit, target, classes, list(columns), used, scored, ranking)


def score_rows(model: Model, fit: Result, raw: RawRows, y: Any) -> Scored:
    rows = Prepared(raw.X)
    if isinstance(model, GPRegressor):
        outcome = np.column_stack(model.predict(rows, return_std=True))
    else:
        outcome = model.predict_log_proba(rows)
    scored = Scored(
        raw, outcome, None if fit.novelty is None else model.predict_novelty(rows)
    )
    if y is None:
        return scored
    if y.shape != (len(raw.X),):
        what = "target" if fit.classes is None else "label"
        raise BadInput(
            f"X has {len(raw.X)} rows and y has shape {y.shape}: give one {what} per "
            f"row."
        )
    if fit.classes is None:
        truth = y.astype(np.float64)
        found = assess_targets(
            outcome[:, 0], outcome[:, 1], truth, np.ones(len(y)), fit.units
        )
    else:
        truth = encode(y, fit.classes)
        found = assess_classes(outcome, truth, np.ones(len(y)), fit.class_prior)
    return Scored(*scored[:3], truth, *found)


def rank_columns(
    model: Model, scored: Scored | None, y: Any, used: set[int]
) -> Ranking | None:
    """Rank the columns: on labelled rows by what shuffling costs, else by the
    importance that the fit found.
    """
    values = getattr(model, "feature_importance_", None)
    errors = None
    if scored is not None and y is not None:
        room = (
            MOST_SHUFFLED
            // max(1, len(getattr(model, "classes_", ())) // 4)
            // (2 * len(used))
        )
        chosen = choose_rows(len(y), int(np.clip(room, 50, 500)), 0)
        found = model.explain(Prepared(scored.raw.X[chosen]), y[chosen], n_repeats=2)
        values = found.importance
        errors = found.standard_error
    if values is None:
        return None
    order = [j for j in np.argsort(-values, kind="stable").tolist() if j in used]
    return Ranking(
        order,
        values[order].tolist(),
        None if errors is None else errors[order].tolist(),
    )


def find_dependences(found: Findings) -> list[tuple[PartialDependence, float]]:
    if found.ranking is None or found.scored is None:
        return []
    raw = found.scored.raw
    if found.scored.outcome.shape[1] <= 6:
        n_values = 12
        n_rows = 30
    else:
        n_values = 8
        n_rows = 20
    ranked = zip(found.ranking.places, found.ranking.values, strict=True)
    best = [(j, v) for j, v in ranked if v > 0][:CURVES]
    return [
        (found.model.partial_dependence(raw, j, n_values=n_values, n_rows=n_rows), v)
        for j, v in best
    ]


def find_notable(scored: Scored, is_regression: bool) -> list[tuple[int, str]]:
    """Return rows to check with the reason: the hardest, whose truth is least expected,
    and the most uncertain.
    """
    outcome = scored.outcome
    truth = scored.truth
    few = min(MAX_ROWS, (len(outcome) + 1) // 2)
    hard = []
    if is_regression:
        doubt = outcome[:, 1]
    else:
        doubt = -outcome.max(1)
    if truth is not None:
        if is_regression:
            own = outcome[:, 0]
        else:
            own = outcome[np.arange(len(truth)), truth]
        if is_regression:
            off = np.abs(truth - own) / doubt
        else:
            off = -own
        hard = np.argsort(-off, kind="stable")[:few].tolist()
    unsure = np.argsort(-doubt, kind="stable")[:few].tolist()
    rows = [(n, "hardest, uncertain" if n in unsure else "hardest") for n in hard]
    return rows + [(n, "uncertain") for n in unsure if n not in hard]


def explain_notable(model: Model, scored: Scored, rows: list[int]) -> Contributions:
    raw = scored.raw
    used = len(np.unique(scored.raw.owner))
    most = int(np.clip(MOST_REPLACED // max(1, len(rows) * used), 2, 30))
    chosen = raw._replace(
        X=raw.X[rows], table=None if raw.table is None else raw.table.take(rows)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.explain_rows(chosen, raw, n_background=most)
