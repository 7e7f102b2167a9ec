r"""Whether new rows are like the training rows, column by column. Does not load torch.

t_k and c_k are the numbers of training rows and of new rows in cell k of a column: a
level, a bin, a new level, or missing. Without drift, with n and m rows,

    p_k = (t_k + c_k) / (n + m)        Var(t_k/n − c_k/m) = p_k (1 − p_k) (1/n + 1/m)
    χ² = Σ_k (t_k/n − c_k/m)² / (p_k (1/n + 1/m))        K − 1 degrees of freedom

The distance is that of total variation, ½ Σ_k |t_k/n − c_k/m|. Cells in which the
smaller table would have fewer than 5 rows are joined. Pooled counts decide that, so
that rare and new levels alone raise no alarm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from cavity.common.tabular import Tabular
from cavity.common.text_tables import list_names
from cavity.common.types import Floats
from cavity.errors import BadInput
from cavity.tables.columns.column_kinds import Column
from cavity.tables.columns.column_shares import CellCounts, ColumnShares, name_cells

LEAST = 5.0  # expected rows of a cell
UNUSUAL = 0.95  # novelty that one in twenty training rows exceeds


class Change(NamedTuple):
    """How the cells of one column differ from the training rows."""

    name: str
    p_value: float  # of this column alone
    distance: float
    noise: float  # expected distance without drift
    new: float  # share of cells with a level that the training rows did not have
    missing: float
    missing_before: float
    largest: str  # the cell whose share differs most


NUMBERS = Change._fields[1:-1]


@dataclass(frozen=True, eq=False)
class Drift(Tabular):
    """New rows against the training rows, the most certain changes first.

    Attributes
    ----------
    names : list of str
        Columns that the model reads.
    p_value : ndarray of shape (n_columns,)
        Probability of such a difference without drift, corrected for the number of
        columns (Holm). If rows have not changed, one of these is below 0.05 in at most
        5% of all comparisons.
    distance : ndarray of shape (n_columns,)
        Share of rows that would have to change: total variation, from 0 to 1.
    noise : ndarray of shape (n_columns,)
        Expected distance without drift.
    new : ndarray of shape (n_columns,)
        Share of cells with a category that the training rows did not have.
    missing, missing_before : ndarray of shape (n_columns,)
        Shares of missing cells, in the new rows and in the training rows.
    largest : list of str
        The level or range whose share changed most.
    rows : int
        Number of new rows.
    unusual : float or None
        Share of new rows with a novelty above 0.95. It is 0.05 without drift. None if
        the model cannot measure novelty.
    """

    names: list[str]
    p_value: Floats
    distance: Floats
    noise: Floats
    new: Floats
    missing: Floats
    missing_before: Floats
    largest: list[str]
    rows: int
    unusual: float | None

    def changed(self, level: float = 0.05) -> list[str]:
        """Return the columns that have changed.

        Parameters
        ----------
        level : float, default=0.05
            Largest probability of an alarm without drift, over all columns together.

        Returns
        -------
        list of str
            Columns, the most certain change first.
        """
        return [
            name for name, p in zip(self.names, self.p_value, strict=True) if p <= level
        ]

    def columns(self) -> dict[str, Any]:
        """Return the numbers of all columns, by what they are.

        Returns
        -------
        dict of str to array or list
            The columns of `to_frame()`.
        """
        numbers = {name: getattr(self, name) for name in NUMBERS}
        return {"column": self.names, **numbers, "largest": self.largest}

    def _columns(self) -> dict[str, Any]:
        return self.columns()

    def _heading(self) -> str:
        found = self.changed()
        said = "no column has changed"
        if found:
            said = f"changed: {list_names(found)}"
        text = f"{self.rows} rows against the training rows; {said} (level 0.05)"
        if self.unusual is not None:
            text += f"; {self.unusual:.1%} are unusual (5% expected)"
        return text


def find_shares(shares: tuple[ColumnShares, ...] | None) -> tuple[ColumnShares, ...]:
    """Return the stored shares; raise BadInput if a fit stored none."""
    if shares is None:
        raise BadInput(
            "this model cannot compare rows: it comes from a version before 0.4, from "
            "partial_fit(), or has more than 1,000 columns. Fit it again with fit(), "
            "or watch predict_novelty()."
        )

    return shares


def compare_columns(
    columns: Sequence[Column],
    shares: Sequence[ColumnShares],
    counts: Sequence[CellCounts],
    novelty: Floats | None,
) -> Drift:
    """Compare counts of new cells with the training rows."""
    found = [
        compare_column(column, before, now)
        for column, before, now in zip(columns, shares, counts, strict=True)
    ]
    found.sort(key=lambda change: (change.p_value, -change.distance))
    steps = np.arange(len(found), 0, -1)
    p = np.array([change.p_value for change in found])
    adjusted = np.minimum(np.maximum.accumulate(steps * p), 1.0)
    names, *numbers, largest = zip(*found, strict=True)
    arrays = dict(zip(NUMBERS, map(np.array, numbers), strict=True))
    first = counts[0]
    return Drift(
        names=list(names),
        **arrays | {"p_value": adjusted},
        largest=list(largest),
        rows=first.missing + int(first.known.sum()) + first.new.total(),
        unusual=None if novelty is None else float((novelty > UNUSUAL).mean()),
    )


def compare_column(column: Column, before: ColumnShares, now: CellCounts) -> Change:
    """Compare one column."""
    new = list(now.new.values())
    t = before.rows * np.array([*before.shares, before.missing] + [0.0] * len(new))
    c = np.array([*now.known, now.missing, *new], dtype=np.float64)
    names = [*name_cells(column, before), "missing", *now.new]
    n = t.sum()
    m = c.sum()
    off = c / m - t / n
    k = int(np.abs(off).argmax())
    largest = f"{names[k]}: {t[k] / n:.1%} → {c[k] / m:.1%}"
    t, c = join_rare(t, c)
    off = c / m - t / n
    p = (t + c) / (n + m)
    unit = 1 / n + 1 / m
    square = float((off**2 / (p * unit)).sum())
    p_value = 1.0
    if len(p) > 1:
        p_value = float(chdtrc(len(p) - 1, square))
    noise = np.sqrt(p * (1 - p) * unit * 2 / np.pi).sum() / 2
    return Change(
        before.name,
        p_value,
        float(np.abs(off).sum() / 2),
        float(noise),
        float(sum(new) / m),
        now.missing / m,
        before.missing,
        largest,
    )


def join_rare(t: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Join the cells that are rare in both tables together."""
    least = min(t.sum(), c.sum())
    both = t + c
    expected = least * both / both.sum()
    rare = expected < LEAST
    kept_t = t[~rare]
    kept_c = c[~rare]
    if expected[rare].sum() >= LEAST or not len(kept_t):
        return np.append(kept_t, t[rare].sum()), np.append(kept_c, c[rare].sum())

    if both[rare].sum() > 0:  # too few for a cell of their own
        k = int((kept_t + kept_c).argmin())
        kept_t[k] += t[rare].sum()
        kept_c[k] += c[rare].sum()
    return kept_t, kept_c
