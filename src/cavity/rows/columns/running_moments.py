"""Running moments of a column: of numbers, of formatted numbers in either style, of dates in either order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cavity.common.column_statistics import merge_spread
from cavity.rows.arrow_tables import import_pyarrow
from cavity.rows.batches.source import Array
from cavity.rows.columns.cells import STYLES, match_cells, match_numbers, parse_numbers
from cavity.rows.columns.column_kinds import Date
from cavity.rows.columns.dates import DATE, ORDERS, find_weekdays, find_years, to_days
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
        self.bare = RunningMoments()  # numbers without a point, the same in every style
        self.styled = {style: RunningMoments() for style in STYLES}

    def add(self, text: Any, plain: NDArray[np.bool_], lacks: NDArray[np.bool_]) -> None:
        """Add cells; `plain` are numbers with a decimal point or none."""
        import pyarrow.compute as pc

        fits = {style: match_numbers(text, style) for style in STYLES}
        self.formatted += int((np.logical_or.reduce(list(fits.values())) & ~plain).sum())
        if not self.styled:
            return
        bare = plain & ~np.asarray(pc.match_substring(text, ".").fill_null(False))
        self.bare.add(_parse(text, bare, "."))
        for style in list(self.styled):
            rest = ~bare & ~lacks
            if (fits[style] | ~rest).all():
                self.styled[style].add(_parse(text, rest, style))
            else:
                del self.styled[style]

    def decide(self) -> tuple[str, RunningMoments] | None:
        """Return the style that fits every cell, and the moments in it."""
        for style, moments in self.styled.items():
            moments.merge(self.bare)
            return style, moments
        return None


def _parse(text: Any, chosen: NDArray[np.bool_], style: str) -> Array:
    return parse_numbers(text.filter(import_pyarrow().array(chosen)), style)


class DateMoments:
    """Moments of dates, as long as every cell is one in some order of day and month."""

    def __init__(self) -> None:
        self.days = {order: RunningMoments() for order in ORDERS}
        self.years = {order: RunningMoments() for order in ORDERS}
        self.weekdays: dict[str, set[float]] = {order: set() for order in ORDERS}
        self.clock = False

    def add(self, column: Any, lacks: NDArray[np.bool_]) -> None:
        if self.days and import_pyarrow().types.is_string(column.type):
            if not (match_cells(column, DATE) | lacks).all():
                self.days.clear()
        for order in list(self.days):
            found = to_days(column, order)
            if found.row >= 0:
                del self.days[order]
                continue
            value = found.value[~found.lacks]
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
