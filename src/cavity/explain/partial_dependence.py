"""Partial dependence: mean predictions with one column set to a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from cavity.common.tabular import Tabular
from cavity.common.types import Floats, Ints
from cavity.explain.raw_rows import RawRows

LEAST = 1e-12  # smallest probability, and smallest standard deviation of one


class Averages(NamedTuple):
    """Mean predictions of groups of rows."""

    mean: Floats  # [K C], or [K]
    spread: Floats  # standard deviation of the mean, given the rows
    between: Floats  # standard deviation of predictions between rows


Average = Callable[[list[Floats]], Averages]  # groups of rows → averages
KINDS: dict[str, Any] = {
    "number": np.float64,
    "category": object,
    "date": "datetime64[us]",
}


@dataclass(frozen=True, eq=False)
class PartialDependence(Tabular):
    """Mean prediction when one column has the same value in every row.

    Attributes
    ----------
    name : str
        Column of the table.
    kind : str
        "number", "category" or "date".
    values : ndarray of shape (K,)
        Values of the column in the user's units: numbers, texts or dates. The last is
        missing (NaN, None or NaT) if the model knows missing cells of the column.
    mean : ndarray of shape (K, n_classes)
        Mean class probabilities over rows. For a regressor mean predictions, of shape
        (K,).
    low : ndarray of the same shape
        Lower ends of intervals of the mean over all rows: its posterior with
        hyper-parameters fixed and, if `rows` is a sample, its sampling error.
    high : ndarray of the same shape
        Upper ends.
    classes : ndarray of shape (n_classes,) or None
        Class labels; None for a regressor.
    level : float
        Probability of the intervals.
    rows : int
        Number of rows in each mean.
    total : int
        Number of rows that they were drawn from.
    """

    name: str
    kind: str
    values: NDArray[Any]
    mean: Floats
    low: Floats
    high: Floats
    classes: NDArray[Any] | None
    level: float
    rows: int
    total: int

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {}
        if self.classes is None:
            columns[self.name or "value"] = self.values
        else:
            columns[self.name or "value"] = np.repeat(self.values, len(self.classes))
            columns["class"] = np.tile(self.classes, len(self.values))

        columns["mean"] = self.mean.ravel()
        columns["low"] = self.low.ravel()
        columns["high"] = self.high.ravel()
        return columns

    def _shown(self) -> dict[str, Any]:
        heads = ["mean"]
        form = ".4g"
        if self.classes is not None:
            heads = [f"P({label})" for label in self.classes]
            form = ".3f"
        shown = {self.name or "value": list(map(format_value, self.values))}
        parts = np.stack([self.mean, self.low, self.high]).reshape(
            3, len(self.values), len(heads)
        )
        for c, head in enumerate(heads):
            shown[head] = [
                f"{mean:{form}} [{low:{form}}, {high:{form}}]"
                for mean, low, high in parts[:, :, c].T
            ]

        return shown

    def _heading(self) -> str:
        over = describe_sample(self.rows, self.total)
        return f"mean prediction over {over}, with {self.level:.0%} intervals"


def describe_sample(rows: int, total: int) -> str:
    if rows == total:
        return f"{rows:,} rows"

    return f"{rows:,} of {total:,} rows"


def format_value(value: Any) -> str:
    """Format a cell: a number, a date, a text or a missing value."""
    if value is None or value != value:
        return "(missing)"
    if isinstance(value, np.datetime64):
        text = str(value.astype("datetime64[s]"))
        if text.startswith("1970-01-01T"):  # a time of day has no date
            return text[11:16]

        return text.removesuffix("T00:00:00").replace("T", " ")
    if not isinstance(value, float | np.floating):
        return str(value)

    value = float(value)
    if abs(value) < 1e6 or value % 1:
        return f"{value:.6g}"

    return f"{value:.0f}"


def choose_values(rows: RawRows, j: int, most: int) -> NDArray[Any]:
    """Choose values of a column: frequent levels, or quantiles that occur in it.

    Missing is added if the model knows it.
    """
    kind = rows.kind(j)
    cells = rows.cells(j)
    if kind == "category":
        values = _frequent_levels(cells, most)
    else:
        values = _quantiles(cells[~np.isnan(cells)], most)

    if getattr(rows.columns[j], "missing", False):
        values.append(None)  # NaN as a number, NaT as a date
    return np.array(values, dtype=KINDS[kind])


def _frequent_levels(cells: NDArray[Any], most: int) -> list[Any]:
    counts = Counter(cell for cell in cells.tolist() if cell is not None)
    levels = sorted(counts, key=lambda level: (-counts[level], level))
    return levels[:most]


def _quantiles(known: NDArray[Any], most: int) -> list[Any]:
    """Return at most `most` distinct values: all of them, or inner quantiles."""
    if not len(known):
        return []

    steps = np.linspace(0, 1, 10 * most)
    if len(np.unique(known)) > most:
        steps = np.linspace(0.02, 0.98, most)
    places = np.round(steps * (len(known) - 1)).astype(int)
    return np.unique(np.sort(known)[places]).tolist()


def thin(rows: Floats, most: int) -> Floats:
    """Return at most `most` rows, at equal distances.

    The posterior of a mean is that of a mean over some of its rows, nearly: rows share
    the latent functions. A joint posterior of all of them would take n² numbers.
    """
    if len(rows) <= most:
        return rows

    return rows[np.linspace(0, len(rows) - 1, most).astype(int)]


def compute_partial_dependence(
    rows: RawRows,
    j: int,
    chosen: Ints,
    average: Average,
    *,
    n_values: int,
    classes: Any,
    level: float,
) -> PartialDependence:
    """Average predictions of the chosen rows with column j set to each value.

    The values come from all N rows. The mean over n chosen rows is off from the mean
    over all of them by a sampling error of variance (1 − n/N) s²/n, with s² the variance
    of predictions between rows.
    """
    values = choose_values(rows, j, n_values)
    sample = rows.X[chosen]
    mean, posterior, between = average(
        [rows.replace(j, block, sample) for block in rows.encode(j, values)]
    )
    n = len(chosen)
    left_out = 1 - n / len(rows.X)
    spread = np.sqrt(posterior**2 + left_out * between**2 / n)
    is_normal = classes is None
    low = _find_quantile(mean, spread, 0.5 - 0.5 * level, is_normal)
    high = _find_quantile(mean, spread, 0.5 + 0.5 * level, is_normal)
    return PartialDependence(
        name=rows.names[j],
        kind=rows.kind(j),
        values=values,
        mean=mean,
        low=np.minimum(low, mean),
        high=np.maximum(high, mean),
        classes=classes,
        level=level,
        rows=n,
        total=len(rows.X),
    )


def _find_quantile(mean: Floats, spread: Floats, q: float, is_normal: bool) -> Floats:
    """Return quantiles of distributions with these means and standard deviations.

    They are normal distributions or, for probabilities, beta distributions.
    """
    if is_normal:
        return np.asarray(mean + ndtri(q) * spread)

    p = np.clip(mean, LEAST, 1 - LEAST)
    size = np.maximum(p * (1 - p) / np.maximum(spread**2, LEAST**2) - 1, 1e-3)
    return np.asarray(betaincinv(p * size, (1 - p) * size, q))
