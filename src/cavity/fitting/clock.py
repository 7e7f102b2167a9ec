"""The seconds of a fit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from cavity.common.ranks import Local

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
        if self.limit is None:
            return float("inf")

        return USED * self.limit - self.spent()

    def has(self, seconds: float) -> bool:
        """Return whether so many seconds are left."""
        return self.limit is None or not self.reduce.agree(self.left() < seconds)

    def share(self, share: float) -> Callable[[], float]:
        """Return a function: the seconds left of a share of what is left now.

        Every rank gets the same.
        """
        if self.limit is None:
            return lambda: float("inf")

        end = self.spent() + share * self.left()
        return lambda: min(self.reduce.gather(end - self.spent()))

    def end_of_share(self, share: float, most: float | None) -> float | None:
        """Return when a share of the seconds left now is over, in seconds since the start.

        `most`: another limit, or None. Without any limit it returns None.
        """
        if self.limit is None:
            return most

        end = self.spent() + share * max(0.0, self.left())
        if most is None:
            return end

        return min(most, end)
