"""What the report tells: predictions with scores, ranked columns, partial dependence, rows worth a look."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cavity.errors import BadInput
from cavity.estimators.fitted_view import view_fit
from cavity.explain.contributions import Contributions
from cavity.explain.partial_dependence import PartialDependence
from cavity.explain.raw_rows import RawRows, choose_rows, find_columns
from cavity.report.calibration import Array
from cavity.report.scores import Numbers, assess_classes, assess_targets
from cavity.rows.frames import Prepared
from cavity.rows.labels import encode

MOST_SHUFFLED = 40_000  # predictions for the importance of columns; fewer with many classes
MOST_REPLACED = 30_000  # predictions for what moves single rows
MOST_CONDITIONAL = 20  # columns up to which the report says what each tells given the others
CURVES = 6  # columns whose partial dependence is drawn
MAX_ROWS = 15  # hardest rows, and most uncertain rows


class Scored(NamedTuple):
    """Rows with predictions and, if the truth is known, scores next to those of a baseline."""

    raw: RawRows
    outcome: Array  # log-probabilities [n C], or means and standard deviations [n 2]
    truth: NDArray[Any] | None  # numbers of classes, or numbers
    scores: Numbers | None
    ranges: Any
    plain: Numbers | None  # scores of class frequencies, or of the mean and spread of the training rows
    is_regression: bool = False


class Ranking(NamedTuple):
    """Columns by importance, in nats, the most important first."""

    places: list[int]
    values: list[float]
    errors: list[float] | None  # None if no labels were needed
    given: list[float] | None = None  # of columns whose cells are unknown, given the others


def name_columns(raw: RawRows, names: Any) -> RawRows:
    """Replace the names of columns that are not prepared."""
    if names is None or raw.table is not None:
        return raw
    found = tuple(map(str, names))
    if len(found) != len(raw.names):
        raise BadInput(
            f"names has {len(found)} entries, but X has {len(raw.names)} columns: give one name per column."
        )
    return raw._replace(names=found)


def score_classifier(clf: Any, raw: RawRows, y: Any) -> Scored:
    """Predict rows and, with labels, score the predictions."""
    log_p = clf.predict_log_proba(Prepared(raw.X))
    if y is None:
        return Scored(raw, log_p, None, None, None, None)
    codes = encode(_check_length(len(raw.X), y, "label"), clf.classes_)
    found = assess_classes(log_p, codes, np.ones(len(codes)), getattr(clf, "class_prior_", None))
    return Scored(raw, log_p, codes, *found)


def _check_length(n: int, y: Any, what: str) -> NDArray[Any]:
    found = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if found.shape != (n,):
        raise BadInput(f"X has {n} rows and y has shape {found.shape}: give one {what} per row.")
    return found


def score_regressor(gp: Any, raw: RawRows, y: Any) -> Scored:
    """Predict rows and, with targets, score the predictions."""
    mean, std = gp.predict(Prepared(raw.X), return_std=True)
    outcome = np.column_stack([mean, std])
    if y is None:
        return Scored(raw, outcome, None, None, None, None, True)
    truth = _check_length(len(raw.X), y, "target").astype(np.float64)
    found = assess_targets(mean, std, truth, np.ones(len(truth)), view_fit(gp).units)
    return Scored(raw, outcome, truth, *found, True)


def rank_columns(model: Any, scored: Scored | None, y: Any) -> Ranking | None:
    """Rank columns by permutation importance or, without labels, by what the model says about itself."""
    errors: Array | None = None
    given: Array | None = None
    if scored is not None and scored.truth is not None:
        C = scored.outcome.shape[1]
        used, room = len(set(scored.raw.owner.tolist())), MOST_SHUFFLED // max(1, C // 4)
        chosen = choose_rows(len(scored.raw.X), int(np.clip(room // (2 * used), 50, 500)), 0)
        rows = Prepared(scored.raw.X[chosen]), np.asarray(y)[chosen]
        found = model.explain(*rows, n_repeats=2)
        values, errors = found.importance, found.standard_error
        if used <= MOST_CONDITIONAL:
            given = model.explain(*rows, n_repeats=2, conditional=True).importance
    else:
        values = getattr(model, "feature_importance_", None)
    if values is None:
        return None
    used_columns = set(find_columns(view_fit(model).features)[1].tolist())
    order = np.array([j for j in np.argsort(-values, kind="stable") if int(j) in used_columns])
    ordered = [None if column is None else column[order].tolist() for column in (errors, given)]
    return Ranking(order.tolist(), values[order].tolist(), *ordered)


def find_novelty(model: Any, scored: Scored) -> Array | None:
    """Return how unlike the training rows each row is, [n]; None for models that cannot tell."""
    return None if view_fit(model).novelty is None else model.predict_novelty(Prepared(scored.raw.X))


def find_dependences(model: Any, scored: Scored, ranking: Ranking | None) -> list[PartialDependence]:
    """Compute partial dependence on the most important columns."""
    if ranking is None:
        return []
    C = scored.outcome.shape[1]
    used = set(scored.raw.owner.tolist())
    best = [j for j, v in zip(ranking.places, ranking.values, strict=True) if v > 0 and j in used][:CURVES]
    few = {"n_values": 12, "n_rows": 30} if C <= 6 else {"n_values": 8, "n_rows": 20}
    return [model.partial_dependence(scored.raw, j, **few) for j in best]


def find_notable(scored: Scored) -> list[tuple[int, str]]:
    """Return rows worth a look with the reason: the hardest, whose truth is least expected, and the most uncertain."""
    surprise: Array | None
    if scored.is_regression:
        mean, doubt = scored.outcome.T
        surprise = None if scored.truth is None else np.abs(scored.truth - mean) / doubt
    else:
        doubt = -scored.outcome.max(1)
        own = None if scored.truth is None else scored.outcome[np.arange(len(doubt)), scored.truth]
        surprise = None if own is None else -own
    few = min(MAX_ROWS, (len(doubt) + 1) // 2)
    unsure = np.argsort(-doubt, kind="stable")[:few].tolist()
    hard = [] if surprise is None else np.argsort(-surprise, kind="stable")[:few].tolist()
    both = set(unsure) & set(hard)
    rows = [(n, "hardest, uncertain" if n in both else "hardest") for n in hard]
    return rows + [(n, "uncertain") for n in unsure if n not in both]


def explain_notable(model: Any, scored: Scored, rows: list[int]) -> Contributions:
    """Compute what moves the predictions of some rows."""
    raw = scored.raw
    used = len(set(raw.owner.tolist()))
    most = int(np.clip(MOST_REPLACED // max(1, len(rows) * used), 2, 30))
    table = None if raw.table is None else raw.table.take(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Contributions = model.explain_rows(
            raw._replace(X=raw.X[rows], table=table), raw, n_background=most
        )
    return found
