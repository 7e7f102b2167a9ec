"""Plots as inline SVG: scales, axes and marks with tooltips. Text is text, so any script is shown by the reader's fonts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from cavity.common.text_tables import shorten
from cavity.report.markup import escape_text

Array = NDArray[np.float64]
Range = tuple[float, float]
Ticks = Sequence[tuple[float, str]]  # places, with their texts

WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 42
LABEL_WIDTH = 17  # of a label in half-width characters


class Plot:
    """Axes in a box of fixed size; the page scales it. Marks are added in the order they are drawn."""

    def __init__(
        self, x: Range, y: Range, *, labels: tuple[str, str], left: int = LEFT, height: int = HEIGHT
    ) -> None:
        self.xlim, self.ylim = _widen(x), _widen(y)
        self.labels, self.left, self.height = labels, left, height
        self.marks: list[str] = []

    def x(self, value: float) -> float:
        low, high = self.xlim
        return self.left + (value - low) / (high - low) * (WIDTH - self.left - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.ylim
        return self.height - BOTTOM - (value - low) / (high - low) * (self.height - TOP - BOTTOM)

    def line(self, x: Iterable[float], y: Iterable[float], kind: str) -> None:
        points = " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(x, y, strict=True))
        self.marks.append(f'<polyline class="line {kind}" points="{points}"/>')

    def band(self, x: Array, low: Array, high: Array, kind: str) -> None:
        up = [f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(x, high, strict=True)]
        down = [f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(x, low, strict=True)]
        self.marks.append(f'<polygon class="band {kind}" points="{" ".join([*up, *down[::-1]])}"/>')

    def whisker(self, x: Range, y: Range, kind: str) -> None:
        (x1, x2), (y1, y2) = map(self.x, x), map(self.y, y)
        ends = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"'
        self.marks.append(f'<line class="whisker {kind}" {ends}/>')

    def dot(self, x: float, y: float, kind: str, tip: str, radius: float = 4) -> None:
        self.marks.append(
            f'<circle class="dot {kind}" cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius:.1f}">'
            f"<title>{escape_text(tip)}</title></circle>"
        )

    def render(self, alt: str, x_ticks: Ticks | None = None, y_ticks: Ticks | None = None) -> str:
        """Return the SVG, with text for screen readers. Ticks are chosen if none are given."""
        parts = [
            *(self._tick(value, text, True) for value, text in (x_ticks or choose_ticks(*self.xlim))),
            *(self._tick(value, text, False) for value, text in (y_ticks or choose_ticks(*self.ylim))),
            *self.marks,
            self._label(self.labels[0], (self.left + WIDTH - RIGHT) / 2, self.height - 6, ""),
        ]
        if self.labels[1]:
            middle = (TOP + self.height - BOTTOM) / 2
            parts.append(self._label(self.labels[1], 13, middle, f' transform="rotate(-90 13 {middle:.0f})"'))
        return f'<svg viewBox="0 0 {WIDTH} {self.height}" role="img" aria-label="{escape_text(alt)}">{"".join(parts)}</svg>'

    def _label(self, text: str, x: float, y: float, turned: str) -> str:
        short = shorten(text, 44)
        return f'<text class="axis" x="{x:.0f}" y="{y:.0f}" text-anchor="middle"{turned}>{escape_text(short)}</text>'

    def _tick(self, value: float, text: str, horizontal: bool) -> str:
        label = escape_text(shorten(text, LABEL_WIDTH))
        full = f"<title>{escape_text(text)}</title>" if shorten(text, LABEL_WIDTH) != text else ""
        if horizontal:
            x, end = self.x(value), self.height - BOTTOM
            return (
                f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{end}"/>'
                f'<text x="{x:.1f}" y="{end + 15}" text-anchor="middle">{label}{full}</text>'
            )
        y = self.y(value)
        return (
            f'<line class="grid" x1="{self.left}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{label}{full}</text>'
        )


def choose_ticks(low: float, high: float, most: int = 5) -> list[tuple[float, str]]:
    """Choose at most so many round numbers in a range."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10, 20) if (high - low) / (power * m) <= most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(k * step, format_number(k * step)) for k in range(first, last + 1)]


def choose_dates(low: float, high: float) -> list[tuple[float, str]]:
    """Choose dates in a range of seconds since 1970."""
    days = (high - low) / 86_400
    length = 10 if days > 3 else 16
    moments = low + (high - low) * np.array([1 / 6, 1 / 2, 5 / 6] if days > 3 else [1 / 4, 3 / 4])
    return [(float(m), str(np.datetime64(int(m), "s"))[:length].replace("T", " ")) for m in moments]


def format_number(value: float, digits: int = 6) -> str:
    """Format a number in at most so many digits, with separators of thousands."""
    value = 0.0 if abs(value) < 1e-300 else float(f"{value:.{digits}g}")
    if 1e4 <= abs(value) < 1e9 and value % 1 == 0:
        return f"{value:,.0f}"
    return f"{value:g}"


def _widen(ends: Range) -> Range:
    low, high = ends
    return (low, high) if high > low else (low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1))
