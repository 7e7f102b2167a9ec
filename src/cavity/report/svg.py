"""Plots as inline SVG: scales, axes and marks with tooltips.

Text stays text, so the reader's fonts show any script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from cavity.common.scoring import Reliability
from cavity.common.types import Flags, Floats
from cavity.report.templates import TEMPLATES, format_number

Range = tuple[float, float]
UNIT = (0.0, 1.0)
Ticks = Sequence[tuple[float, str]]  # places, with their texts


class Mark(NamedTuple):
    """One element of a plot."""

    shape: str  # SVG element
    kind: str  # classes of the style sheet
    tip: str
    place: dict[str, Any]  # attributes


WIDTH = 380
HEIGHT = 250
LEFT = 52
RIGHT = 12
TOP = 10
BOTTOM = 42
LETTER = 7  # width of a digit
DAY = 86_400  # seconds


class Plot:
    """Axes in a box of fixed size; the page scales it.

    Marks are added in the order they are drawn.
    """

    def __init__(
        self,
        x: Range,
        y: Range,
        *,
        labels: tuple[str, str],
        left: int = 0,
        height: int = HEIGHT,
    ) -> None:
        self.xlim = _widen(x)
        self.ylim = _widen(y)
        widest = max((len(text) for _, text in choose_ticks(*self.ylim)), default=0)
        self.labels = labels
        self.left = left or max(LEFT, 26 + LETTER * widest)
        self.height = height
        self.marks = list[Mark]()

    @property
    def width(self) -> int:
        """Width of the box."""
        return WIDTH - self.left - RIGHT

    def x(self, value: float) -> float:
        low, high = self.xlim
        return self.left + (value - low) / (high - low) * self.width

    def y(self, value: float) -> float:
        low, high = self.ylim
        bottom = self.height - BOTTOM
        return bottom - (value - low) / (high - low) * (bottom - TOP)

    def line(self, x: Iterable[float], y: Iterable[float], kind: str) -> None:
        place = {"points": self._points(x, y)}
        self.marks.append(Mark("polyline", f"line {kind}", "", place))

    def band(self, x: Floats, low: Floats, high: Floats, kind: str) -> None:
        place = {"points": self._points([*x, *x[::-1]], [*high, *low[::-1]])}
        self.marks.append(Mark("polygon", f"band {kind}", "", place))

    def whisker(self, x: Range, y: Range, kind: str) -> None:
        x1, x2 = map(self.x, x)
        y1, y2 = map(self.y, y)
        place = {"x1": x1, "x2": x2, "y1": y1, "y2": y2}
        self.marks.append(Mark("line", f"whisker {kind}", "", place))

    def dot(self, x: float, y: float, kind: str, tip: str, radius: float = 4) -> None:
        place = {"cx": self.x(x), "cy": self.y(y), "r": float(radius)}
        self.marks.append(Mark("circle", f"dot {kind}", tip, place))

    def diagonal(self) -> None:
        self.line(UNIT, UNIT, "reference")

    def dots(
        self,
        x: Iterable[float],
        y: Iterable[float],
        kind: str,
        say: Callable[[float, float], str],
        radius: float = 3,
    ) -> None:
        """Draw dots whose tooltips `say` makes of their places."""
        for a, b in zip(x, y, strict=True):
            self.dot(a, b, kind, say(a, b), radius)

    def bins(
        self,
        table: Reliability,
        drawn: Flags,
        kind: str,
        words: tuple[str, str],
        size: int = 5,
    ) -> None:
        """Draw how often something happened against its probability, with whiskers.

        Bins of many rows are joined. `words` name both in tooltips.
        """
        self.line(table.confidence[table.many], table.accuracy[table.many], kind)
        for k in np.flatnonzero(drawn):
            said = table.confidence[k]
            true = table.accuracy[k]
            self.whisker((said, said), (table.low[k], table.high[k]), kind)
            dot = kind if table.many[k] else f"{kind} pale"
            tip = f"{table.rows[k]} rows: {words[0]} {said:.0%}, {words[1]} {true:.0%}"
            self.dot(said, true, dot, tip, size - 3 + size * np.sqrt(table.share[k]))

    def _points(self, x: Iterable[float], y: Iterable[float]) -> str:
        pairs = zip(x, y, strict=True)
        return " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in pairs)

    def ticks_across(self) -> Ticks:
        """Return as many ticks below the box as have room for their texts."""
        found = choose_ticks(*self.xlim)
        letters = sum(len(text) + 1 for _, text in found)
        every = math.ceil(LETTER * letters / self.width)
        return found[::every]

    def render(
        self, alt: str, x_ticks: Ticks | None = None, y_ticks: Ticks | None = None
    ) -> Markup:
        """Return the SVG, with text for screen readers.

        Ticks are chosen if none are given.
        """
        across = []
        for value, text in x_ticks or self.ticks_across():
            x = self.x(value)
            middle = min(x, WIDTH - 0.5 * LETTER * len(text))  # the text stays inside
            across.append((x, middle, text))

        y_ticks = y_ticks or choose_ticks(*self.ylim)
        up = [(self.y(value), text) for value, text in y_ticks]
        box = {
            "width": WIDTH,
            "height": self.height,
            "left": self.left,
            "right": WIDTH - RIGHT,
            "top": TOP,
            "bottom": self.height - BOTTOM,
        }
        macros: Any = TEMPLATES.get_template("macros.html").module
        return Markup(macros.plot(alt, box, across, up, self.marks, self.labels))


def choose_ticks(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    """Choose at most `most` round numbers in a range."""
    size = high - low
    power = 10.0 ** math.floor(math.log10(size / most))
    steps = (power * m for m in (1, 2, 5, 10, 20))
    step = next(step for step in steps if size / step <= most)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [(k * step, format_number(k * step)) for k in range(first, last + 1)]


def choose_dates(low: float, high: float) -> list[tuple[float, str]]:
    """Choose three days, or two moments of a short range, in seconds since 1970."""
    length = 10  # of a date without a time
    shares = [1 / 6, 1 / 2, 5 / 6]
    if high - low <= 3 * DAY:
        length = 16
        shares = [1 / 4, 3 / 4]
    ticks = []
    for share in shares:
        moment = low + (high - low) * share
        text = str(np.datetime64(int(moment), "s"))[:length]
        ticks.append((moment, text.replace("T", " ")))

    return ticks


def _widen(ends: Range) -> Range:
    low, high = ends
    if high > low:
        return ends

    half = 0.5 * (abs(low) or 1)
    return (low - half, low + half)
