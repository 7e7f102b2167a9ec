"""Running moments of a column: of numbers, of formatted numbers in either style, of dates in either order."""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity.common.column_statistics import merge_spread
from cavity.errors import BadInput
from cavity.rows.arrow_tables import import_pyarrow
from cavity.rows.batches.source import Array
from cavity.rows.columns.arrow_buffers import to_flags
from cavity.rows.columns.cells import STYLES, Flags, match_numbers, parse_numbers
from cavity.rows.columns.column_kinds import Date
from cavity.rows.columns.dates import ORDERS, find_weekdays, find_years, to_days
from cavity.rows.columns.outliers import limit_column

SEASON_DAYS = 31  # shorter tables have no season


class RunningMoments:
    """Count, mean, sum of squares and range, merged batch by batch."""

    def __init__(self) -> None:
        self.n = 0
        self.mean = self.square = 0.0
        self.low, self.high = np.inf, -np.inf

    def add(self, value: Array) -> None:
        """Add values; outliers do not count beyond the other values."""
        if len(value):
            value = limit_column(value)
            part = RunningMoments()
            with np.errstate(over="ignore", invalid="ignore"):
                part.n, part.mean = len(value), float(value.mean())
                part.square = float(((value - part.mean) ** 2).sum())
            part.low, part.high = float(value.min()), float(value.max())
            self.merge(part)

    def merge(self, other: RunningMoments) -> None:
        if other.n:
            n, mean, square = merge_spread(*((m.n, m.mean, m.square) for m in (self, other)))
            self.n, self.mean, self.square = int(n), float(mean), float(square)
            self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    @property
    def scale(self) -> float:
        return float(np.sqrt(self.square / self.n)) if self.low < self.high else 1.0


class StyleMoments:
    """Moments of numbers that people wrote, as long as every cell fits a style."""

    def __init__(self) -> None:
        self.formatted = 0  # cells that are numbers in some style, but not plain ones
        self.bare = RunningMoments()  # plain numbers without a point, which a decimal comma does not change
        self.styled = {style: RunningMoments() for style in STYLES}

    def add(self, text: Any, plain: Flags, lacks: Flags) -> None:
        """Add cells; `plain` are numbers with a decimal point or none."""
        import pyarrow.compute as pc

        pointed = plain & to_flags(pc.match_substring(text, "."))
        odd = _filter(text, ~plain & ~lacks)
        self.formatted += int(np.logical_or.reduce([match_numbers(odd, style) for style in STYLES]).sum())
        if "," in self.styled:
            self.bare.add(parse_numbers(_filter(text, plain & ~pointed)))
        for style in list(self.styled):
            cells = odd if style == "." else _filter(text, (pointed | ~plain) & ~lacks)
            if match_numbers(cells, style).all():
                self.styled[style].add(parse_numbers(cells, style))
            else:
                del self.styled[style]

    def decide(self, plain: RunningMoments) -> tuple[str, RunningMoments] | None:
        """Return the style that fits every cell, and the moments in it, given those of plain numbers."""
        for style, moments in self.styled.items():
            moments.merge(plain if style == "." else self.bare)
            return style, moments
        return None


def _filter(text: Any, chosen: Flags) -> Any:
    return text.filter(import_pyarrow().array(chosen))


class DateMoments:
    """Moments of dates, as long as every cell is one in some order of day and month."""

    def __init__(self) -> None:
        self.days = {order: RunningMoments() for order in ORDERS}
        self.years = {order: RunningMoments() for order in ORDERS}
        self.weekdays: dict[str, set[float]] = {order: set() for order in ORDERS}
        self.clock = False

    def add(self, column: Any) -> None:
        for order in list(self.days):
            try:
                found = to_days(column, order, "", 0)
            except BadInput:
                del self.days[order]
                continue
            value = found[~np.isnan(found)]
            self.days[order].add(value)
            self.years[order].add(find_years(value))
            self.weekdays[order].update(find_weekdays(value).tolist())
            self.clock |= bool((value % 1 != 0).any())

    def decide(self, name: str, missing: bool) -> Date | None:
        """Return the column, or None if some cell is not a date."""
        for order, days in self.days.items():
            years = self.years[order]
            only_clock = self.clock and days.low >= 0 and days.high < 1
            has = {
                "days": not only_clock,
                "year": years.low < years.high,
                "season": days.high - days.low > SEASON_DAYS,
                "weekday": len(self.weekdays[order]) > 1,
                "clock": self.clock,
            }
            parts = tuple(part for part, present in has.items() if present)
            units = (days.mean, days.scale), (years.mean, years.scale)
            return Date(name, order, parts, days.low, days.high, *units, missing)
        return None
