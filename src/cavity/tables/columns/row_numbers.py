"""Recognise columns of row numbers by their names and cells, in any order of rows."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np

from cavity.common.types import Floats
from cavity.tables.arrow_tables import is_frame, list_names

_THING = "row|obs|observation|record|case|line"
_NAME = "id|number|num|no|nr|names?"
# Usual names of a column of row numbers. It is ignored if its cells are row numbers too.
ROW_NUMBER = re.compile(
    r"(?i:unnamed: ?\d+(\.\d+)?|level_0|\.{3}\d+|[#№]|(.*[\W_])?(id|idx|index)"
    rf"|{_THING}|(({_THING}|sample|serial|s|sl)[ _.]?)?({_NAME})\.?)|.*[a-z]I[dD]"
)
# the name that pandas gives the index of a frame in a file
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
# In more rows, only row numbers in order are recognised, because they need no memory.
MOST_SHUFFLED = 10_000_000
# n measured whole numbers within a span S all differ with a probability of about
# exp(−n²/2S). It is below .001 if S ≤ n²/REPEATS.
REPEATS = 14


class RowNumbers:
    """Whether numbers, added batch by batch, are row numbers.

    They are consecutive, or different whole numbers within a small span.
    """

    def __init__(self) -> None:
        self.n = 0
        self.begin = 0.0
        self.in_order = True
        self.shuffled: list[Floats] | None = []  # None: they are not row numbers

    def add(self, value: Floats) -> None:
        if not len(value) or self.shuffled is None:
            return

        if not self.n:
            self.begin = float(value[0])
        expected = self.begin + self.n + np.arange(len(value))
        if self.in_order and not np.array_equal(value, expected):
            self.in_order = False
            self.shuffled = [self.begin + np.arange(self.n, dtype=np.float64)]
        self.n += len(value)
        if not self.in_order:
            self.shuffled.append(value)
            if self.n > MOST_SHUFFLED or not np.array_equal(value, np.floor(value)):
                self.shuffled = None

    def decide(self) -> bool:
        """Return whether all values are row numbers, perhaps of a sample of the rows."""
        if self.n < 2 or self.shuffled is None:
            return False
        if self.in_order:
            return True

        found = np.unique(np.concatenate(self.shuffled))
        if found[0] < 0 or len(found) < self.n:
            return False

        span = found[-1] - found[0] + 1
        return bool(span <= max(self.n + 1, self.n**2 / REPEATS))


def has_row_numbers(X: Any) -> bool:
    """Return whether a frame has a column of row numbers beside others."""
    if not is_frame(X):
        return False

    names = list_names(X)
    named = [name for name in names if ROW_NUMBER.fullmatch(str(name))]
    has_others = len(named) < len(names)
    if not has_others or len(set(map(str, names))) < len(names):
        return False

    for name in named:
        found = RowNumbers()
        with suppress(TypeError, ValueError):  # missing or nested cells
            found.add(np.asarray(X[name], dtype=np.float64))
        if found.decide():
            return True

    return False
