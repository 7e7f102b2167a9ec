"""Figures of the report: calibration, rejection, partial dependence, and predicted
against true numbers.
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
from cavity.report.svg import UNIT, Plot, Range, choose_dates
from cavity.report.templates import format_number

MAX_SERIES = 6  # classes that partial dependence shows
MAX_DOTS = 400
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)  # of intervals whose coverage is drawn
LEVEL_WIDTH = 130  # room for the names of levels


class Figure(NamedTuple):
    name: str
    plot: str  # SVG
    caption: str
    head: str
    legend: Mapping[int, str] = {}


def draw_calibration(P: Floats, codes: Any) -> Figure:
    table = reliability(P, codes)
    labels = ("probability of the predicted class", "share that is right")
    plot = Plot(UNIT, UNIT, labels=labels)
    filled = table.rows > 0
    plot.diagonal()
    plot.bins(table, filled, "c0", ("predicted", "right"), size=6)
    alt = (
        f"Reliability diagram of {filled.sum()} bins with rows; expected calibration "
        f"error {table.error:.3f}."
    )
    caption = (
        "On the diagonal, probabilities can be trusted. Below it the model is too "
        "sure, above it not sure enough. "
        "Larger dots have more rows; whiskers are one standard error."
    )
    return Figure("calibration", plot.render(alt), caption, "Are probabilities right?")


def draw_rejection(P: Floats, codes: Any) -> Figure:
    """Draw the error of the kept rows when the least certain ones are set aside."""
    curve = rejection(P, codes)
    places = np.linspace(0, len(curve.error) - 1, 60)
    keep = np.unique(np.round(places).astype(int))
    rejected = curve.rejected[keep]
    error = curve.error[keep]
    labels = ("share of rows set aside", "error of the others")
    plot = Plot(UNIT, (0, max(error.max(), 0.05)), labels=labels)
    plot.line(rejected, error, "c1")
    said = "{:.0%} of the rows set aside: {:.1%} errors among the others"
    plot.dots(rejected[::6], error[::6], "c1", said.format)
    middle = int(np.searchsorted(curve.rejected, 0.5))
    half = curve.error[min(middle, len(curve.error) - 1)]
    alt = (
        f"The error falls from {curve.error[0]:.3f} on all rows to {half:.3f} on the "
        "more certain half."
    )
    caption = "The error that remains if a person decides the least certain rows."
    head = "What if unsure rows go to a person?"
    return Figure("rejection", plot.render(alt), caption, head)


class Series(NamedTuple):
    """The curve of one class, or of the target."""

    name: str
    kind: str  # class of the style sheet
    mean: Floats  # [K]
    low: Floats  # [K]
    high: Floats  # [K]

    def tip(self, i: int, value: str) -> str:
        mean = format_number(self.mean[i], 3)
        low = format_number(self.low[i], 3)
        high = format_number(self.high[i], 3)
        return f"{value}: {self.name} {mean} ({low} to {high})"

    def extremes(self, values: Any) -> str:
        """Say where the curve is lowest and highest."""
        texts = []
        for i in (self.mean.argmin(), self.mean.argmax()):
            texts.append(
                f"{format_number(self.mean[i], 3)} at {format_value(values[i])}"
            )
        return f"{self.name}: lowest {texts[0]}, highest {texts[1]}."

    def ends(self) -> str:
        first = format_number(self.mean[0], 3)
        last = format_number(self.mean[-1], 3)
        return f"{self.name} {first} to {last}"


def draw_dependence(
    found: PartialDependence,
    number: int,
    importance: float,
    target: str,
    positive: int | None = None,
) -> Figure:
    """Draw how the mean prediction depends on one column.

    Numbers and dates have lines, categories dots. With two classes, only the positive
    one is drawn.
    """
    n = len(found.values)
    mean = found.mean.reshape(n, -1)
    low = found.low.reshape(n, -1)
    high = found.high.reshape(n, -1)
    names = [target]
    what = f"mean {target.removeprefix('the ')}"
    bounds = (float(low.min()), float(high.max()))
    if found.classes is not None:
        names = list(map(str, found.classes))
        what = "mean probability"
        bounds = UNIT

    changes = np.ptp(mean, axis=0)
    if positive is not None:
        changes[positive] = np.inf
    most = 1 if len(names) == 2 else MAX_SERIES
    shown = sorted(np.argsort(-changes, kind="stable")[:most].tolist())
    series = [
        Series(names[c], name_series(c), mean[:, c], low[:, c], high[:, c])
        for c in shown
    ]
    draw = _draw_levels if found.kind == "category" else _draw_line
    plot = draw(found, series, bounds, what)

    widest = max(series, key=lambda s: np.ptp(s.mean))
    caption = f"Importance {importance:.2f} nats. {widest.extremes(found.values)}"
    if 2 < len(names) > len(shown):
        caption += f" Only the {len(shown)} classes that change most."
    legend = {}
    if found.classes is not None:
        legend = {c: names[c] for c in shown}
    head = name_column(found.name)
    return Figure(f"dependence-{number}", plot, caption, head, legend)


def _draw_line(
    found: PartialDependence, series: list[Series], bounds: Range, what: str
) -> str:
    known = ~np.isnan(found.values)
    values = found.values[known]
    if found.kind == "date":
        values = values.astype("datetime64[s]")
    x = values.astype(np.float64)
    first, last = (x[0], x[-1]) if len(x) else UNIT  # they ascend
    end = last
    if not known.all():  # missing is drawn at the right
        end += 0.18 * (last - first)
    plot = Plot((first, end), bounds, labels=(name_column(found.name), what))

    pale = " pale" if len(series) > 3 else ""
    for s in series:
        plot.band(x, s.low[known], s.high[known], s.kind + pale)
        plot.line(x, s.mean[known], s.kind)

    texts = list(map(format_value, found.values))
    for s in series:
        for i, k in enumerate(np.flatnonzero(known).tolist()):
            plot.dot(x[i], s.mean[k], s.kind, s.tip(k, texts[k]), radius=3)
        for k in np.flatnonzero(~known).tolist():
            place = plot.xlim[1]
            plot.whisker((place, place), (s.low[k], s.high[k]), s.kind)
            plot.dot(place, s.mean[k], f"{s.kind} hollow", s.tip(k, texts[k]))

    ticks = plot.ticks_across()
    if found.kind == "date":
        ticks = choose_dates(first, last)
    if not known.all():
        inside = [tick for tick in ticks if tick[0] <= last]
        ticks = [*inside, (plot.xlim[1], "missing")]
    changes = ", ".join(s.ends() for s in series)
    return plot.render(f"{what} against {found.name}: {changes}.", ticks)


def _draw_levels(
    found: PartialDependence, series: list[Series], bounds: Range, what: str
) -> str:
    n = len(found.values)
    labels = (what, "")
    height = 60 + 30 * n
    plot = Plot(bounds, (-0.5, n - 0.5), labels=labels, left=LEVEL_WIDTH, height=height)
    ticks = []
    for i, value in enumerate(found.values):
        name = format_value(value)
        place = n - 1 - i  # the first level is on top
        ticks.append((place, name))
        for k, s in enumerate(series):
            y = place + 0.7 * (0.5 - (k + 0.5) / len(series))
            plot.whisker((s.low[i], s.high[i]), (y, y), s.kind)
            plot.dot(s.mean[i], y, s.kind, s.tip(i, name))

    return plot.render(f"{what} for {n} levels of {found.name}.", None, ticks)


def draw_scatter(mean: Floats, std: Floats, y: Floats, target: str) -> Figure:
    """Draw true against predicted values of some rows."""
    n_dots = min(len(y), MAX_DOTS)
    chosen = np.unique(np.linspace(0, len(y) - 1, n_dots).astype(int))
    both = np.concatenate([mean[chosen], y[chosen]])
    ends = (float(both.min()), float(both.max()))
    name = target.removeprefix("the ")
    plot = Plot(ends, ends, labels=(f"predicted {name}", f"true {name}"))
    plot.line(ends, ends, "reference")
    for i in chosen:
        kind = "c0 pale"
        if abs(y[i] - mean[i]) > NORMAL_95 * std[i]:
            kind = "c1 pale"

        predicted = f"{format_number(mean[i], 4)} ± {format_number(std[i], 2)}"
        tip = f"row {i}: predicted {predicted}, true {format_number(y[i])}"
        plot.dot(mean[i], y[i], kind, tip, radius=3)

    alt = f"True against predicted {name} of {len(chosen)} rows."
    caption = (
        "On the diagonal, predictions are exact. Orange rows lie outside their 95% "
        "interval."
    )
    return Figure("scatter", plot.render(alt), caption, "Predicted and true")


def draw_coverage(mean: Floats, std: Floats, y: Floats) -> Figure:
    """Draw how many rows lie within their intervals, against how many should."""
    from scipy.special import ndtri

    off = np.abs(y - mean)
    inside = []
    for level in LEVELS:
        reach = ndtri(0.5 + 0.5 * level) * std
        inside.append(float((off <= reach).mean()))

    labels = ("probability of the interval", "share of rows inside")
    plot = Plot((0.4, 1), (min(0.4, *inside), 1), labels=labels)
    plot.line([0.4, 1], [0.4, 1], "reference")
    plot.line(LEVELS, inside, "c0")
    said = "{:.0%} intervals hold {:.0%} of the rows"
    plot.dots(LEVELS, inside, "c0", said.format, radius=4)
    each = zip(LEVELS, inside, strict=True)
    found = [f"{share:.2f} of {level:.2f}" for level, share in each]
    caption = (
        "On the diagonal, intervals hold as many rows as they should. Below it they "
        "are too narrow."
    )
    alt = f"Share of rows inside their intervals, {', '.join(found)}."
    return Figure("coverage", plot.render(alt), caption, "Are intervals right?")
