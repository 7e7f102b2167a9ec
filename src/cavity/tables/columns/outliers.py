"""Cells so far outside all others that a column's spread would tell nothing of the
others: typing errors, codes for "unknown".

The distance of a cell from the median is compared with the usual one, the median over
the cells that differ from it. A cell more than FAR times as far is limited to the range
of the other cells.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from cavity.common.types import Floats
from cavity.errors import BadInput

FAR = 1e5
LEAST_CELLS = 10  # that differ from the median; fewer do not say what is usual
SAMPLE_ROWS = 10_000  # that median and usual distance are computed from
# of a column; products of it with a number of columns or classes are finite
MAX_SPREAD = 1e304
MAX_NAMES = 5  # columns that a message names


def limit_column(value: Floats) -> Floats:
    """Return a column with its outliers limited to the range of the other cells; the
    same object if it has none.
    """
    if len(value):
        sample = value[:: -(-len(value) // SAMPLE_ROWS)]
    else:
        sample = value
    with np.errstate(over="ignore", invalid="ignore"):
        middle = 0.0
        if len(sample):
            middle = np.median(sample)
        differing = np.abs(sample - middle)[sample != middle]
        if len(differing) < LEAST_CELLS:
            return value
        usual = np.abs(value - middle) <= FAR * np.median(differing)
    if usual.all():
        return value
    return np.clip(value, value[usual].min(), value[usual].max())


def limit_outliers(X: Floats, names: Sequence[str] | None) -> Floats:
    """Return training rows with limited outliers, and warn of them.

    Raises BadInput for a column without a finite range.
    """
    found: list[str] = []
    for j in range(X.shape[1]):
        limited = limit_column(X[:, j])
        changed = int((limited != X[:, j]).sum())
        if changed:
            X = X.copy() if not found else X
            X[:, j] = limited
            found.append(
                f"column {_name(j, names)}: {changed} cell{'s' if changed > 1 else ''}"
            )
    with np.errstate(over="ignore"):
        wide = np.flatnonzero(X.max(0) - X.min(0) > MAX_SPREAD)
    if len(wide):
        raise BadInput(
            f"column {_name(int(wide[0]), names)} has numbers too large: use other "
            f"units."
        )
    if found:
        more = ""
        if len(found) > MAX_NAMES:
            more = f" and {len(found) - MAX_NAMES} more columns"
        warnings.warn(
            f"{'; '.join(found[:MAX_NAMES])}{more} more than {FAR:g} times as far from "
            f"the median as usual: limited to the "
            "range of the other cells. Correct such cells, or leave them empty in a "
            "data frame.",
            stacklevel=2,
        )
    return X


def _name(j: int, names: Sequence[str] | None) -> str:
    if names is None:
        return str(j)
    return repr(str(names[j]))
