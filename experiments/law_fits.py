"""What a fit shows about its quality, and the values of the same numbers on fresh rows.

Regressions and classifications of `law_tables`, compared for `law`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from cavity import Costs, GPClassifier, GPRegressor
from cavity.common.scoring import average, bin_rows, count_effective, score_rows
from cavity.common.types import Floats, Ints
from cavity.estimators.argument_types import Effort
from cavity.pool.pool import normalised
from cavity.prediction.estimate import FOLDS, find_wider
from cavity.prediction.predict import log_probabilities, predict_latent
from cavity.prediction.target_estimate import estimate_targets
from cavity.report import conformal
from experiments.law_tables import FLIPPED, TOGETHER, Case, Drawn, Law

FRESH = 20_000
COVERAGE = 0.9  # of conformal sets and of intervals
REGRESSED_ROWS = 600  # an exact regression of more takes minutes
FEW = 20  # fresh rows of a bin, at least


class Shown(NamedTuple):
    """A number that a fit shows, its error, and its value on fresh rows."""

    shown: str
    of: str  # which of several: a member, a bin
    value: float
    error: float
    fresh: float
    fresh_error: float

    @property
    def z(self) -> float:
        """Difference in standard errors."""
        error = float(np.hypot(self.error, self.fresh_error))
        return (self.value - self.fresh) / max(error, 1e-12)


class Judged(NamedTuple):
    """A fitted classifier, its held-out rows and fresh rows."""

    model: Any
    held: Any
    y: Ints  # of held-out rows, as numbers
    fresh: Drawn
    log_p: Floats  # of fresh rows


def judge_classifier(case: Case) -> list[Shown]:
    """Fit a classifier, and compare all that it shows."""

    law = Law(case)
    drawn = law.draw_table()
    group = None
    if case.kind in TOGETHER and case.kind != "copies":
        group = drawn.group
    model = GPClassifier(effort=cast(Effort, case.effort), random_state=case.number)
    model.fit(drawn.X, drawn.y, groups=group)

    held = model.held_out_
    y = np.searchsorted(model.classes_, held.labels)
    fresh = law.draw_fresh(FRESH)
    fresh = fresh.select(np.isin(fresh.y, np.unique(held.labels)))
    fresh = fresh._replace(y=np.searchsorted(model.classes_, fresh.y))
    log_p = model.predict_log_proba(fresh.X)
    judged = Judged(model, held, y, fresh, log_p)
    return [
        *compare_estimate(judged),
        *compare_members(judged),
        *compare_bins(judged),
        *compare_costs(judged),
        compare_sets(judged),
        *compare_suspects(judged, drawn),
    ]


def compare_estimate(judged: Judged) -> Iterator[Shown]:
    """Compare log loss and accuracy."""

    found = judged.model.estimate_
    scores = score_rows(judged.log_p, judged.fresh.y)
    loss = average(scores["nll"])
    right = average(1 - scores["error"])
    yield Shown("log loss", "", found.log_loss, found.standard_error, *loss)
    held = judged.held
    top = held.proba.max(1)
    own = held.log_proba.argmax(1) == judged.y
    error = max(
        average(own, held.weight, held.group).error,
        np.sqrt((held.weight**2 * top * (1 - top)).sum()) / held.weight.sum(),
    )
    yield Shown("accuracy", "", found.accuracy, held.wider * error, *right)


def compare_members(judged: Judged) -> Iterator[Shown]:
    """Compare the log loss of each classifier that counts, alone."""

    def predict_each(model: Any, rows: Floats) -> tuple[Floats, ...]:
        own = log_probabilities(model, predict_latent(model, rows))
        return own, *(member.log_proba(rows) for member in model.pool.members)

    held = judged.held
    scores = judged.model.members_
    counts = [j for j, weight in enumerate(scores.weight) if weight or j == 0]
    each = judged.model._predict(judged.fresh.X, predict_each)
    for j, log_p in zip(counts, each, strict=True):
        name = scores.names[j]
        losses = score_rows(normalised(held.members[name]), judged.y)["nll"]
        error = held.wider * average(losses, held.weight, held.group).error
        loss = average(score_rows(normalised(log_p), judged.fresh.y)["nll"])
        yield Shown("member's log loss", name, scores.log_loss[j], error, *loss)


def compare_bins(judged: Judged) -> Iterator[Shown]:
    """Compare the accuracy of each bin of a reliability diagram.

    Its interval is Wilson's, whose errors are those at the true share, widened.
    """
    held = judged.held
    shown = held.reliability()
    fresh = bin_rows(np.exp(judged.log_p), judged.fresh.y)
    top = held.proba.max(1)
    for k in np.flatnonzero(shown.many & (fresh.rows >= FEW)):
        low = shown.edges[k]
        inside = (low < top) & (top <= shown.edges[k + 1])
        each = np.bincount(held.group[inside], held.weight[inside]).astype(np.float64)
        truth = fresh.accuracy[k]
        spread = math.sqrt(truth * (1 - truth))
        error = held.wider * spread / math.sqrt(count_effective(each))
        own = spread / math.sqrt(fresh.rows[k])
        value = shown.accuracy[k]
        yield Shown("accuracy of a bin", f"{low:.1f}", value, error, truth, own)


def compare_costs(judged: Judged) -> Iterator[Shown]:
    """Compare what decisions cost: a rare error is dear, or refusing is cheap."""

    classes = judged.model.classes_
    held = judged.held
    first, *others = classes.tolist()
    dear = {other: {first: 10.0} for other in others}
    for name, costs in {
        "dear misses": Costs(dear, other=1.0),
        "refusing": Costs(other=1.0, refuse=0.2),
    }.items():
        cost = costs.matrix(classes)
        held_costs = cost[judged.y, (held.proba @ cost).argmin(1)]
        chosen = (np.exp(judged.log_p) @ cost).argmin(1)
        shown = average(held_costs, held.weight, held.group)
        fresh = average(cost[judged.fresh.y, chosen])
        yield Shown(
            "cost of decisions", name, shown.value, held.wider * shown.error, *fresh
        )


def compare_sets(judged: Judged) -> Shown:
    """Compare the coverage of conformal sets with what is expected of so many rows.

    Of n rows of a class, the k-th smallest probability leaves out k/(n+1) of new rows.
    """

    held = judged.held
    rule = conformal(held.proba, judged.y, COVERAGE)
    inside = rule.sets(np.exp(judged.log_p))[
        np.arange(len(judged.log_p)), judged.fresh.y
    ]
    C = len(rule.least)
    n = np.bincount(judged.y, minlength=C)
    units = np.array([len(np.unique(held.group[judged.y == c])) for c in range(C)])
    left = np.floor((n + 1) * (1 - COVERAGE) + 1e-9) / (n + 1)
    share = np.bincount(judged.fresh.y, minlength=C) / len(judged.fresh.y)
    sd = np.sqrt(left * (1 - left) / (units + 2))
    error = held.wider * float(np.linalg.norm(share * sd))
    return Shown(
        "coverage of sets", "", float(share @ (1 - left)), error, *average(inside)
    )


def compare_suspects(judged: Judged, drawn: Drawn) -> Iterator[Shown]:
    """Compare the share of wrong labels among the most suspect ones."""
    if not drawn.flipped.any():
        return

    n = int(drawn.flipped.sum())
    found = judged.model.suspect_labels(n)
    value = float(drawn.flipped[found.rows].mean())
    y = judged.fresh.y
    most = round(FLIPPED * len(y))
    suspect = judged.log_p[np.arange(len(y)), y].argsort()[:most]
    truth = float(judged.fresh.flipped[suspect].mean())
    error, own = (np.sqrt(truth * (1 - truth) / m) for m in (n, most))
    yield Shown("precision of suspects", "", value, float(error), truth, float(own))


def judge_regressor(case: Case) -> list[Shown]:
    """Fit a regressor to the target of a table, and compare all that it shows."""

    law = Law(case._replace(rows=min(case.rows, REGRESSED_ROWS)))
    drawn = law.draw_table()
    fresh = law.draw_fresh(FRESH)
    model = GPRegressor(random_state=case.number)
    model.fit(drawn.X, drawn.target)
    shown = model.estimate_
    mean, sd = model.predict(fresh.X, return_std=True)
    truth = estimate_targets(mean, sd, fresh.target, np.ones(len(mean)))
    names = ("rmse", "r2", "log_density", "coverage_50", "coverage_95")
    found = []
    for name in names:
        pairs = [
            (getattr(e, name), getattr(e, f"{name}_error")) for e in (shown, truth)
        ]
        label = f"regression: {name.replace('_', ' ')}"
        found.append(Shown(label, "", *pairs[0], *pairs[1]))

    low, high = model.predict_interval(fresh.X, COVERAGE)
    inside = average((low <= fresh.target) & (fresh.target <= high))
    error = find_wider(FOLDS, shown.rows) * math.sqrt(
        COVERAGE * (1 - COVERAGE) / shown.rows
    )
    found.append(Shown("regression: interval", "", COVERAGE, error, *inside))
    return found
