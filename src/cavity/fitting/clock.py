"""The seconds of a fit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from cavity.distributed import Local
from cavity.options.value_checks import number

USED = 0.9  # share of the limit after which no stage starts


class Clock(NamedTuple):
    """When a fit began, and how many seconds it has; every rank hears the same."""

    begun: float
    limit: float | None  # time_limit: of the whole fit
    reduce: Local

    @classmethod
    def start(cls, limit: float | None, reduce: Local) -> Clock:
        return cls(time.perf_counter(), limit, reduce)

    def spent(self) -> float:
        return time.perf_counter() - self.begun

    def left(self) -> float:
        """Return the seconds that later stages have; infinite without a limit."""
        return float("inf") if self.limit is None else USED * self.limit - self.spent()

    def has(self, seconds: float) -> bool:
        """Return whether so many seconds are left."""
        return self.limit is None or not self.reduce.agree(self.left() < seconds)

    def share(self, share: float) -> Callable[[], bool]:
        """Return a function that says whether a share of the seconds that are left now is over."""
        end = self.spent() + share * self.left()
        return lambda: self.limit is not None and self.reduce.agree(self.spent() > end)


def read_limit(value: Any) -> float | None:
    return None if value is None else number("time_limit", value, 0.0)
