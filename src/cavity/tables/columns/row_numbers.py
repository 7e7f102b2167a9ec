"""Columns of row numbers, in any order of rows: their names say so, and their cells
too.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import numpy as np

from cavity.common.types import Floats
from cavity.tables.arrow_tables import is_frame, list_names

# usual names of a column of row numbers; it is ignored if its cells are row numbers,
# too
ROW_NUMBER = re.compile(
    r"(?i:unnamed: ?\d+(\.\d+)?|level_0|\.{3}\d+|[#№]|(.*[\W_])?(id|idx|index)|row|obs|observation|record|case|line|"
    r"((row|obs|observation|record|case|line|sample|serial|s|sl)[ _.]?)?(id|number|num|no|nr|names?)\.?)|.*[a-z]I[dD]"
)
PANDAS_INDEX = re.compile(
    r"__index_level_\d+__"
)  # the name that pandas gives the index of a frame in a file
MOST_SHUFFLED = (
    # rows; of more, only row numbers in order are recognised, which need no memory
    10_000_000
)
# n measured whole numbers within a span S are all different with a probability of about
# exp(−n²/2S): below .001
REPEATS = 14


class RowNumbers:
    """Whether numbers, added batch by batch, are row numbers: consecutive, or different
    whole numbers within a small span.
    """

    def __init__(self) -> None:
        self.n = 0
        self.begin = 0.0
        self.in_order = True
        self.shuffled: list[Floats] | None = []  # None: they are not row numbers

    def add(self, value: Floats) -> None:
        if not len(value) or self.shuffled is None:
            return
        if self.n:
            self.begin = self.begin
        else:
            self.begin = float(value[0])
        if self.in_order and not np.array_equal(
            value, self.begin + self.n + np.arange(len(value))
        ):
            self.in_order = False
            self.shuffled = [self.begin + np.arange(self.n, dtype=np.float64)]
        self.n += len(value)
        if not self.in_order:
            self.shuffled.append(value)
            if self.n > MOST_SHUFFLED or not np.array_equal(value, np.floor(value)):
                self.shuffled = None

    def decide(self) -> bool:
        """Return whether all values together are row numbers, perhaps of a sample of
        the rows.
        """
        if self.n < 2 or self.shuffled is None:
            return False
        if self.in_order:
            return True
        found = np.unique(np.concatenate(self.shuffled))
        span = found[-1] - found[0] + 1
        return bool(
            found[0] >= 0
            and len(found) == self.n
            and span <= max(self.n + 1, self.n**2 / REPEATS)
        )


def has_row_numbers(X: Any) -> bool:
    """Return whether a frame has a column of row numbers beside others."""
    if is_frame(X):
        names = list_names(X)
    else:
        names = []
    named = [name for name in names if ROW_NUMBER.fullmatch(str(name))]
    if not len(named) < len(names) == len(set(map(str, names))):
        return False
    for name in named:
        found = RowNumbers()
        with suppress(TypeError, ValueError):  # missing or nested cells
            found.add(np.asarray(X[name], dtype=np.float64))
        if found.decide():
            return True
    return False
