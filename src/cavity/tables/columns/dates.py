"""Dates and times: cells as days since 1970, and their parts as features."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from cavity.common.types import Floats
from cavity.errors import BadInput
from cavity.tables.arrow_tables import import_pyarrow
from cavity.tables.columns.arrow_buffers import find_present, to_floats, to_places
from cavity.tables.columns.cells import (
    EncodingContext,
    describe_missing,
    list_indicator,
    to_text,
)

DAY = 86_400  # seconds
MAX_DAYS = 4e6  # about eleven thousand years
PARTS = ("days", "year", "season", "weekday", "clock")
YEAR = 365.2425  # days
STEPS = 2.0**32  # sines and cosines are rounded to 1/STEPS
# What comes first in 03/04/2020; the day wins if cells can be read both ways.
ORDERS = ("day", "month")
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
EPOCH = datetime(1970, 1, 1)
_SECOND = r"(:(?P<second>\d{2}([.,]\d+)?))?"
_CLOCK = rf"(?P<hour>\d{{1,2}}):(?P<minute>\d{{2}}){_SECOND} ?(?P<half>[AaPp][Mm])?"
_AFTER = rf"([T ,]+{_CLOCK})? ?(Z|UTC|(?P<zone>[+-]\d{{2}}:?\d{{2}}))?"
_MONTH = r"(?P<word>[A-Za-z]{3,9})\.?"
PATTERNS = [
    re.compile(pattern + _AFTER)
    for pattern in (
        r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
        r"(?P<one>\d{1,2})[-/.](?P<two>\d{1,2})[-/.](?P<year>\d{4}|\d{2})",
        rf"([A-Za-z]{{3,9}},? )?(?P<day>\d{{1,2}})[ -]{_MONTH}[ -](?P<year>\d{{4}}|\d{{2}})",
        rf"{_MONTH} (?P<day>\d{{1,2}}),? (?P<year>\d{{4}})",
    )
]
TIME = re.compile(_CLOCK)


def to_days(column: Any, order: str, name: str, first: int) -> Floats:
    """Convert dates, times or their texts to days since 1970-01-01.

    A time is part of a day. Missing cells are NaN; other cells raise BadInput.
    """
    if import_pyarrow().types.is_temporal(column.type):
        return _typed_days(column)

    text = to_text(column)
    coded = text.dictionary_encode()
    known = [np.nan]
    for cell in coded.dictionary.to_pylist():
        days = parse_date(cell, order)
        if np.isnan(days):
            row = first + text.index(cell).as_py() + 1
            raise BadInput(
                f"column {name!r} has dates, but row {row} has {cell!r:.60}: correct "
                "it or leave it empty."
            )

        known.append(days)

    place = np.where(find_present(text), to_places(coded.indices) + 1, 0)
    return np.array(known)[place]


def _typed_days(column: Any) -> Floats:
    arrow = import_pyarrow()
    if arrow.types.is_time(column.type):
        unit = arrow.time64("us")
    else:
        unit = arrow.timestamp("us")

    micros = column.cast(unit, safe=False).cast("int64").cast("float64", safe=False)
    return np.asarray(to_floats(micros) / (1e6 * DAY))


def parse_date(text: str, order: str) -> float:
    """Return days since 1970-01-01; NaN if the text is neither a date nor a time.

    A time alone is part of a day.
    """
    try:
        if time := TIME.fullmatch(text):
            return _seconds(time.groupdict()) / DAY

        for pattern in PATTERNS:
            if found := pattern.fullmatch(text):
                return _read(found.groupdict(), order)
    except (ValueError, OverflowError):
        pass

    return np.nan


def _read(part: dict[str, str | None], order: str) -> float:
    year = int(part["year"] or 0)
    if len(part["year"] or "") == 2:
        year += 1900 if year >= 69 else 2000
    if part.get("word"):
        month = MONTHS.index(str(part["word"])[:3].lower()) + 1
        day = int(part["day"] or 0)
    elif part.get("one"):
        day = int(part["one"] or 0)
        month = int(part["two"] or 0)
        if order == "month":
            day, month = month, day
    else:
        month = int(part["month"] or 0)
        day = int(part["day"] or 0)

    moment = datetime(year, month, day)
    if part.get("hour"):
        moment += timedelta(seconds=_seconds(part))
    if zone := part.get("zone"):
        offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
        moment += offset if zone.startswith("-") else -offset
    return (moment - EPOCH).total_seconds() / DAY


def _seconds(part: dict[str, str | None]) -> float:
    hour = int(part["hour"] or 0)
    minute = int(part["minute"] or 0)
    second = float((part.get("second") or "0").replace(",", "."))
    if half := part.get("half"):
        if not 1 <= hour <= 12:
            raise ValueError(hour)

        hour %= 12
        if half.lower() == "pm":
            hour += 12

    if hour > 23 or minute > 59 or second >= 61:
        raise ValueError(hour)

    return 3600 * hour + 60 * minute + second


def find_years(days: Floats) -> Floats:
    whole = np.floor(days).astype("datetime64[D]")
    return np.asarray(whole.astype("datetime64[Y]").astype(np.int64) + 1970.0)


def find_season(days: Floats) -> Floats:
    """Return the part of the year that has passed, from 0 to 1."""
    year = np.floor(days).astype("datetime64[D]").astype("datetime64[Y]")
    return np.asarray((days - year.astype("datetime64[D]").astype(np.float64)) / YEAR)


def find_weekdays(days: Floats) -> Floats:
    """Return the weekday of each date: 0 is Monday."""
    return np.asarray((np.floor(days) + 3) % 7)


def to_circle(turns: Floats) -> Sequence[Floats]:
    """Return the sine and cosine of a periodic quantity, so that its ends are near.

    They are rounded: libraries differ in the last bits, and otherwise trees might split
    between Tuesday and Sunday, whose cosines are equal.
    """
    angle = 2 * np.pi * turns
    return [np.rint(part * STEPS) / STEPS for part in (np.sin(angle), np.cos(angle))]


def format_day(days: float) -> str:
    return str(np.datetime64(int(np.floor(days)), "D"))


class Date(NamedTuple):
    """Column of dates or times, encoded by the parts that vary; missing cells are 0.

    `parts` may be "days" and "year", standardised, and "season", "weekday" and "clock"
    (time of day), each a pair of sine and cosine. With `missing`, one more column
    indicates missing cells.
    """

    name: str
    order: str  # "day" or "month": which comes first in 03/04/2020
    parts: tuple[str, ...]
    low: float  # first date, in days since 1970
    high: float
    days: tuple[float, float]  # mean and spread of the days since 1970
    years: tuple[float, float]  # mean and spread of the years
    missing: bool

    @property
    def features(self) -> list[str]:
        names = []
        for part in self.parts:
            if part in ("days", "year"):
                names.append(f"{self.name} {part}")
            else:
                names += [f"{self.name} {part} sin", f"{self.name} {part} cos"]

        return names + list_indicator(self)

    def describe(self) -> str:
        if self.parts == ("clock",):
            return f"time of day{describe_missing(self)}"

        period = f"{format_day(self.low)} to {format_day(self.high)}"
        return f"date, {period}, as {', '.join(self.parts)}{describe_missing(self)}"

    def encode(self, column: Any, context: EncodingContext) -> Floats:
        days = to_days(column, self.order, self.name, context.first)
        lacks = np.isnan(days)
        value = np.where(lacks, self.low, days)
        found = [np.column_stack(self._encode_part(part, value)) for part in self.parts]
        X = np.where(lacks[:, None], 0.0, np.hstack(found))
        return context.mark_missing(self, X, lacks, "no date is set")

    def _encode_part(self, part: str, days: Floats) -> Sequence[Floats]:
        if part == "days":
            return [(days - self.days[0]) / self.days[1]]
        if part == "year":
            return [(find_years(days) - self.years[0]) / self.years[1]]
        if part == "season":
            return to_circle(find_season(days))
        if part == "weekday":
            return to_circle(find_weekdays(days) / 7)

        return to_circle(days % 1)
