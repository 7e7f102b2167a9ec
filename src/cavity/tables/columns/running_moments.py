"""Running moments of a column of numbers, formatted numbers or dates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.common.column_statistics import merge_spread
from cavity.common.types import Flags, Floats
from cavity.errors import BadInput
from cavity.tables.columns.arrow_buffers import to_flags
from cavity.tables.columns.cells import (
    STYLES,
    filter_cells,
    match_numbers,
    parse_numbers,
)
from cavity.tables.columns.column_kinds import Date
from cavity.tables.columns.dates import find_weekdays, find_years, to_days
from cavity.tables.columns.outliers import limit_column

SEASON_DAYS = 31  # dates within fewer days have no season


@dataclass
class RunningMoments:
    """Count, mean, sum of squares and range, merged batch by batch."""

    n: int = 0
    mean: float = 0.0
    square: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    def add(self, value: Floats) -> None:
        """Add values; outliers are limited to the range of the other values."""
        if not len(value):
            return

        value = limit_column(value)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float(value.mean())
            square = float(((value - mean) ** 2).sum())
        low = float(value.min())
        high = float(value.max())
        self.merge(RunningMoments(len(value), mean, square, low, high))

    def merge(self, other: RunningMoments) -> None:
        if other.n:
            n, mean, square = merge_spread(
                (self.n, self.mean, self.square), (other.n, other.mean, other.square)
            )
            self.n = int(n)
            self.mean = float(mean)
            self.square = float(square)
            self.low = min(self.low, other.low)
            self.high = max(self.high, other.high)

    @property
    def scale(self) -> float:
        if self.low < self.high:
            return float(np.sqrt(self.square / self.n))

        return 1.0


class StyleMoments:
    """Moments of formatted numbers, for each style that every cell so far fits."""

    def __init__(self) -> None:
        self.formatted = 0  # cells that are numbers in some style, but not plain
        # plain numbers without a point: they are the same in both styles
        self.bare = RunningMoments()
        self.styled = {style: RunningMoments() for style in STYLES}

    def add(self, text: Any, plain: Flags, lacks: Flags) -> None:
        """Add cells; `plain` cells are numbers with a decimal point or without one."""
        import pyarrow.compute as pc

        pointed = plain & to_flags(pc.match_substring(text, "."))
        odd = filter_cells(text, ~plain & ~lacks)
        if len(odd):
            fits_some = [match_numbers(odd, style) for style in STYLES]
            self.formatted += int(np.any(fits_some, axis=0).sum())
        if "," in self.styled:
            self.bare.add(parse_numbers(text, chosen=plain & ~pointed))
        for style in list(self.styled):
            cells = odd
            if style == ",":
                cells = filter_cells(text, (pointed | ~plain) & ~lacks)
            if not len(cells):
                continue
            if match_numbers(cells, style).all():
                self.styled[style].add(parse_numbers(cells, style))
            else:
                del self.styled[style]

    def decide(self, plain: RunningMoments) -> tuple[str, RunningMoments] | None:
        """Return the first style that fits every cell, and the moments in this style.

        `plain` are the moments of plain numbers.
        """
        for style, moments in self.styled.items():
            moments.merge(plain if style == "." else self.bare)
            return style, moments
        return None


class DateMoments:
    """Moments of dates in one order of day and month."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.clock = False
        self.days = RunningMoments()
        self.years = RunningMoments()
        self.weekdays: set[float] = set()

    def add(self, column: Any) -> bool:
        """Add cells, and return whether all of them are dates."""
        try:
            found = to_days(column, self.order, "", 0)
        except BadInput:
            return False

        value = found[~np.isnan(found)]
        self.days.add(value)
        self.years.add(find_years(value))
        self.weekdays.update(find_weekdays(value).tolist())
        self.clock |= bool((value % 1 != 0).any())
        return True

    def decide(self, name: str, missing: bool) -> Date:
        """Return the column, with the parts that vary."""
        days = self.days
        years = self.years
        has = {
            "days": not (self.clock and days.low >= 0 and days.high < 1),
            "year": years.low < years.high,
            "season": days.high - days.low > SEASON_DAYS,
            "weekday": len(self.weekdays) > 1,
            "clock": self.clock,
        }
        return Date(
            name,
            self.order,
            parts=tuple(part for part, present in has.items() if present),
            low=days.low,
            high=days.high,
            days=(days.mean, days.scale),
            years=(years.mean, years.scale),
            missing=missing,
        )
