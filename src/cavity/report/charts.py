"""Figures of the report: calibration, rejection, learning curve, partial dependence,
predicted against true numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from cavity.common.scoring import NORMAL_95
from cavity.common.text_tables import name_column
from cavity.common.types import Floats
from cavity.explain.partial_dependence import PartialDependence, format_value
from cavity.report.calibration import reliability
from cavity.report.colours import name_series
from cavity.report.selective import rejection
from cavity.report.svg import Plot, Range, choose_dates
from cavity.report.templates import format_number

MAX_SERIES = 6  # classes that partial dependence shows
MAX_DOTS = 400
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of intervals whose coverage is drawn
LEVEL_WIDTH = 130  # of the names of levels


class Figure(NamedTuple):
    name: str
    plot: str  # SVG
    caption: str
    head: str
    legend: Mapping[int, str] = {}


def draw_calibration(P: Floats, codes: Any) -> Figure:
    table = reliability(P, codes)
    plot = Plot(
        (0, 1),
        (0, 1),
        labels=("probability of the predicted class", "share that is right"),
    )
    plot.line([0, 1], [0, 1], "reference")
    plot.line(table.confidence[table.many], table.accuracy[table.many], "c0")
    for k in np.flatnonzero(table.rows):
        said = table.confidence[k]
        right = table.accuracy[k]
        plot.whisker((said, said), (table.low[k], table.high[k]), "c0")
        tip = f"{table.rows[k]} rows: says {said:.0%}, right {right:.0%}"
        plot.dot(
            said,
            right,
            "c0" if table.many[k] else "c0 pale",
            tip,
            3 + 6 * np.sqrt(table.share[k]),
        )
    bins = np.count_nonzero(table.rows)
    alt = f"Reliability diagram of {bins} bins with rows; expected calibration error {table.error:.3f}."
    caption = (
        "On the diagonal, probabilities can be trusted. Below it the model is too "
        "sure, above it not sure enough. "
        "Larger dots have more rows; whiskers are one standard error."
    )
    return Figure("calibration", plot.render(alt), caption, "Are probabilities right?")


def draw_rejection(P: Floats, codes: Any) -> Figure:
    """Draw the error of the kept rows when the least certain ones are left to people."""
    curve = rejection(P, codes)
    keep = np.unique(np.round(np.linspace(0, len(curve.error) - 1, 60)).astype(int))
    rejected = curve.rejected[keep]
    error = curve.error[keep]
    labels = ("share of rows set aside", "error of the others")
    plot = Plot((0, 1), (0, max(error.max(), 0.05)), labels=labels)
    plot.line(rejected, error, "c1")
    for k in range(0, len(keep), 6):
        tip = f"{rejected[k]:.0%} of the rows set aside: {error[k]:.1%} errors among the others"
        plot.dot(rejected[k], error[k], "c1", tip, 3)
    half = np.append(curve.error, curve.error[-1])[np.searchsorted(curve.rejected, 0.5)]
    alt = (
        f"Error falls from {curve.error[0]:.3f} of all rows to {half:.3f} of the more "
        f"certain half."
    )
    caption = "The error that remains if a person decides the least certain rows."
    return Figure(
        "rejection", plot.render(alt), caption, "What if unsure rows go to a person?"
    )


def draw_dependence(
    found: PartialDependence, number: int, importance: float, target: str
) -> Figure:
    """Draw how the mean prediction depends on one column: lines of a number or date,
    dots of a category.
    """
    mean, low, high = (
        v.reshape(len(found.values), -1) for v in (found.mean, found.low, found.high)
    )
    if found.classes is None:
        classes = [target]
        what = f"mean {target.removeprefix('the ')}"
        bounds = float(low.min()), float(high.max())
    else:
        classes = [str(c) for c in found.classes]
        what = "mean probability"
        bounds = (0.0, 1.0)
    shown = np.sort(
        np.argsort(-np.ptp(mean, axis=0), kind="stable")[:MAX_SERIES]
    ).tolist()
    if len(classes) == 2:
        shown = [1]
    series = [
        Series(classes[c], name_series(c), mean[:, c], low[:, c], high[:, c])
        for c in shown
    ]
    draw = _draw_levels if found.kind == "category" else _draw_line
    plot = draw(found, series, bounds, what)
    left_out = ""
    if 2 < len(classes) > len(shown):
        left_out = f" The {len(shown)} classes that change most."
    interval = f"{found.level:.0%} interval of the mean over {found.rows} rows"
    caption = f"Importance {importance:.2f} nats. Shaded or in whiskers: {interval}.{left_out}"
    if found.classes is None:
        legend = {}
    else:
        legend = {c: classes[c] for c in shown}
    return Figure(
        f"dependence-{number}", plot, caption, name_column(found.name), legend
    )


class Series(NamedTuple):
    name: str
    kind: str  # class of the style sheet
    mean: Floats  # [K]
    low: Floats
    high: Floats

    def tip(self, i: int, value: str) -> str:
        mean, low, high = (
            format_number(part[i], 3) for part in (self.mean, self.low, self.high)
        )
        return f"{value}: {self.name} {mean} ({low} to {high})"


def _draw_line(
    found: PartialDependence, series: list[Series], bounds: Range, what: str
) -> str:
    missing = np.isnan(found.values)
    at = found.values[~missing]
    if found.kind == "date":
        x = at.astype("datetime64[s]").astype(np.float64)
    else:
        x = at.astype(np.float64)
    if len(x):
        ends = (float(x.min()), float(x.max()))
    else:
        ends = (0.0, 1.0)
    # for missing cells at the right
    room = 0.0
    if missing.any():
        room = 0.18 * (ends[1] - ends[0])
    plot = Plot(
        (ends[0], ends[1] + room), bounds, labels=(name_column(found.name), what)
    )
    for s in series:
        plot.band(
            x,
            s.low[~missing],
            s.high[~missing],
            s.kind if len(series) <= 3 else f"{s.kind} pale",
        )
        plot.line(x, s.mean[~missing], s.kind)
    places = np.full(len(missing), plot.xlim[1])
    places[~missing] = x
    for s in series:
        for i, (place, lacks) in enumerate(zip(places, missing, strict=True)):
            if lacks:
                plot.whisker((place, place), (s.low[i], s.high[i]), s.kind)
            tip = s.tip(i, format_value(found.values[i]))
            if lacks:
                kind = f"{s.kind} hollow"
            else:
                kind = s.kind
            plot.dot(place, s.mean[i], kind, tip, 4 if lacks else 3)
    if found.kind == "date":
        ticks: Any = choose_dates(*ends)
    else:
        ticks = plot.ticks_across()
    if missing.any():
        ticks = [tick for tick in ticks if tick[0] <= ends[1]] + [
            (plot.xlim[1], "missing")
        ]
    ends_of = {s.name: [format_number(s.mean[i], 3) for i in (0, -1)] for s in series}
    changes = ", ".join(
        f"{name} {first} to {last}" for name, (first, last) in ends_of.items()
    )
    return plot.render(f"{what} against {found.name}: {changes}.", ticks)


def _draw_levels(
    found: PartialDependence, series: list[Series], bounds: Range, what: str
) -> str:
    n = len(found.values)
    plot = Plot(
        bounds, (-0.5, n - 0.5), labels=(what, ""), left=LEVEL_WIDTH, height=60 + 30 * n
    )
    names = [format_value(value) for value in found.values]
    for i, name in enumerate(names):
        for k, s in enumerate(series):
            y = n - 1 - i + (0.5 - (k + 0.5) / len(series)) * 0.7
            plot.whisker((s.low[i], s.high[i]), (y, y), s.kind)
            plot.dot(s.mean[i], y, s.kind, s.tip(i, name))
    alt = f"{what} for {n} levels of {found.name}."
    return plot.render(alt, None, [(n - 1 - i, name) for i, name in enumerate(names)])


def draw_scatter(mean: Floats, std: Floats, y: Floats, target: str) -> Figure:
    chosen = np.unique(np.linspace(0, len(y) - 1, min(len(y), MAX_DOTS)).astype(int))
    both = np.concatenate([mean[chosen], y[chosen]])
    name = target.removeprefix("the ")
    low = float(both.min())
    high = float(both.max())
    plot = Plot((low, high), (low, high), labels=(f"predicted {name}", f"true {name}"))
    plot.line([low, high], [low, high], "reference")
    for i in chosen:
        off = abs(y[i] - mean[i]) > NORMAL_95 * std[i]
        tip = f"row {i}: predicted {format_number(mean[i], 4)} ± {format_number(std[i], 2)}, true {format_number(y[i])}"
        plot.dot(mean[i], y[i], "c1 pale" if off else "c0 pale", tip, 3)
    alt = f"True against predicted {name} of {len(chosen)} rows."
    caption = "On the diagonal, predictions are exact. Orange rows lie outside their 95% interval."
    return Figure("scatter", plot.render(alt), caption, "Predicted and true")


def draw_coverage(mean: Floats, std: Floats, y: Floats) -> Figure:
    """Draw how many rows lie within their intervals, against how many should."""
    from scipy.special import ndtri

    inside = [
        float((np.abs(y - mean) <= ndtri(0.5 + 0.5 * level) * std).mean())
        for level in LEVELS
    ]
    labels = ("probability of the interval", "share of rows inside")
    plot = Plot((0.4, 1), (min(0.4, *inside), 1), labels=labels)
    plot.line([0.4, 1], [0.4, 1], "reference")
    plot.line(LEVELS, inside, "c0")
    for level, share in zip(LEVELS, inside, strict=True):
        plot.dot(
            level, share, "c0", f"{level:.0%} intervals hold {share:.0%} of the rows"
        )
    found = ", ".join(
        f"{s:.2f} of {lv:.2f}" for lv, s in zip(LEVELS, inside, strict=True)
    )
    caption = (
        "On the diagonal, intervals hold as many rows as they should. Below it they "
        "are too narrow."
    )
    alt = f"Share of rows inside their intervals, {found}."
    return Figure("coverage", plot.render(alt), caption, "Are intervals right?")
