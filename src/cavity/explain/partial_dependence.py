"""How predictions depend on one column: averages over rows in which its cells are
replaced, with posterior intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from cavity.common.tabular import Tabular
from cavity.common.types import Floats
from cavity.explain.raw_rows import RawRows

LEAST = 1e-12  # of probabilities and their variances
Average = Callable[
    [list[Floats]], tuple[Floats, Floats]
]  # groups of rows to means and standard deviations


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
        Values of the column in the user's units: numbers, texts or dates. Missing (NaN,
        None, NaT) stands last, if the model knows missing cells of the column.
    mean : ndarray of shape (K, n_classes), or (K,) for a regressor
        Mean over rows of the class probabilities, or of the predicted target.
    low, high : ndarray
        Posterior intervals of `mean`. Hyper-parameters count as known.
    classes : ndarray or None
        Class labels; None for a regressor.
    level : float
        Probability of the intervals.
    rows : int
        Number of rows that predictions are averaged over.
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

    def _columns(self) -> dict[str, Any]:
        numbers = {
            "mean": self.mean.ravel(),
            "low": self.low.ravel(),
            "high": self.high.ravel(),
        }
        if self.classes is None:
            return {self.name or "value": self.values, **numbers}
        C = len(self.classes)
        labels = np.tile(self.classes, len(self.values))
        return {
            self.name or "value": np.repeat(self.values, C),
            "class": labels,
            **numbers,
        }

    def _shown(self) -> dict[str, Any]:
        if self.classes is None:
            heads = ["mean"]
        else:
            heads = [f"P({label})" for label in self.classes]
        form = ".4g" if self.classes is None else ".3f"
        mean, low, high = (
            part.reshape(-1, len(heads)).T for part in (self.mean, self.low, self.high)
        )
        shown = {self.name or "value": list(map(format_value, self.values))}
        for head, *ends in zip(heads, mean, low, high, strict=True):
            shown[head] = [
                f"{m:{form}} [{lo:{form}}, {hi:{form}}]"
                for m, lo, hi in zip(*ends, strict=True)
            ]
        return shown

    def _heading(self) -> str:
        return f"mean prediction over {self.rows} rows, with {self.level:.0%} intervals"


def format_value(value: Any) -> str:
    if value is None or value != value:
        return "(missing)"
    if isinstance(value, np.datetime64):
        text = str(value.astype("datetime64[s]"))
        if text.startswith("1970-01-01T"):  # a time of day has no date
            return text[11:16]
        return text.removesuffix("T00:00:00").replace("T", " ")
    if isinstance(value, float | np.floating):
        value = float(value)
        if abs(value) < 1e6 or value % 1:
            return f"{value:.6g}"
        return f"{value:.0f}"
    return str(value)


def choose_values(rows: RawRows, j: int, most: int) -> NDArray[Any]:
    """Choose values of a column: levels by frequency, or quantiles that occur; then
    missing, if the model knows it.
    """
    cells = rows.cells(j)
    if rows.kind(j) == "category":
        counts = Counter(cell for cell in cells.tolist() if cell is not None)
        values: list[Any] = sorted(counts, key=lambda level: (-counts[level], level))[
            :most
        ]
        gap: Any = None
    else:
        known = cells[~np.isnan(cells)]
        many = len(np.unique(known)) > most
        if many:
            steps = np.linspace(0.02, 0.98, most)
        else:
            steps = np.linspace(0, 1, 10 * most)
        places = np.round(steps * (len(known) - 1)).astype(int)
        if len(known):
            values = np.unique(np.sort(known)[places]).tolist()
        else:
            values = []
        if rows.kind(j) == "date":
            gap = np.datetime64("NaT")
        else:
            gap = np.nan
    kinds: dict[str, Any] = {
        "category": object,
        "date": "datetime64[us]",
        "number": np.float64,
    }
    if getattr(rows.columns[j], "missing", False):
        missing = [gap]
    else:
        missing = []
    return np.array([*values, *missing], dtype=kinds[rows.kind(j)])


def compute_partial_dependence(
    rows: RawRows,
    j: int,
    chosen: NDArray[Any],
    n_values: int,
    average: Average,
    classes: Any,
    level: float,
) -> PartialDependence:
    """Average predictions of the chosen rows with one value in column j, for several
    values of all rows.
    """
    values = choose_values(rows, j, n_values)
    mean, spread = average(
        [rows.replace(j, block, rows.X[chosen]) for block in rows.encode(j, values)]
    )
    ends = 0.5 - 0.5 * level, 0.5 + 0.5 * level
    low, high = (_find_quantile(mean, spread, q, classes is None) for q in ends)
    found = mean, np.minimum(low, mean), np.maximum(high, mean)
    return PartialDependence(
        rows.names[j], rows.kind(j), values, *found, classes, level, len(chosen)
    )


def _find_quantile(mean: Floats, spread: Floats, q: float, normal: bool) -> Floats:
    """Return quantiles of normal or, for probabilities, of beta distributions with
    these means and standard deviations.
    """
    if normal:
        return np.asarray(mean + ndtri(q) * spread)
    p = np.clip(mean, LEAST, 1 - LEAST)
    size = np.maximum(p * (1 - p) / np.maximum(spread**2, LEAST**2) - 1, 1e-3)
    return np.asarray(betaincinv(p * size, (1 - p) * size, q))
