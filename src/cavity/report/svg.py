"""Plots as inline SVG: scales, axes and marks with tooltips.

Text is text, so any script is shown by the reader's fonts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from cavity.common.types import Floats
from cavity.report.templates import TEMPLATES, format_number

Range = tuple[float, float]
Ticks = Sequence[tuple[float, str]]  # places, with their texts

WIDTH = 380
HEIGHT = 250
LEFT = 52
RIGHT = 12
TOP = 10
BOTTOM = 42
LETTER = 7  # width of a digit


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
        self.marks: list[
            tuple[str, str, str, dict[str, Any]]
        ] = []  # shape, class, tooltip, attributes

    def x(self, value: float) -> float:
        low, high = self.xlim
        return self.left + (value - low) / (high - low) * (WIDTH - self.left - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.ylim
        return (
            self.height
            - BOTTOM
            - (value - low) / (high - low) * (self.height - TOP - BOTTOM)
        )

    def line(self, x: Iterable[float], y: Iterable[float], kind: str) -> None:
        self.marks.append(
            ("polyline", f"line {kind}", "", {"points": self._points(x, y)})
        )

    def band(self, x: Floats, low: Floats, high: Floats, kind: str) -> None:
        points = self._points([*x, *x[::-1]], [*high, *low[::-1]])
        self.marks.append(("polygon", f"band {kind}", "", {"points": points}))

    def whisker(self, x: Range, y: Range, kind: str) -> None:
        (x1, x2) = map(self.x, x)
        (y1, y2) = map(self.y, y)
        self.marks.append(
            ("line", f"whisker {kind}", "", {"x1": x1, "x2": x2, "y1": y1, "y2": y2})
        )

    def dot(self, x: float, y: float, kind: str, tip: str, radius: float = 4) -> None:
        place = {"cx": self.x(x), "cy": self.y(y), "r": float(radius)}
        self.marks.append(("circle", f"dot {kind}", tip, place))

    def _points(self, x: Iterable[float], y: Iterable[float]) -> str:
        return " ".join(
            f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(x, y, strict=True)
        )

    def ticks_across(self) -> Ticks:
        """Return the ticks below the box, as many of them as have room for their texts."""
        found = choose_ticks(*self.xlim)
        letters = sum(len(text) + 1 for _, text in found)
        return found[:: math.ceil(LETTER * letters / (WIDTH - self.left - RIGHT))]

    def render(
        self, alt: str, x_ticks: Ticks | None = None, y_ticks: Ticks | None = None
    ) -> Markup:
        """Return the SVG, with text for screen readers.

        Ticks are chosen if none are given.
        """
        places = [
            (self.x(value), text) for value, text in x_ticks or self.ticks_across()
        ]
        # where a tick is, and where its text is centred so that the box holds it
        across = [
            (x, min(x, WIDTH - 0.5 * LETTER * len(text)), text) for x, text in places
        ]
        up = [
            (self.y(value), text) for value, text in y_ticks or choose_ticks(*self.ylim)
        ]
        ends = {
            "left": self.left,
            "right": WIDTH - RIGHT,
            "top": TOP,
            "bottom": self.height - BOTTOM,
        }
        box = {"width": WIDTH, "height": self.height, **ends}
        draw = TEMPLATES.get_template("macros.html").module.plot  # type: ignore[attr-defined]
        return Markup(draw(alt, box, across, up, self.marks, self.labels))


def choose_ticks(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    """Choose at most so many round numbers in a range."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(
        power * m for m in (1, 2, 5, 10, 20) if (high - low) / (power * m) <= most
    )
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [(k * step, format_number(k * step)) for k in range(first, last + 1)]


def choose_dates(low: float, high: float) -> list[tuple[float, str]]:
    days = (high - low) / 86_400
    length = 10 if days > 3 else 16
    moments = low + (high - low) * np.array(
        [1 / 6, 1 / 2, 5 / 6] if days > 3 else [1 / 4, 3 / 4]
    )
    return [
        (float(m), str(np.datetime64(int(m), "s"))[:length].replace("T", " "))
        for m in moments
    ]


def _widen(ends: Range) -> Range:
    low, high = ends
    if high > low:
        return (low, high)
    return (low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1))
