"""What decisions cost on rows with labels, next to simpler rules, and their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cavity.common.scoring import average
from cavity.common.types import Floats, Ints
from cavity.prediction.decisions import Costs, Thresholds, choose
from cavity.report.charts import Figure
from cavity.report.class_curves import draw_gain, draw_precision_recall
from cavity.report.detection import detect
from cavity.report.findings import Findings
from cavity.report.scores import bootstrap
from cavity.report.svg import UNIT, Plot
from cavity.report.templates import format_number

DECIDE = "decide"
POINTS = 200  # of a curve
DOTS = 10  # of a curve that show their numbers


class RuleCosts(NamedTuple):
    """Cost per row of each rule, by name: decide, predict, a constant, refuse all."""

    values: dict[str, float]
    ranges: dict[str, list[float]]  # 95% intervals
    more: dict[str, list[float]]  # 95% intervals of the cost beyond that of decide
    thresholds: Thresholds | None  # with two classes

    def lines(self) -> list[list[str]]:
        """Return rule, cost, its interval, and the interval of what it costs more."""
        lines = []
        own = self.values[DECIDE]
        for rule, value in self.values.items():
            more = ""
            if rule != DECIDE:
                more = f"{value - own:+.4g} {_format_range(self.more[rule])}"
            lines.append([rule, f"{value:.4g}", _format_range(self.ranges[rule]), more])

        return lines

    def describe(self) -> str:
        """Say what deciding costs, next to the cheapest other rule."""
        costs = dict(self.values)
        own = costs.pop(DECIDE)
        other = min(costs, key=lambda rule: costs[rule])
        low, high = self.more[other]
        verdict = "may be noise"
        if low > 0:
            verdict = "is not noise"
        if high < 0:
            verdict = "speaks against the probabilities"
        return (
            f"By the given costs, deciding costs {own:.3g} per row; the best other "
            f"rule, {other}, costs {costs[other]:.3g}. The difference {verdict}."
        )


def describe_decisions(found: Findings, costs: Costs | None) -> dict[str, Any]:
    """Describe what decisions cost, and how many rows of a rare class they find."""
    scored = found.judged
    if scored is None or not found.classes:
        return {"lines": None, "figures": []}

    P = np.exp(scored.outcome)
    y = scored.truth
    lines = None
    said = None
    thresholds = None
    figures = []
    if costs is not None:
        prior = found.fit.class_prior
        assessed = assess_decisions(
            P, y, np.ones(len(y)), costs, found.classes, prior=prior
        )
        lines = assessed.lines()
        said = assessed.describe()
        if assessed.thresholds is not None:
            thresholds = assessed.thresholds.describe()
            figures.append(draw_threshold_costs(P, y, costs, found.classes))
    if found.positive is not None and (y == found.positive).any():
        name = found.classes[found.positive]
        rows = detect(P[:, found.positive], y == found.positive)
        figures += [draw_gain(rows, name), draw_precision_recall(rows, name)]
    return {"lines": lines, "said": said, "thresholds": thresholds, "figures": figures}


def assess_decisions(
    P: Floats,
    y: Ints,
    weight: Floats,
    costs: Costs,
    labels: Sequence[str],
    *,
    prior: Floats | None = None,
    unit: Ints | None = None,
) -> RuleCosts:
    """Assess decisions by probabilities [n C] of rows with classes y and weights.

    The constant is the cheapest one by the class frequencies of the training rows,
    `prior`, or of these rows if it is None. Intervals come from a bootstrap; `unit`:
    the same number for rows that belong together.
    """
    cost = costs.matrix(labels)
    C = len(labels)
    share = prior
    if share is None:
        share = np.bincount(y, weight, C).astype(np.float64)
    constant = int((share @ cost[:, :C]).argmin())
    rules = {
        DECIDE: cost[y, choose(P, cost).action],
        "predict": cost[y, P.argmax(1)],
        f"always {labels[constant]}": cost[y, constant],
    }
    if costs.refuses:
        rules["refuse all"] = cost[y, C]

    def score(*columns: Floats) -> dict[str, Floats]:
        *each, w = columns
        means = np.array([average(rule, w).value for rule in each])
        return {"values": means, "more": means - means[0]}

    rows = (*rules.values(), weight)
    values = score(*rows)["values"].tolist()
    ends = bootstrap(score, rows, len(rules), unit)
    thresholds = None
    if C == 2:
        thresholds = costs.threshold(labels)
    return RuleCosts(
        dict(zip(rules, values, strict=True)),
        dict(zip(rules, ends["values"], strict=True)),
        dict(zip(rules, ends["more"], strict=True)),
        thresholds,
    )


def _format_range(ends: list[float]) -> str:
    return f"[{ends[0]:.4g}, {ends[1]:.4g}]"


def draw_threshold_costs(
    P: Floats, y: Ints, costs: Costs, labels: Sequence[str]
) -> Figure:
    """Draw the cost per row against the threshold of one of two classes.

    Rows between the thresholds of refusing are not refused here.
    """
    cost = costs.matrix(labels)
    found = costs.threshold(labels)
    yes = list(labels).index(found.label)
    p = P[:, yes]
    at = np.linspace(0, 1, POINTS + 1)
    means = [float(cost[y, np.where(p > t, yes, 1 - yes)].mean()) for t in at]
    own = replace(costs, refuse=None).threshold(labels).high
    now = float(cost[y, np.where(p > own, yes, 1 - yes)].mean())
    name = labels[yes]
    plot = Plot(
        UNIT,
        (min(0.0, *means), max(means)),
        labels=(f"probability from which {name} is decided", "cost per row"),
    )
    plot.line(at, means, "c0")
    every = POINTS // DOTS
    plot.dots(
        at[::every],
        means[::every],
        "c0",
        lambda t, mean: f"threshold {t:.2f}: {format_number(mean, 3)} per row",
    )
    tip = f"threshold of the costs, {own:.3f}: {format_number(now, 3)} per row"
    plot.dot(own, now, "c1", tip, radius=6)

    half = float(means[POINTS // 2])
    alt = (
        f"Cost per row against the threshold for {name}: {now:.3f} at {own:.3f}, the "
        f"threshold of the costs, and {half:.3f} at 0.5."
    )
    caption = (
        "Orange: the threshold that follows from the costs alone. If probabilities are "
        "right, it is at the lowest cost, up to noise."
    )
    return Figure("threshold", plot.render(alt), caption, "What does a threshold cost?")
