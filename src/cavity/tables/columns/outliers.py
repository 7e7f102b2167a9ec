"""Outliers: cells so extreme that they would dominate a column's spread.

Typical causes are typing errors and codes for "unknown". The usual distance from the
median is the median distance of the cells that differ from it. A cell more than FAR
times as far is limited to the range of the other cells.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from cavity.common.types import Floats
from cavity.errors import BadInput
from cavity.tables.columns.cells import count_cells

FAR = 1e5
LEAST_CELLS = 10  # cells that differ from the median, to know what is usual
SAMPLE_ROWS = 10_000  # rows from which the median and the usual distance are computed
MAX_SPREAD = 1e304  # its product with the number of columns or classes stays finite
MAX_NAMES = 5  # columns that a message names


def limit_column(value: Floats) -> Floats:
    """Limit outliers of a column to the range of its other cells.

    Returns the same object if there are none.
    """
    if not len(value):
        return value

    with np.errstate(over="ignore", invalid="ignore"):
        middle, reach = _find_usual(_sample(value))
        if reach == math.inf:
            return value

        usual = np.abs(value - middle) <= reach
    if usual.all():
        return value

    return np.clip(value, value[usual].min(), value[usual].max())


def _sample(X: Floats) -> Floats:
    return X[:: math.ceil(len(X) / SAMPLE_ROWS)]


def _find_usual(sample: Floats) -> tuple[float, float]:
    """Return the median of a column, and how far from it cells may be.

    Any distance is usual if too few cells differ from the median.
    """
    middle = np.median(sample)
    differing = np.abs(sample - middle)[sample != middle]
    if len(differing) < LEAST_CELLS:
        return float(middle), math.inf

    return float(middle), float(FAR * np.median(differing))


def limit_outliers(X: Floats, names: Sequence[str] | None) -> Floats:
    """Limit outliers of the training rows, with one warning.

    Raises BadInput for a column without a finite range.
    """
    found: list[str] = []
    for j in _find_far(X):
        limited = limit_column(X[:, j])
        changed = int((limited != X[:, j]).sum())
        if changed:
            if not found:
                X = X.copy()
            X[:, j] = limited
            found.append(f"column {_name(j, names)}: {count_cells(changed)}")

    with np.errstate(over="ignore"):
        wide = np.flatnonzero(X.max(0) - X.min(0) > MAX_SPREAD)
    if len(wide):
        name = _name(int(wide[0]), names)
        raise BadInput(
            f"column {name} has numbers that are too large: use other units."
        )

    if found:
        more = ""
        if len(found) > MAX_NAMES:
            more = f" and {len(found) - MAX_NAMES} more columns"
        warnings.warn(
            f"{'; '.join(found[:MAX_NAMES])}{more} more than {FAR:g} times as far from "
            "the median as usual: limited to the range of the other cells. Correct "
            "such cells, or leave them empty in a data frame.",
            stacklevel=2,
        )

    return X


def _find_far(X: Floats) -> list[int]:
    """Return the columns with cells that are farther from the median than usual."""
    found = []
    low = X.min(0)
    high = X.max(0)
    columns = np.ascontiguousarray(_sample(X).T)
    with np.errstate(over="ignore", invalid="ignore"):
        for j, column in enumerate(columns):
            middle, reach = _find_usual(column)
            if not max(high[j] - middle, middle - low[j]) <= reach:  # NaN: far
                found.append(j)
    return found


def _name(j: int, names: Sequence[str] | None) -> str:
    if names is None:
        return str(j)

    return repr(str(names[j]))
