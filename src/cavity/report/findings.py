"""Findings of the report: scored predictions, ranked columns, partial dependence, and
rows to check.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np

from cavity.common.text_tables import format_label, list_names
from cavity.common.types import Floats
from cavity.errors import BadInput, BadOption
from cavity.estimators.classifier import GPClassifier
from cavity.estimators.fitted_view import view_fit
from cavity.estimators.regressor import GPRegressor
from cavity.explain.contributions import Contributions
from cavity.explain.partial_dependence import PartialDependence, describe_sample
from cavity.explain.raw_rows import (
    RawRows,
    choose_rows,
    count_affordable,
    find_columns,
    read_raw_rows,
)
from cavity.prediction.result import Result
from cavity.report.scores import assess_classes, assess_targets
from cavity.tables.arrow_tables import to_plain
from cavity.tables.labels import encode, to_array
from cavity.tables.validation import Prepared

Model = GPClassifier | GPRegressor
REPEATS = 5  # times that each column is shuffled
N_VALUES = 12  # of a column whose partial dependence is drawn
MOST_REPLACED = 30_000  # predictions for the contributions of single rows
CURVES = 6  # columns whose partial dependence is drawn
MAX_ROWS = 15  # hardest rows, and as many uncertain rows


class Scored(NamedTuple):
    """Rows with predictions; with scores next to a baseline if the truth is known."""

    raw: RawRows
    outcome: Floats  # log-probabilities [n C], or means and standard deviations [n 2]
    novelty: Floats | None  # [n]; None if the model has no measure of it
    truth: Any = None  # numbers of classes, or targets
    scores: Any = None
    ranges: Any = None
    plain: Any = None  # scores of class frequencies, or of mean and spread of training


class Ranking(NamedTuple):
    """Columns by importance, in nats, the most important first."""

    places: list[int]
    values: list[float]
    errors: list[float] | None  # None if no labels were needed
    over: str = ""  # the rows whose loss was measured


class Findings(NamedTuple):
    """A model, and what the report says about it."""

    model: Model
    fit: Result
    target: str
    classes: list[str]  # empty for a regressor
    positive: int | None  # the class that is drawn: the rarer of two, or as asked
    columns: list[str]
    used: set[int]  # numbers of the columns that the model reads
    scored: Scored | None  # None without rows
    ranking: Ranking | None  # None if no importance is known

    @property
    def judged(self) -> Scored | None:
        """The rows, if their truth is known."""
        if self.scored is None or self.scored.truth is None:
            return None

        return self.scored


def find(model: Model, X: Any, y: Any, positive: Any = None) -> Findings:
    """Collect findings on a fitted model, on rows and on their labels or targets.

    X, or only y, may be None. `positive`: the class to draw.
    """
    fit = view_fit(model)
    columns, owner = find_columns(fit.features)
    truth = None
    if y is not None:
        truth = np.asarray(to_array(to_plain(y, "y")))
    scored = None
    if X is not None:
        raw = read_raw_rows(X, fit.features, fit.model)
        scored = score_rows(model, fit, raw, truth)
    used = set(owner.tolist())
    ranking = rank_columns(model, scored, truth, used)
    target = "the target"
    classes = []
    if fit.classes is not None:
        target = "the label"
        classes = list(map(format_label, fit.classes))
    target = fit.features.target or target
    return Findings(
        model=model,
        fit=fit,
        target=target,
        classes=classes,
        positive=choose_positive(fit, classes, scored, positive),
        columns=list(columns),
        used=used,
        scored=scored,
        ranking=ranking,
    )


def choose_positive(
    fit: Result, classes: list[str], scored: Scored | None, label: Any
) -> int | None:
    """Return the number of the class to draw: as asked, else the rarer of two."""
    if label is not None:
        name = format_label(label)
        if name not in classes:
            raise BadOption(
                f"positive={label!r} is not one of the classes {list_names(classes)}."
            )

        return classes.index(name)
    if len(classes) != 2:
        return None

    share: Any = fit.class_prior
    if share is None and scored is not None and scored.truth is not None:
        share = np.bincount(scored.truth, minlength=2)
    if share is None:
        return 1

    return 0 if share[0] < share[1] else 1


def score_rows(model: Model, fit: Result, raw: RawRows, y: Any) -> Scored:
    """Predict rows, and score the predictions unless y is None."""
    rows = Prepared(raw.X)
    if isinstance(model, GPRegressor):
        outcome = np.column_stack(model.predict(rows, return_std=True))
    else:
        outcome = model.predict_log_proba(rows)

    novelty = None
    if fit.novelty is not None:
        novelty = model.predict_novelty(rows)
    if y is None:
        return Scored(raw, outcome, novelty)

    if y.shape != (len(raw.X),):
        what = "target" if fit.classes is None else "label"
        raise BadInput(
            f"X has {len(raw.X)} rows and y has shape {y.shape}: give one {what} per "
            f"row."
        )

    weight = np.ones(len(y))
    if fit.classes is None:
        truth = y.astype(np.float64)
        mean, std = outcome.T
        assessed = assess_targets(mean, std, truth, weight, fit.units)
    else:
        truth = encode(y, fit.classes)
        assessed = assess_classes(outcome, truth, weight, fit.class_prior)

    return Scored(raw, outcome, novelty, truth, *assessed)


def rank_columns(
    model: Model, scored: Scored | None, y: Any, used: set[int]
) -> Ranking | None:
    """Rank the columns by importance.

    On labelled rows it is what shuffling costs, otherwise what the fit found.
    """
    values = getattr(model, "feature_importance_", None)
    errors = None
    over = ""
    if scored is not None and y is not None:
        most = _count_rows(model, scored.raw.X, REPEATS * len(used))
        chosen = choose_rows(len(y), most, 0)
        rows = Prepared(scored.raw.X[chosen])
        found = model.explain(rows, y[chosen], n_repeats=REPEATS)
        values = found.importance
        errors = found.standard_error
        over = describe_sample(len(chosen), len(y))

    if values is None:
        return None

    order = [j for j in np.argsort(-values, kind="stable").tolist() if j in used]
    if errors is not None:
        errors = errors[order].tolist()
    return Ranking(order, values[order].tolist(), errors, over)


def _count_rows(model: Model, X: Floats, times: int) -> int:
    """Return how many rows can be predicted so many times in ten seconds."""
    return count_affordable(lambda rows: model.predict(Prepared(rows)), X, times)


def find_dependences(found: Findings) -> list[tuple[PartialDependence, float]]:
    if found.ranking is None or found.scored is None:
        return []

    raw = found.scored.raw
    ranking = found.ranking
    each = zip(ranking.places, ranking.values, strict=True)
    drawn = [(j, value) for j, value in each if value > 0][:CURVES]
    n_rows = _count_rows(found.model, raw.X, N_VALUES * max(1, len(drawn)))
    dependences = list[tuple[PartialDependence, float]]()
    for j, value in drawn:
        part = found.model.partial_dependence(raw, j, n_values=N_VALUES, n_rows=n_rows)
        dependences.append((part, value))

    return dependences


def find_notable(scored: Scored, is_regression: bool) -> list[tuple[int, str]]:
    """Return rows to check with the reason.

    They are the hardest, whose truth is least expected, and the most uncertain.
    """
    outcome = scored.outcome
    truth = scored.truth
    few = min(MAX_ROWS, (len(outcome) + 1) // 2)
    doubt = outcome[:, 1] if is_regression else -outcome.max(1)
    unsure = np.argsort(-doubt, kind="stable")[:few].tolist()
    hard = []
    if truth is not None:
        if is_regression:
            off = np.abs(truth - outcome[:, 0]) / doubt
        else:
            off = -outcome[np.arange(len(truth)), truth]

        hard = np.argsort(-off, kind="stable")[:few].tolist()

    rows = [(n, "hardest, uncertain" if n in unsure else "hardest") for n in hard]
    return rows + [(n, "uncertain") for n in unsure if n not in hard]


def explain_notable(model: Model, scored: Scored, rows: list[int]) -> Contributions:
    raw = scored.raw
    n_replaced = max(1, len(rows) * len(np.unique(raw.owner)))
    most = int(np.clip(MOST_REPLACED // n_replaced, 2, 30))
    table = None
    if raw.table is not None:
        table = raw.table.take(rows)
    chosen = raw._replace(X=raw.X[rows], table=table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.explain_rows(chosen, raw, n_background=most)
